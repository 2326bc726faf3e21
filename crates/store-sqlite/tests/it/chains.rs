//! Retention of connected runs across pages.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunWriter};
use backstop_store_sqlite::Database;
use layer0::event::{EventKind, RunForked};

use crate::removal::{DAY, WEEK, append, begin, dispatched, following, names};
use crate::retention::finished;
use crate::{at, started};

/// More runs than a page.
const MANY: i64 = 520;

/// A run that started on one day and ended on another.
async fn ended(database: &Database, days: (i64, i64), run: &str, first: EventKind) {
    let mut writer = begin(database, days.0, run, first).await;
    append(&mut writer, days.1 * DAY + 1, vec![finished()]).await;
}

/// The runs of a session, one after the other.
async fn chain(database: &Database, session: &str) {
    for number in 0..MANY {
        let earlier = format!("{session}_{}", number - 1);
        let first = match number {
            0 => started(session),
            _ => following(session, &earlier),
        };
        let mut writer = begin(database, 0, &format!("{session}_{number}"), first).await;
        append(&mut writer, number, vec![finished()]).await;
    }
}

/// Spec: S10
#[tokio::test]
async fn chain_beyond_a_page_goes_whole_or_not() {
    let database = Database::in_memory().await.unwrap();
    for session in ["gone", "kept"] {
        chain(&database, session).await;
    }
    // The child run of the first one is as far from the open run as possible.
    ended(&database, (0, 0), "kept_below", dispatched("below", "kept_0")).await;
    let last = format!("kept_{}", MANY - 1);
    let open = begin(&database, 1, "open", following("kept", &last)).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(i64::try_from(removed.runs.len()).unwrap(), MANY);
    assert!(removed.runs.iter().all(|run| run.as_str().starts_with("gone_")));
    assert_eq!(i64::try_from(names(&database).await.len()).unwrap(), MANY + 2);
    drop(open);
}

/// Spec: S10, D7. A copy follows what the run that it was copied from follows, in another session.
#[tokio::test]
async fn open_copy_keeps_what_it_follows() {
    let database = Database::in_memory().await.unwrap();
    ended(&database, (0, 0), "run_1", started("a")).await;
    ended(&database, (0, 0), "below", dispatched("below", "run_1")).await;
    ended(&database, (1, 1), "run_2", following("a", "run_1")).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut copy = RunWriter::new(log, "copy".into());
    let forked = RunForked::new("copy", "b", "run_2", 1);
    append(&mut copy, DAY, vec![following("a", "run_1"), forked.into()]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["run_2".into()]);
    append(&mut copy, 2 * DAY, vec![finished()]).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["copy".into(), "below".into(), "run_1".into()]);
}

/// Spec: S10. The root of a tree says when it is old, also where a run below it began and ended later.
#[tokio::test]
async fn tree_goes_when_its_root_is_old() {
    let database = Database::in_memory().await.unwrap();
    for (session, ends) in [("old", 0), ("young", 39)] {
        let root = format!("{session}_root");
        ended(&database, (0, ends), &root, started(session)).await;
        let below = format!("{session}_below");
        ended(&database, (39 - ends, 39 - ends), &below, dispatched(session, &root)).await;
    }
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["old_below".into(), "old_root".into()]);
    assert_eq!(names(&database).await, ["young_below", "young_root"]);
}
