//! Retention of errors and results, and reasons to keep them longer.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{
    ErrorFilter, ErrorStore, Lookup, NewResult, Origin, ResultStore, Retention, readable,
};
use backstop_event_log::{EventLog, RunWriter, Seed};
use backstop_redact::Redactor;
use backstop_store_sqlite::{Database, Durability};
use layer0::event::{Actor, ErrorStored, EventKind, RunFinished, RunForked};
use layer0::stop::Outcome;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};

use crate::{Folder, at, error, error_at, open, started};

const DAY: i64 = 24 * 60 * 60 * 1_000;

/// Spec: S1, S10, S11
#[tokio::test]
async fn sqlite_errors_hold_the_contract() {
    let suite = backstop_testkit::contract::error_store(async || {
        Arc::new(Database::in_memory().await.unwrap().errors()) as _
    });
    suite.check().await;
}

/// Spec: L2, S10, S11
#[tokio::test]
async fn sqlite_results_hold_the_contract() {
    let suite = backstop_testkit::contract::result_store(async || {
        Arc::new(Database::in_memory().await.unwrap().results()) as _
    });
    suite.check().await;
}

pub(crate) fn finished() -> EventKind {
    RunFinished::new(Outcome::Completed, "", layer0::usage::Usage::default()).into()
}

async fn append(writer: &mut RunWriter, ms: i64, kinds: Vec<EventKind>) {
    for kind in kinds {
        writer.stage(&Seed::new("test"), at(ms), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

fn writer(database: &Database, run: &str) -> RunWriter {
    RunWriter::new(Arc::new(database.log()) as Arc<dyn EventLog>, run.into())
}

/// Spec: L2, S10. The time counts from the end of the session's last run.
#[tokio::test]
async fn an_open_run_keeps_what_it_refers_to() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let stored = database.errors().store(error("s-1", "c", "boom")).await.unwrap();
    let origin = Origin::new(at(0), "s-1", "run_1", "c1", "log");
    let result = NewResult::new(origin, "whole", &Redactor::new());
    let result = database.results().put(result).await.unwrap();
    let mut run = writer(&database, "run_1");
    append(&mut run, 0, vec![started("s-1")]).await;

    let prune = async |retention: Retention, ms| {
        let errors = database.errors().prune(retention, at(ms)).await.unwrap();
        let results = database.results().prune(retention, at(ms)).await.unwrap();
        (errors.rows, results.rows)
    };
    assert_eq!(prune(Retention::default(), 40 * DAY).await, (0, 0), "the run is open");
    assert_eq!(prune(Retention::NONE.max_rows(0), 40 * DAY).await, (0, 0), "whatever the limit");
    append(&mut run, 40 * DAY, vec![finished()]).await;
    assert_eq!(prune(Retention::default(), 41 * DAY).await, (0, 0), "it ended a day ago");
    assert_eq!(prune(Retention::default(), 71 * DAY).await, (1, 1));
    assert_eq!(database.errors().find(&stored.id).await.unwrap(), Lookup::Expired);
    assert_eq!(database.results().find(&result).await.unwrap(), Lookup::Expired);
}

/// Spec: S10, D7. A copy reads what the run it was copied from stored.
#[tokio::test]
async fn open_fork_keeps_its_parent() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let stored = database.errors().store(error("s-1", "c", "boom")).await.unwrap();
    let mut run = writer(&database, "run_1");
    append(&mut run, 0, vec![started("s-1"), finished()]).await;
    let mut copy = writer(&database, "run_2");
    let forked = RunForked::new("run_2", "s-1", "run_1", 1);
    append(&mut copy, 1, vec![started("s-1"), forked.into()]).await;
    let prune = async || {
        let all = Retention::NONE.max_rows(0);
        database.errors().prune(all, at(99 * DAY)).await.unwrap().rows
    };
    assert_eq!(prune().await, 0);
    append(&mut copy, 2, vec![finished()]).await;
    assert_eq!(prune().await, 1);

    // A copy in another store has the errors, but not the run that stored them.
    let again = database.errors().store(error("elsewhere", "c", "boom")).await.unwrap();
    assert_ne!(again.id, stored.id);
    let met = ErrorStored::new(again.id.clone(), "c", "sql", 1, 0);
    let mut other = writer(&database, "run_3");
    append(&mut other, 3, vec![started("s-3"), met.into()]).await;
    assert_eq!(prune().await, 0, "an open run's record names it");
    append(&mut other, 4, vec![finished()]).await;
    assert_eq!(prune().await, 1);
}

/// Spec: S10. An append never waits for more than a small batch, and nothing is read to choose it.
#[tokio::test]
async fn pruning_goes_in_small_batches() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let text = "x".repeat(600 * 1024);
    for number in 0..6 {
        database.errors().store(error("s", "c", &format!("{number}{text}"))).await.unwrap();
    }
    for number in 0..130 {
        database.errors().store(error("s", "c", &number.to_string())).await.unwrap();
    }
    let before = database.commits();
    let pruned = database.errors().prune(Retention::NONE.max_rows(0), at(0)).await.unwrap();
    assert_eq!(pruned.rows, 136);
    // Two large batches for each kind, then 64 rows at once, then the rest.
    assert_eq!(database.commits() - before, 3 + 3);
}

/// Spec: S10
#[tokio::test]
async fn old_errors_go_in_the_background() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let store = database.errors();
    store.store(error("s-1", "c", "old")).await.unwrap();
    store.store(error_at(31 * DAY, "s-1", "c", "new")).await.unwrap();
    let mut left = Vec::new();
    for _ in 0..100_000 {
        left = store.list(ErrorFilter::new()).await.unwrap();
        if left.len() == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(left.iter().map(|error| readable(error.raw())).collect::<Vec<_>>(), ["new"]);
    database.close().await;
}

/// Spec: S10. A process that sets no retention follows the one that did.
#[tokio::test]
async fn set_retention_counts_for_other_processes() {
    let folder = Folder::new();
    let days = |days: u64| Retention::default().max_age(Duration::from_secs(days * 24 * 60 * 60));
    for set in [90, 60] {
        let opened = Database::open_keeping(folder.file(), Durability::Normal, days(set)).await;
        opened.unwrap().close().await;
    }
    let database = open(&folder.file()).await;
    let store = database.errors();
    for (day, text) in [(0, "oldest"), (30, "old"), (65, "new")] {
        store.store(error_at(day * DAY, "s-1", "c", text)).await.unwrap();
    }
    let mut left = Vec::new();
    for _ in 0..100_000 {
        left = store.list(ErrorFilter::new()).await.unwrap();
        if left.len() < 3 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut left: Vec<_> = left.iter().map(|error| readable(error.raw())).collect();
    left.sort_unstable();
    assert_eq!(left, ["new", "old"]);
    database.close().await;
}

/// Spec: S10
#[tokio::test]
async fn zero_age_prunes_every_finished_run() {
    let database = Database::in_memory().await.unwrap();
    database.errors().store(error("s-1", "c", "boom")).await.unwrap();
    let at_once = Retention::NONE.max_age(Duration::ZERO);
    assert_eq!(database.errors().prune(at_once, at(0)).await.unwrap().rows, 0, "of this moment");
    assert_eq!(database.errors().prune(at_once, at(1)).await.unwrap().rows, 1);
    assert!(database.errors().list(ErrorFilter::new()).await.unwrap().is_empty());
}

/// Spec: S10. A run of the session starts and ends while a pass removes its first texts.
#[tokio::test]
async fn run_that_ends_during_a_pass_counts() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    crate::removal::over(&database, 0, "run_1", started("s")).await;
    // One page of candidates, and a part of the next one.
    for number in 0..300 {
        database.errors().store(error("s", "c", &format!("boom {number}"))).await.unwrap();
    }
    let ends = format!(
        "CREATE TRIGGER ends AFTER DELETE ON errors BEGIN UPDATE runs SET started_at = {}; END",
        at(39 * DAY).as_millis()
    );
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(ends)).execute(&mut connection).await.unwrap();
    let pruned = database.errors().prune(Retention::default(), at(40 * DAY)).await.unwrap();
    assert_eq!(pruned.rows, 256, "what is read behind its end stays");
}
