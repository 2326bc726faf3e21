//! Runs that no worker resumes.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunWriter, segment_id};
use backstop_store_postgres::{Database, Enqueue, WorkerRow};
use layer0::JsonText;
use layer0::event::{AgentRecord, ErrorStored, RunResumed, SubscriptionOpened};
use layer0::operator::Task;

use crate::support::{append, at, begin, open, server};

/// Starts a run in a process that ends without ending the run.
async fn leave(url: &str, run: &str) {
    let database = open(url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, run, run).await;
    append(&mut writer, ErrorStored::new("err_1", "c1", "sql", 1, 0).into()).await.unwrap();
    database.close().await;
}

async fn stranded(database: &Database) -> Vec<String> {
    let stranded = database.queue().list_stranded().await.unwrap();
    stranded.iter().map(|one| one.run.to_string()).collect()
}

/// A worker with the agent of these runs, by its definition.
fn worker(digest: &str) -> WorkerRow {
    WorkerRow::new(vec![("demo".to_owned(), digest.to_owned())], Vec::new())
}

/// Spec: J2w. Only the agent of a live worker counts; since the first worker, every run that is open does.
#[tokio::test(flavor = "multi_thread")]
async fn runs_are_stranded_where_workers_were_announced() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    leave(&url, "run_1").await;
    assert!(stranded(&database).await.is_empty(), "no worker was announced");

    let process = open(&url).await;
    process.queue().announce(&worker("another")).await.unwrap();
    let found = database.queue().list_stranded().await.unwrap().remove(0);
    assert_eq!((found.run.as_str(), &*found.agent), ("run_1", "demo"));
    assert_eq!(found.digest.as_deref(), Some("d"));
    assert_eq!((found.started_at, found.since), (at(0), at(1)), "since its last event");
    process.queue().announce(&worker("d")).await.unwrap();
    assert!(stranded(&database).await.is_empty());
    process.queue().announce(&worker("another").adopts(true)).await.unwrap();
    assert!(stranded(&database).await.is_empty());
    process.close().await;
    assert_eq!(stranded(&database).await, ["run_1"], "the worker is gone");
    database.close().await;
}

/// Spec: J2w. A run that went on with another definition is that one's from then on.
#[tokio::test(flavor = "multi_thread")]
async fn adopted_run_is_of_its_new_definition() {
    let server = server!();
    let url = server.database().await;
    let (database, process) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(process.log());
    let mut writer = begin(&log, "run_1", "s").await;
    let agent = AgentRecord::new("demo", "d2", JsonText::default());
    append(&mut writer, RunResumed::new("ops").adopting(agent).into()).await.unwrap();
    process.close().await;
    let process = open(&url).await;
    process.queue().announce(&worker("d")).await.unwrap();
    let found = database.queue().list_stranded().await.unwrap().remove(0);
    assert_eq!((found.run.as_str(), found.digest.as_deref()), ("run_1", Some("d2")));
    process.queue().announce(&worker("d2")).await.unwrap();
    assert!(stranded(&database).await.is_empty());
    process.close().await;
    database.close().await;
}

/// Spec: J2w
#[tokio::test(flavor = "multi_thread")]
async fn queued_run_is_stranded_without_any_worker() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let queued = database.queue().enqueue(&Enqueue::new("demo", Task::text("go"))).await.unwrap();
    assert!(stranded(&database).await.is_empty(), "it has not begun");
    leave(&url, "run_1").await;
    leave(&url, queued.run.as_str()).await;
    assert_eq!(stranded(&database).await, [queued.run.to_string()]);
    database.close().await;
}

/// Spec: D4, J2w. A worker that stops hands its runs back; one that nothing goes on with by itself is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn run_handed_back_is_not_interrupted() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let queued = database.queue().enqueue(&Enqueue::new("demo", Task::text("go"))).await.unwrap();
    leave(&url, "run_1").await;
    leave(&url, queued.run.as_str()).await;
    let interrupted = database.interrupted_runs().await.unwrap();
    let interrupted: Vec<&str> = interrupted.keys().map(|run| run.as_str()).collect();
    assert_eq!(interrupted, ["run_1"]);
    database.close().await;
}

/// Spec: J2w. A run that a process has is its own, and the record of a subscription is no run.
#[tokio::test(flavor = "multi_thread")]
async fn claimed_runs_and_segments_are_not_stranded() {
    let server = server!();
    let url = server.database().await;
    let (database, process) = (open(&url).await, open(&url).await);
    database.queue().announce(&worker("another")).await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(process.log());
    let _writer = begin(&log, "run_1", "s-1").await;
    let mut segment = RunWriter::new(log, segment_id("tell", 1));
    append(&mut segment, SubscriptionOpened::new("tell", "run.failed").into()).await.unwrap();
    assert!(stranded(&database).await.is_empty(), "a process has it");
    process.close().await;
    assert_eq!(stranded(&database).await, ["run_1"]);
    database.close().await;
}
