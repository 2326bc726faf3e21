//! What the queue says of the runs that are in it.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_store_postgres::{Database, Enqueue};
use layer0::operator::Task;

use crate::support::{append, begin, finished, fresh, server};

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
    // Also once it has begun.
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, &run, "s").await;
    assert_eq!(put(&database, &again).await, (run.clone(), "slow".to_owned(), false));
    // It is in no queue once that is cleaned.
    append(&mut writer, finished()).await.unwrap();
    database.queue().clean().await.unwrap();
    assert_eq!(put(&database, &again).await, (run, "fast".to_owned(), false));
    database.close().await;
}
