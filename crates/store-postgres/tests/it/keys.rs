//! Keys of starts whose run was lost or removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, KeyBinding, Log, StartKey, StartKeys};
use backstop_retention::{RemoveError, plan_forget};
use backstop_store_postgres::{Database, Enqueue, QueueFilter};
use layer0::operator::Task;

use crate::support::{at, begin, fresh, over_on, server, started};

fn request() -> Enqueue {
    Enqueue::new("demo", Task::text("go")).key("mail-1")
}

/// Binds the key of the request for a run, as another process does before it starts the run.
async fn bind(database: &Database, run: &str) -> KeyBinding {
    let key = StartKey::new("demo", "mail-1", &Task::text("go"), None, &BTreeMap::new()).unwrap();
    database.log().bind(&key, &run.into(), SystemClock.now()).await.unwrap()
}

async fn queued(database: &Database) -> Vec<String> {
    let listed = database.queue().list(&QueueFilter::new()).await.unwrap();
    listed.iter().map(|entry| entry.run.to_string()).collect()
}

/// Spec: J2w. The process that bound the key died before it started the run.
#[tokio::test(flavor = "multi_thread")]
async fn lost_run_of_a_key_is_queued() {
    let server = server!();
    let database = fresh(server).await;
    assert_eq!(bind(&database, "run_lost").await, KeyBinding::New);
    for is_new in [true, false] {
        let put = database.queue().enqueue(&request()).await.unwrap();
        assert_eq!((put.run.as_str(), put.is_new), ("run_lost", is_new));
    }
    assert_eq!(queued(&database).await, ["run_lost"]);
    assert_eq!(bind(&database, "run_other").await, KeyBinding::Queued("run_lost".into()));
    database.close().await;
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_queues_a_lost_run() {
    let server = server!();
    let database = fresh(server).await;
    bind(&database, "run_lost").await;
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let queue = database.queue();
            tokio::spawn(async move { queue.enqueue(&request()).await.unwrap() })
        })
        .collect();
    let mut new = 0;
    for put in asking {
        let put = put.await.unwrap();
        assert_eq!(put.run.as_str(), "run_lost");
        new += u32::from(put.is_new);
    }
    assert_eq!((new, queued(&database).await.len()), (1, 1));
    database.close().await;
}

/// Spec: J2w. A run that has a record is not started again by the queue.
#[tokio::test(flavor = "multi_thread")]
async fn begun_run_of_a_key_is_not_queued() {
    let server = server!();
    let database = fresh(server).await;
    bind(&database, "run_1").await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let writer = begin(&log, "run_1", "s").await;
    let put = database.queue().enqueue(&request()).await.unwrap();
    assert_eq!((put.run.as_str(), put.is_new), ("run_1", false));
    assert!(queued(&database).await.is_empty());
    drop(writer);
    database.close().await;
}

/// Spec: J2w, S10. What a key stands for is done once, also when its record was removed.
#[tokio::test(flavor = "multi_thread")]
async fn removed_run_of_a_key_stays_removed() {
    let server = server!();
    for way in ["prune", "delete", "forget"] {
        let database = fresh(server).await;
        bind(&database, "run_1").await;
        over_on(&database, 0, "run_1", started("s")).await;
        match way {
            "prune" => drop(database.prune_runs(Duration::ZERO, &[], SystemClock.now()).await),
            "delete" => drop(database.delete_run(&"run_1".into()).await),
            _ => drop(database.forget_session(&"s".into(), "ann", false, at(9)).await),
        }
        assert!(database.log().summary(&"run_1".into()).await.unwrap().is_none(), "{way}");
        assert_eq!(bind(&database, "run_2").await, KeyBinding::Removed("run_1".into()), "{way}");
        let put = database.queue().enqueue(&request()).await.unwrap();
        assert_eq!((put.run.as_str(), put.is_new), ("run_1", false), "{way}");
        assert!(queued(&database).await.is_empty(), "{way}");
        database.close().await;
    }
}

/// Spec: J2w, S10. A run of a forgotten session that no worker has started is not queued again.
#[tokio::test(flavor = "multi_thread")]
async fn forgotten_queued_run_stays_removed() {
    let server = server!();
    let database = fresh(server).await;
    over_on(&database, 0, "run_1", started("s")).await;
    let request = request().session("s");
    let put = database.queue().enqueue(&request).await.unwrap();
    database.forget_session(&"s".into(), "ann", false, at(9)).await.unwrap();
    let again = database.queue().enqueue(&request).await.unwrap();
    assert_eq!((again.run, again.is_new), (put.run, false));
    assert!(queued(&database).await.is_empty());

    // A session without a started run is a session too.
    let request = self::request().session("s-2").key("k-2");
    let put = database.queue().enqueue(&request).await.unwrap();
    let planned = plan_forget(&database, &"s-2".into(), false, at(9)).await.unwrap();
    assert_eq!(planned.0, std::slice::from_ref(&put.run));
    let forget = async || database.forget_session(&"s-2".into(), "ann", false, at(9)).await;
    assert_eq!(forget().await.unwrap().removed.runs, [put.run]);
    assert!(queued(&database).await.is_empty());
    assert!(matches!(forget().await, Err(RemoveError::NoSession(_))));
    database.close().await;
}
