//! Removal of runs and sessions, and backups.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{ErrorStore, Lookup};
use backstop_event_log::{
    EventLog, Log, Moves, RunFilter, RunState, RunWriter, Runs, Seed, read_events, segment_id,
};
use backstop_retention::{RemoveError, StoreRetention};
use backstop_store_sqlite::{BackupError, Database, Durability};
use layer0::code;
use layer0::event::{
    Actor, EventKind, Follows, Hash, RunFailed, RunForked, SubscriptionOpened, Warning,
};
use layer0::id::RunId;

use crate::retention::finished;
use crate::{Folder, at, error, error_at, open, started};

pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) async fn append(writer: &mut RunWriter, ms: i64, kinds: Vec<EventKind>) {
    for kind in kinds {
        writer.stage(&Seed::new("test"), at(ms), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// Starts a run on a day.
pub(crate) async fn begin(database: &Database, day: i64, run: &str, first: EventKind) -> RunWriter {
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = RunWriter::new(log, run.into());
    append(&mut writer, day * DAY, vec![first]).await;
    writer
}

/// A run that started and ended on a day.
pub(crate) async fn over(database: &Database, day: i64, run: &str, first: EventKind) {
    let mut writer = begin(database, day, run, first).await;
    let noise = || Warning::new("secret words ".repeat(20)).into();
    append(&mut writer, day * DAY + 1, (0..200).map(|_| noise()).collect()).await;
    append(&mut writer, day * DAY + 2, vec![finished()]).await;
}

pub(crate) fn following(session: &str, earlier: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    first.follows = Some(Box::new(Follows::new(earlier, 1, Hash::default(), 1)));
    first.into()
}

pub(crate) fn dispatched(session: &str, caller: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    first.parent = Some(caller.into());
    first.into()
}

pub(crate) async fn names(database: &Database) -> Vec<String> {
    let runs = database.log().runs(RunFilter::default()).await.unwrap();
    runs.iter().map(|run| run.run.to_string()).collect()
}

/// Spec: S10
#[tokio::test]
async fn old_runs_are_pruned_from_the_end() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "old_1", started("a")).await;
    over(&database, 1, "old_2", following("a", "old_1")).await;
    over(&database, 0, "kept_1", started("b")).await;
    over(&database, 39, "kept_2", following("b", "kept_1")).await;
    let _open = begin(&database, 0, "open", started("c")).await;
    over(&database, 0, "caller", started("d")).await;
    over(&database, 0, "called", dispatched("d", "caller")).await;
    over(&database, 0, "waited_for", started("e")).await;
    let _child = begin(&database, 0, "child", dispatched("e", "waited_for")).await;
    let removed = database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    let runs: Vec<&str> = removed.runs.iter().map(RunId::as_str).collect();
    assert_eq!(runs, ["old_2", "called", "caller", "old_1"]);
    assert_eq!(names(&database).await, ["kept_2", "child", "waited_for", "open", "kept_1"]);
    for run in ["kept_2", "kept_1"] {
        let (_, events) = read_events(&database.log(), &run.into()).await.unwrap();
        assert_eq!(events.len(), 202, "what is kept is whole");
    }
    // Numbers are not reused, so that a new run cannot be confused with a removed one.
    over(&database, 41, "new", started("f")).await;
    read_events(&database.log(), &"new".into()).await.unwrap();
}

/// Spec: S10
#[tokio::test]
async fn a_state_limits_what_is_pruned() {
    let database = Database::in_memory().await.unwrap();
    over(&database, 0, "fine", started("a")).await;
    let mut bad = begin(&database, 0, "bad", started("b")).await;
    let failed = RunFailed::new(code::INTERNAL, Vec::new(), layer0::usage::Usage::default());
    append(&mut bad, 1, vec![failed.into()]).await;
    let removed = database.prune_runs(WEEK, &[RunState::Failed], at(40 * DAY)).await.unwrap();
    assert_eq!(removed.runs, ["bad".into()]);
    assert_eq!(names(&database).await, ["fine"]);
}

/// Spec: S10
#[tokio::test]
async fn a_pruned_run_takes_its_errors_with_it() {
    let database = Database::in_memory().await.unwrap();
    over(&database, 0, "run_1", started("s-1")).await;
    let own = database.errors().store(error("s-1", "c", "own")).await.unwrap();
    let removed = database.delete_run(&"run_1".into()).await.unwrap();
    assert_eq!((removed.runs.len(), removed.errors, removed.results), (1, 1, 0));
    assert_eq!(database.errors().find(&own.id).await.unwrap(), Lookup::Expired);
    assert!(database.errors().stats(None).await.unwrap().is_empty());
}

/// Spec: S10
#[tokio::test]
async fn a_run_that_is_needed_is_not_deleted() {
    let database = Database::in_memory().await.unwrap();
    over(&database, 0, "one", started("a")).await;
    over(&database, 1, "two", following("a", "one")).await;
    let _open = begin(&database, 2, "three", following("a", "two")).await;
    over(&database, 2, "child", dispatched("a", "three")).await;
    let refused = async |run: &str| database.delete_run(&run.into()).await.unwrap_err();
    assert!(
        matches!(refused("one").await, RemoveError::Followed { by, .. } if *"two" == *by.as_str())
    );
    assert!(matches!(refused("three").await, RemoveError::Open(_)));
    assert!(matches!(refused("child").await, RemoveError::Dispatched { .. }));
    assert!(matches!(refused("none").await, RemoveError::NoRun(_)));
    assert_eq!(names(&database).await.len(), 4);
}

/// Spec: S10. Nothing of a forgotten session is left in the file, but that it was there.
#[tokio::test]
async fn a_forgotten_session_leaves_a_tombstone() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "run_1", started("s-1")).await;
    over(&database, 1, "run_2", following("s-1", "run_1")).await;
    over(&database, 1, "other", started("s-2")).await;
    let secret = "a very private matter";
    let stored = database.errors().store(error("s-1", "c", secret)).await.unwrap();
    let head = database.log().summary(&"run_2".into()).await.unwrap().unwrap().head;
    let now = at(9 * DAY);
    let session = "s-1".into();
    let forgotten = database.forget_session(&session, "ann", false, now).await.unwrap();
    let runs: Vec<&str> = forgotten.removed.runs.iter().map(RunId::as_str).collect();
    assert_eq!((runs, forgotten.removed.errors), (vec!["run_2", "run_1"], 1));
    assert!(forgotten.forks.is_empty());
    assert_eq!(names(&database).await, ["other"]);
    assert_eq!(database.errors().find(&stored.id).await.unwrap(), Lookup::Missing);
    let tombstone = database.tombstone(&"run_2".into()).await.unwrap().unwrap();
    assert_eq!((tombstone.head, tombstone.at, &*tombstone.by), (head, now, "ann"));
    let again = database.forget_session(&session, "ann", false, now).await;
    assert!(matches!(again, Err(RemoveError::NoSession(_))), "{again:?}");
    database.close().await;
    let bytes = std::fs::read(folder.file()).unwrap();
    assert!(!bytes.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()));
}

/// Spec: S10
#[tokio::test]
async fn copies_of_a_forgotten_session_are_named() {
    for with_forks in [false, true] {
        let database = Database::in_memory().await.unwrap();
        over(&database, 0, "run_1", started("s-1")).await;
        let stored = database.errors().store(error_at(0, "s-1", "c", "boom")).await.unwrap();
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let mut copy = RunWriter::new(log, "run_2".into());
        let forked = RunForked::new("run_2", "s-1", "run_1", 1);
        append(&mut copy, DAY + 1, vec![started("s-1"), forked.into()]).await;
        let forget =
            async || database.forget_session(&"s-1".into(), "ann", with_forks, at(DAY)).await;
        if with_forks {
            assert!(matches!(forget().await, Err(RemoveError::Open(_))), "never an open one");
        }
        append(&mut copy, DAY + 2, vec![finished()]).await;
        let forgotten = forget().await.unwrap();
        let forks: Vec<&str> = forgotten.forks.iter().map(|fork| fork.run.as_str()).collect();
        let left = names(&database).await;
        let found = database.errors().find(&stored.id).await.unwrap();
        if with_forks {
            assert_eq!((forks.len(), left.len(), found), (0, 0, Lookup::Missing));
        } else {
            assert_eq!((forks, left), (vec!["run_2"], vec!["run_2".to_owned()]));
            assert_eq!(found, Lookup::Expired, "the copy still refers to it");
        }
    }
}

/// Spec: S10. Both shapes of `run.started` are known.
#[tokio::test]
async fn run_retention_prunes_in_the_background() {
    let folder = Folder::new();
    let retention = StoreRetention::default().runs(WEEK);
    let database =
        Database::open_keeping(folder.file(), Durability::Normal, retention).await.unwrap();
    over(&database, 0, "old", started("a")).await;
    over(&database, 40, "new", started("b")).await;
    for _ in 0..100_000 {
        if names(&database).await == ["new"] {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(names(&database).await, ["new"]);
    database.close().await;
}

/// Spec: X4, S10. Of each subscription, the newest segment stays.
#[tokio::test]
async fn old_segments_are_pruned_whole() {
    let folder = Folder::new();
    let retention = StoreRetention::default().runs(WEEK);
    let database =
        Database::open_keeping(folder.file(), Durability::Normal, retention).await.unwrap();
    for (name, number, day) in [("tell", 1, 0), ("tell", 2, 1), ("tell", 3, 38), ("idle", 1, 0)] {
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let mut writer = RunWriter::new(log, segment_id(name, number));
        writer.move_subscription(Moves::new(name, "run.failed", number));
        let opened = SubscriptionOpened::new(name, "run.failed");
        append(&mut writer, day * DAY, vec![opened.into()]).await;
    }
    over(&database, 40, "new", started("b")).await;
    let segments = async || {
        let segments = database.log().runs(RunFilter::new().segments()).await.unwrap();
        let mut names: Vec<String> = segments.iter().map(|one| one.run.to_string()).collect();
        names.sort();
        names
    };
    for _ in 0..100_000 {
        if segments().await.len() < 3 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(segments().await, ["sub_idle.1", "sub_tell.3"]);
    assert_eq!(names(&database).await, ["new"]);
    database.close().await;
}

/// Spec: C2
#[tokio::test]
async fn a_backup_is_whole_while_others_write() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "run_1", started("a")).await;
    let mut open_run = begin(&database, 1, "run_2", started("b")).await;
    let file = folder.0.path().join("copy.db");
    let reader = Database::open_read_only(folder.file()).await.unwrap();
    let end = append(&mut open_run, DAY, vec![finished()]);
    let (copied, ()) = futures_util::future::join(reader.backup(&file), end).await;
    assert_eq!(copied.unwrap(), std::fs::metadata(&file).unwrap().len());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let refused = database.backup(&file).await;
    assert!(matches!(refused, Err(BackupError::Exists(_))), "{refused:?}");
    let refused = database.backup(folder.file()).await;
    assert!(matches!(refused, Err(BackupError::Exists(_))), "{refused:?}");
    let copy = open(&file).await;
    read_events(&copy.log(), &"run_1".into()).await.unwrap();
    read_events(&copy.log(), &"run_2".into()).await.unwrap();
    copy.close().await;
    let names = folder.names();
    assert!(names.iter().all(|name| !name.starts_with(".tmp")), "{names:?}");
}

/// Spec: C2
#[tokio::test]
async fn vacuum_gives_room_back() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    for day in 0..10 {
        over(&database, day, &format!("run_{day}"), started(&format!("s-{day}"))).await;
    }
    database.prune_runs(WEEK, &[], at(90 * DAY)).await.unwrap();
    let vacuumed = database.vacuum().await.unwrap();
    assert!(vacuumed.after < vacuumed.before / 2, "{vacuumed:?}");
    over(&database, 91, "new", started("new")).await;
    read_events(&database.log(), &"new".into()).await.unwrap();
}

/// Spec: D15, S10. What a run was filed under goes with it, so that no later run is found by it.
#[tokio::test]
async fn a_removed_run_leaves_no_label() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    for (run, tenant) in [("run_1", "acme"), ("run_2", "other"), ("run_3", "acme")] {
        let EventKind::RunStarted(mut first) = started(run) else { unreachable!("a run starts") };
        first.labels = Arc::new([("tenant".to_owned(), tenant.to_owned())].into());
        over(&database, 0, run, first.into()).await;
    }
    database.delete_run(&"run_1".into()).await.unwrap();
    database.prune_runs(WEEK, &[], at(40 * DAY)).await.unwrap();
    over(&database, 40, "run_4", started("run_4")).await;
    let found = database.log().runs(RunFilter::new().label("tenant", "acme")).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    database.close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.file());
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM labels").fetch_one(&mut connection).await.unwrap();
    assert_eq!(left, 0, "rows of labels are left");
}

/// Spec: S10, O2. A run below an operator without a record is kept with the open run at the head of its callers.
#[tokio::test]
async fn run_below_an_unrecorded_one_stays() {
    let database = Database::in_memory().await.unwrap();
    let root = begin(&database, 1, "run_root", started("s")).await;
    let EventKind::RunStarted(mut below) = dispatched("s", "run_none") else { unreachable!() };
    (below.run, below.root) = (Some("run_below".into()), Some("run_root".into()));
    over(&database, 2, "run_below", below.into()).await;
    let kept = database.prune_runs(Duration::ZERO, &[], at(30 * DAY)).await.unwrap();
    assert_eq!((kept.runs.len(), names(&database).await.len()), (0, 2));
    drop(root);
}
