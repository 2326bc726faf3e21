//! Many trees of runs that one process writes concurrently.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunWriter, read_events};
use layer0::event::{EventKind, Warning};
use sqlx::Connection;
use tokio::task::JoinSet;

use crate::support::{append, begin, connection, finished, open, server, started};

const TREES: usize = 24;
const CHILDREN: usize = 12;

/// Starts and ends child runs of a root, with appends to the root in between.
async fn grow(log: Arc<dyn EventLog>, tree: usize) {
    let (name, session) = (format!("run_{tree}"), format!("s-{tree}"));
    let mut root = begin(&log, &name, &session).await;
    for child in 0..CHILDREN {
        let EventKind::RunStarted(mut first) = started(&session) else { unreachable!() };
        let run = format!("{name}_{child}");
        (first.run, first.depth) = (Some((&*run).into()), 1);
        (first.root, first.parent) = (Some((&*name).into()), Some((&*name).into()));
        let mut below = RunWriter::new(Arc::clone(&log), run.into());
        let (begun, noted) = tokio::join!(
            append(&mut below, first.into()),
            append(&mut root, Warning::new("x").into())
        );
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
