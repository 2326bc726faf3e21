//! Trees of runs that grow while others write to them or take them over.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunWriter, read_events};
use layer0::event::Warning;
use sqlx::Connection;
use tokio::task::JoinSet;

use crate::support::{
    append, begin, connection, count_waits, finished, hold_back, open, resume, server,
    started_below, until,
};

const TREES: usize = 24;
const CHILDREN: usize = 12;

/// Starts and ends child runs of a root, with appends to the root in between.
async fn grow(log: Arc<dyn EventLog>, tree: usize) {
    let (name, session) = (format!("run_{tree}"), format!("s-{tree}"));
    let mut root = begin(&log, &name, &session).await;
    for child in 0..CHILDREN {
        let run = format!("{name}_{child}");
        let first = started_below(&session, &run, &name);
        let mut below = RunWriter::new(Arc::clone(&log), run.into());
        let (begun, noted) =
            tokio::join!(append(&mut below, first), append(&mut root, Warning::new("x").into()));
        begun.unwrap();
        noted.unwrap();
        append(&mut below, finished()).await.unwrap();
    }
    append(&mut root, finished()).await.unwrap();
}

/// Spec: J2. Runs begin below others while those are written to, and no transaction waits for one that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn trees_grow_without_a_deadlock() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut growing = JoinSet::new();
    for tree in 0..TREES {
        growing.spawn(grow(Arc::clone(&log), tree));
    }
    growing.join_all().await;
    for tree in 0..TREES {
        let (summary, events) = read_events(&*log, &format!("run_{tree}").into()).await.unwrap();
        assert_eq!((summary.last_seq, events.len()), (CHILDREN as u64 + 2, CHILDREN + 2));
    }
    let mut looking = connection(&url).await;
    let deadlocks: i64 = sqlx::query_scalar(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&mut looking)
    .await
    .unwrap();
    assert_eq!(deadlocks, 0);
    looking.close().await.unwrap();
    database.close().await;
}

/// Spec: J2, D8. The first append of a child and a takeover of its tree come one after the other: its writer is refused
/// from the takeover on.
#[tokio::test(flavor = "multi_thread")]
async fn beginning_child_is_taken_over_too() {
    let server = server!();
    let url = server.database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let _root = begin(&log, "run_1", "s").await;
    let holding = hold_back(&url, "run_below").await;
    let mut child = RunWriter::new(Arc::clone(&log), "run_below".into());
    let beginning = tokio::spawn(async move {
        let begun = append(&mut child, started_below("s", "run_below", "run_1")).await;
        (child, begun)
    });
    let mut sql = connection(&url).await;
    until("the child begins", async || count_waits(&mut sql).await == 1).await;
    // The other process finds that this one is dead.
    let dead = "DELETE FROM backstop.processes";
    sqlx::raw_sql(dead).execute(&mut sql).await.unwrap();
    let other: Arc<dyn EventLog> = Arc::new(two.log());
    let taking = tokio::spawn(async move { resume(&other, "run_1").await });
    until("the takeover waits or is over", async || {
        taking.is_finished() || count_waits(&mut sql).await == 2
    })
    .await;
    holding.close().await.unwrap();
    let (mut child, begun) = beginning.await.unwrap();
    let _root = taking.await.unwrap();
    if begun.is_ok() {
        let refused = append(&mut child, Warning::new("x").into()).await;
        assert!(refused.is_err(), "the tree is another's: {refused:?}");
    }
    let owned: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM backstop.runs WHERE run = 'run_below' AND owner IS NOT NULL",
    )
    .fetch_one(&mut sql)
    .await
    .unwrap();
    assert_eq!(owned, 0, "nobody writes to it now");
}
