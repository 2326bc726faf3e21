//! What the queue holds, and who takes from it.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_store_postgres::{Database, Enqueue, QueueLimit, Refusal, UnservedQueue, WorkerRow};
use layer0::operator::Task;

use crate::support::{begin, open, server};

fn asking(agent: &str, queue: &str) -> Enqueue {
    Enqueue::new(agent, Task::text("go")).queue(queue)
}

async fn unserved(database: &Database) -> Vec<(String, Option<String>, u64, u64)> {
    let unserved = database.queue().unserved().await.unwrap();
    let told = |it: UnservedQueue| (it.queue, it.agent, it.runs, it.workers);
    unserved.into_iter().map(told).collect()
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn waiting_runs_of_no_worker_are_unserved() {
    let server = server!();
    let url = server.database().await;
    let (database, process) = (open(&url).await, open(&url).await);
    let queue = database.queue();
    assert!(unserved(&database).await.is_empty());
    let mut put = Vec::new();
    for (agent, name) in [("demo", "mail"), ("demo", "mail"), ("other", "mail"), ("demo", "post")] {
        put.push(queue.enqueue(&asking(agent, name)).await.unwrap().run);
    }
    let of = |name: &str, agent: Option<&str>, runs, workers| {
        (name.to_owned(), agent.map(ToOwned::to_owned), runs, workers)
    };
    assert_eq!(unserved(&database).await, [of("mail", None, 3, 0), of("post", None, 1, 0)]);

    let worker = |agent: &str, queues: &[&str]| {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        WorkerRow::new(vec![(agent.to_owned(), "d".to_owned())], queues)
    };
    process.queue().announce(&worker("demo", &["mail", "more"])).await.unwrap();
    let left = [of("mail", Some("other"), 1, 1), of("post", None, 1, 1)];
    assert_eq!(unserved(&database).await, left);
    assert_eq!(queue.unserved_by("mail", "demo").await.unwrap(), None);
    let by_name = queue.unserved_by("mail", "other").await.unwrap().unwrap();
    assert_eq!((by_name.agent.as_deref(), by_name.workers), (Some("other"), 1));
    let by_queue = queue.unserved_by("none", "demo").await.unwrap().unwrap();
    assert_eq!((by_queue.agent, by_queue.workers), (None, 1));

    // One that has begun, and one that was refused, wait for no worker.
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let _writer = begin(&log, put[3].as_str(), "s").await;
    queue.take(&[QueueLimit::new("mail")], &["demo"], 1, &[]).await.unwrap();
    queue.refuse(&put[0], &Refusal::new("input.invalid", "no")).await.unwrap();
    assert_eq!(unserved(&database).await, left[..1]);
    process.close().await;
    assert_eq!(unserved(&database).await, [of("mail", None, 2, 0)], "the worker is gone");
    database.close().await;
}
