//! Retention of connected runs across pages.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{EventLog, RunWriter};
use backstop_store_postgres::Database;
use layer0::event::{EventKind, RunForked};

use crate::support::{
    DAY, append_at, at, finished, following, fresh, names, over_on, server, started,
};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// More runs than a page.
const MANY: i64 = 520;

/// The first event of a child run.
fn dispatched(session: &str, run: &str, root: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!("a run starts") };
    first.run = Some(run.into());
    (first.parent, first.root) = (Some(root.into()), Some(root.into()));
    first.into()
}

/// A tree: its root started on the first day and ended on another; its child run started and ended on a third.
async fn tree(database: &Database, session: &str, root: (&str, i64), below: (&str, i64)) {
    let mut writer = RunWriter::new(Arc::new(database.log()), root.0.into());
    append_at(&mut writer, 0, vec![started(session)]).await;
    over_on(database, below.1, below.0, dispatched(session, below.0, root.0)).await;
    append_at(&mut writer, root.1 * DAY, vec![finished()]).await;
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn chain_beyond_a_page_goes_whole_or_not() {
    let server = server!();
    let database = fresh(server).await;
    for session in ["gone", "kept"] {
        // The child run of the first one is as far from the last one as possible.
        let below = format!("{session}_below");
        tree(&database, session, (&format!("{session}_0"), 0), (&below, 0)).await;
        for number in 1..MANY {
            let earlier = format!("{session}_{}", number - 1);
            let first = following(session, &earlier);
            over_on(&database, 0, &format!("{session}_{number}"), first).await;
        }
    }
    let mut open = RunWriter::new(Arc::new(database.log()), "open".into());
    let last = format!("kept_{}", MANY - 1);
    append_at(&mut open, DAY, vec![following("kept", &last)]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(i64::try_from(removed.runs.len()).unwrap(), MANY + 1);
    assert!(removed.runs.iter().all(|run| run.as_str().starts_with("gone_")));
    assert_eq!(i64::try_from(names(&database).await.len()).unwrap(), MANY + 2);
    drop(open);
    database.close().await;
}

/// Spec: S10, D7. A copy follows what the run that it was copied from follows, in another session.
#[tokio::test(flavor = "multi_thread")]
async fn open_copy_keeps_what_it_follows() {
    let server = server!();
    let database = fresh(server).await;
    tree(&database, "a", ("run_1", 0), ("below", 0)).await;
    over_on(&database, 1, "run_2", following("a", "run_1")).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut copy = RunWriter::new(log, "copy".into());
    let forked = RunForked::new("copy", "b", "run_2", 1);
    append_at(&mut copy, DAY, vec![following("a", "run_1"), forked.into()]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["run_2".into()]);
    append_at(&mut copy, 2 * DAY, vec![finished()]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["copy".into(), "below".into(), "run_1".into()]);
    database.close().await;
}

/// Spec: S10. The root of a tree says when it is old, also where a run below it began and ended later.
#[tokio::test(flavor = "multi_thread")]
async fn tree_goes_when_its_root_is_old() {
    let server = server!();
    let database = fresh(server).await;
    tree(&database, "old", ("old_root", 0), ("old_below", 39)).await;
    tree(&database, "young", ("young_root", 39), ("young_below", 0)).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["old_below".into(), "old_root".into()]);
    assert_eq!(names(&database).await, ["young_below", "young_root"]);
    database.close().await;
}

/// Spec: S10, O2. A run below an operator without a record is kept with the open run at the head of its callers.
#[tokio::test(flavor = "multi_thread")]
async fn run_below_an_unrecorded_one_stays() {
    let server = server!();
    let database = fresh(server).await;
    let mut root = RunWriter::new(Arc::new(database.log()), "root".into());
    append_at(&mut root, 0, vec![started("s")]).await;
    let EventKind::RunStarted(mut first) = dispatched("s", "below", "root") else { unreachable!() };
    first.parent = Some("unrecorded".into());
    over_on(&database, 0, "below", first.into()).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert!(removed.runs.is_empty(), "{removed:?}");
    append_at(&mut root, 1, vec![finished()]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["below".into(), "root".into()]);
    database.close().await;
}
