//! Pruning of runs.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{
    EventLog, Moves, RunFilter, RunState, RunWriter, Runs, read_events, segment_id,
};
use backstop_retention::StoreRetention;
use backstop_store_postgres::{Database, Options};
use layer0::code;
use layer0::event::{EventKind, RunFailed, SubscriptionOpened};
use layer0::id::RunId;
use layer0::usage::Usage;

use crate::support::{
    DAY, append_at, at, following, fresh, names, over_on, server, started, until,
};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Starts a run on a day.
async fn begin_on(database: &Database, day: i64, run: &str, first: EventKind) -> RunWriter {
    let mut writer = RunWriter::new(Arc::new(database.log()), run.into());
    append_at(&mut writer, day * DAY, vec![first]).await;
    writer
}

fn dispatched(session: &str, caller: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    first.parent = Some(caller.into());
    first.into()
}

async fn keeping_a_week(url: &str) -> Database {
    let options = Options::new(url).unwrap().connections(1);
    let options = options.retention(StoreRetention::default().runs(WEEK));
    Database::connect_with(options).await.unwrap()
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn old_runs_are_pruned_from_the_end() {
    let server = server!();
    let database = fresh(server).await;
    over_on(&database, 0, "old_1", started("a")).await;
    over_on(&database, 1, "old_2", following("a", "old_1")).await;
    over_on(&database, 0, "kept_1", started("b")).await;
    over_on(&database, 39, "kept_2", following("b", "kept_1")).await;
    let _open = begin_on(&database, 0, "open", started("c")).await;
    over_on(&database, 0, "caller", started("d")).await;
    over_on(&database, 0, "called", dispatched("d", "caller")).await;
    over_on(&database, 0, "waited_for", started("e")).await;
    let _child = begin_on(&database, 0, "child", dispatched("e", "waited_for")).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    let runs: Vec<&str> = removed.runs.iter().map(RunId::as_str).collect();
    assert_eq!(runs, ["old_2", "called", "caller", "old_1"]);
    assert_eq!(names(&database).await, ["child", "kept_1", "kept_2", "open", "waited_for"]);
    for run in ["kept_2", "kept_1"] {
        let (_, events) = read_events(&database.log(), &run.into()).await.unwrap();
        assert_eq!(events.len(), 2, "what is kept is whole");
    }
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn a_state_limits_what_is_pruned() {
    let server = server!();
    let database = fresh(server).await;
    over_on(&database, 0, "fine", started("a")).await;
    let mut bad = begin_on(&database, 0, "bad", started("b")).await;
    let failed = RunFailed::new(code::INTERNAL, Vec::new(), Usage::default());
    append_at(&mut bad, 1, vec![failed.into()]).await;
    let removed = database.prune_runs(WEEK, &[RunState::Failed], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["bad".into()]);
    assert_eq!(names(&database).await, ["fine"]);
}

/// Spec: S10, O2. A run below an operator without a record is kept with the open run at the head of its callers.
#[tokio::test(flavor = "multi_thread")]
async fn run_below_an_unrecorded_one_stays() {
    let server = server!();
    let database = fresh(server).await;
    let root = begin_on(&database, 1, "run_root", started("s")).await;
    let EventKind::RunStarted(mut below) = dispatched("s", "run_none") else { unreachable!() };
    (below.run, below.root) = (Some("run_below".into()), Some("run_root".into()));
    over_on(&database, 2, "run_below", below.into()).await;
    let kept = database.prune_runs(Duration::ZERO, &[], at(30 * DAY)).await.unwrap();
    assert_eq!((kept.runs.len(), names(&database).await.len()), (0, 2));
    drop(root);
}

/// Spec: S10. Also with one connection to do so.
#[tokio::test(flavor = "multi_thread")]
async fn run_retention_prunes_in_the_background() {
    let server = server!();
    let database = keeping_a_week(&server.database().await).await;
    over_on(&database, 0, "old", started("a")).await;
    over_on(&database, 40, "new", started("b")).await;
    until("the old run is gone", async || names(&database).await == ["new"]).await;
    database.close().await;
}

/// Spec: X4, S10. Of each subscription, the newest segment stays.
#[tokio::test(flavor = "multi_thread")]
async fn old_segments_are_pruned_whole() {
    let server = server!();
    let database = keeping_a_week(&server.database().await).await;
    for (name, number, day) in [("tell", 1, 0), ("tell", 2, 1), ("tell", 3, 38), ("idle", 1, 0)] {
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let mut writer = RunWriter::new(log, segment_id(name, number));
        writer.move_subscription(Moves::new(name, "run.failed", number));
        let opened = SubscriptionOpened::new(name, "run.failed");
        append_at(&mut writer, day * DAY, vec![opened.into()]).await;
    }
    over_on(&database, 40, "new", started("b")).await;
    let segments = async || {
        let segments = database.log().runs(RunFilter::new().segments()).await.unwrap();
        let mut names: Vec<String> = segments.iter().map(|one| one.run.to_string()).collect();
        names.sort();
        names
    };
    until("old segments are gone", async || segments().await.len() < 3).await;
    assert_eq!(segments().await, ["sub_idle.1", "sub_tell.3"]);
    assert_eq!(names(&database).await, ["new"]);
    database.close().await;
}
