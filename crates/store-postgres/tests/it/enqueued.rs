//! Answers of the queue about its runs.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_store_postgres::{Database, Enqueue, QueueError};
use layer0::operator::Task;
use serde_json::{Value, json};

use crate::support::{append, begin, finished, fresh, open, over_on, server, started};

async fn put(database: &Database, request: &Enqueue) -> (String, String, bool) {
    let put = database.queue().enqueue(request).await.unwrap();
    (put.run.to_string(), put.queue, put.is_new)
}

fn request() -> Enqueue {
    Enqueue::new("demo", Task::text("go"))
}

/// Spec: J2w. A key that stands for a run in another queue is answered with that queue.
#[tokio::test(flavor = "multi_thread")]
async fn queue_of_the_run_is_answered() {
    let server = server!();
    let database = fresh(server).await;
    let (run, _, _) = put(&database, &request().key("k").queue("slow")).await;
    let again = request().key("k").queue("fast");
    assert_eq!(put(&database, &again).await, (run.clone(), "slow".to_owned(), false));
    // Also once it has started.
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, &run, "s").await;
    assert_eq!(put(&database, &again).await, (run.clone(), "slow".to_owned(), false));
    // It is in no queue after the cleanup.
    append(&mut writer, finished()).await.unwrap();
    database.queue().clean().await.unwrap();
    assert_eq!(put(&database, &again).await, (run, "fast".to_owned(), false));
    database.close().await;
}

/// Spec: J2w. Runs that are over, and those that are in no queue, are not found.
#[tokio::test(flavor = "multi_thread")]
async fn queued_runs_are_found_by_a_prefix() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(put(&database, &request()).await.0);
    }
    runs.sort();
    let find = async |prefix: &str, most| {
        let found = database.queue().find(prefix, most).await.unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(find("run_", 9).await, runs);
    assert_eq!(find("run_", 2).await, runs[..2]);
    assert_eq!(find(&runs[1], 2).await, runs[1..2]);
    assert!(find("run%", 9).await.is_empty());
    over_on(&database, 0, &runs[0], started("s")).await;
    over_on(&database, 0, "run_other", started("other")).await;
    // The run is in the queue although it has ended; the next cleanup removes it.
    let row = "INSERT INTO backstop.queue (run, queue, agent, session, not_before, queued_at, task) \
        VALUES ('run_other', 'q', 'a', 's', 0, 0, '')";
    server.execute_in(url.rsplit('/').next().unwrap(), row).await;
    assert_eq!(find("run_", 9).await, runs[1..]);
    database.close().await;
}

/// Spec: J2w. What is wrong with the task is not told of the key.
#[tokio::test(flavor = "multi_thread")]
async fn deep_task_is_told_from_a_bad_key() {
    let server = server!();
    let database = fresh(server).await;
    let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
    let deep = Enqueue::new("demo", Task::json(deep));
    let refused = async |request: Enqueue| {
        let error = database.queue().enqueue(&request).await.unwrap_err();
        assert!(matches!(error, QueueError::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let said = "cannot be put into the queue: task: it is nested deeper than";
    for request in [deep.clone(), deep.key("k")] {
        let error = refused(request).await;
        assert!(error.starts_with(said), "{error}");
    }
    let error = refused(request().key("")).await;
    assert_eq!(error, "cannot be put into the queue: key: a key has 1 to 256 bytes");
    database.close().await;
}
