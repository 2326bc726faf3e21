//! Lists of a run's errors.

use std::sync::Arc;

use backstop_error_store::{ErrorFilter, ErrorStore, NewError, Origin, Retention};
use backstop_event_log::{EventLog, RunWriter, Seed};
use backstop_redact::Redactor;
use backstop_store_sqlite::Database;
use layer0::event::{Actor, ErrorStored};
use layer0::id::ErrorId;
use layer0::{Code, code};

use crate::{at, error, started};

async fn listed(database: &Database, filter: ErrorFilter) -> Vec<ErrorId> {
    let errors = database.errors().list(filter).await.unwrap();
    errors.iter().map(|error| error.id().clone()).collect()
}

fn of_run(run: &str) -> ErrorFilter {
    ErrorFilter::new().run(run)
}

fn error_of(run: &str, tool: &str, ms: i64) -> NewError {
    let origin = Origin::new(at(ms), "s-1", run, "c", tool);
    let reason = Code::new(code::TOOL_EXECUTION_FAILED);
    NewError::new(origin, reason, None, &format!("boom {ms}"), &Redactor::new())
}

/// Spec: S14. The record of a copy comes before the errors it refers to.
#[tokio::test]
async fn an_error_kept_after_its_reference_is_listed() {
    let [here, elsewhere] =
        [Database::in_memory().await.unwrap(), Database::in_memory().await.unwrap()];
    let stored = elsewhere.errors().store(error("s-1", "c", "boom")).await.unwrap();
    let record = elsewhere.errors().find(&stored.id).await.unwrap().into_item().unwrap();

    let log: Arc<dyn EventLog> = Arc::new(here.log());
    let mut copy = RunWriter::new(log, "run_copy".into());
    copy.stage(&Seed::new("test"), at(0), Actor::Runtime, None, started("s-2"));
    let met = ErrorStored::new(stored.id.clone(), "c", "sql", 1, 0);
    copy.stage(&Seed::new("test"), at(0), Actor::Runtime, None, met.into());
    copy.commit().await.unwrap();
    assert!(listed(&here, of_run("run_copy")).await.is_empty());

    here.errors().keep(record).await.unwrap();
    for run in ["run_copy", "run_1"] {
        assert_eq!(listed(&here, of_run(run)).await, std::slice::from_ref(&stored.id), "{run}");
    }
    assert!(listed(&here, of_run("run_copy").session("s-2")).await.is_empty());
    assert_eq!(listed(&here, of_run("run_copy").session("s-1").tool("sql")).await, [stored.id]);
}

/// Spec: S10, S14. The last row's number is given out again.
#[tokio::test]
async fn a_removed_error_is_listed_nowhere() {
    let database = Database::in_memory().await.unwrap();
    database.errors().store(error_of("run_1", "sql", 1)).await.unwrap();
    let pruned = database.errors().prune(Retention::NONE.max_rows(0), at(2)).await.unwrap();
    assert_eq!(pruned.rows, 1);
    let later = database.errors().store(error_of("run_2", "sql", 3)).await.unwrap();
    assert!(listed(&database, of_run("run_1")).await.is_empty());
    assert_eq!(listed(&database, of_run("run_2")).await, [later.id]);
}

/// Spec: S14
#[tokio::test]
async fn lists_are_newest_first_and_limited() {
    let database = Database::in_memory().await.unwrap();
    let mut ids = Vec::new();
    for (ms, tool) in [(5, "sql"), (7, "log"), (7, "sql"), (6, "sql")] {
        ids.push(database.errors().store(error_of("run_1", tool, ms)).await.unwrap().id);
    }
    let [first, second, third, fourth] = &ids[..] else { unreachable!() };
    let check = async |filter: ErrorFilter, expected: &[&ErrorId]| {
        let found = listed(&database, filter).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    };
    check(of_run("run_1"), &[third, second, fourth, first]).await;
    check(of_run("run_1").limit(2), &[third, second]).await;
    check(of_run("run_1").tool("sql").limit(2), &[third, fourth]).await;
    check(of_run("run_1").from(at(6)).to(at(7)), &[fourth]).await;
    check(ErrorFilter::new().session("s-1").tool("sql"), &[third, fourth, first]).await;
}
