//! Lists and counts of errors.

use std::sync::Arc;

use backstop_error_store::{ErrorFilter, ErrorStore, Retention};
use backstop_event_log::{EventLog, RunWriter};
use backstop_store_postgres::Database;
use layer0::event::ErrorStored;
use layer0::id::ErrorId;

use crate::support::{append, at, error, error_at, fresh, server, stage, started};

async fn listed(database: &Database, filter: ErrorFilter) -> Vec<ErrorId> {
    let errors = database.errors().list(filter).await.unwrap();
    errors.iter().map(|error| error.id().clone()).collect()
}

fn of_run(run: &str) -> ErrorFilter {
    ErrorFilter::new().run(run)
}

/// Spec: S14. The record of a copy comes before the errors it refers to.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_kept_after_its_reference_is_listed() {
    let server = server!();
    let (here, elsewhere) = (fresh(server).await, fresh(server).await);
    let stored = elsewhere.errors().store(error("s-1", "run_1", "boom")).await.unwrap();
    let record = elsewhere.errors().find(&stored.id).await.unwrap().into_item().unwrap();

    let log: Arc<dyn EventLog> = Arc::new(here.log());
    let mut copy = RunWriter::new(log, "run_copy".into());
    stage(&mut copy, started("s-2"));
    append(&mut copy, ErrorStored::new(stored.id.clone(), "c", "sql", 1, 0).into()).await.unwrap();
    assert!(listed(&here, of_run("run_copy")).await.is_empty());

    here.errors().keep(record).await.unwrap();
    for run in ["run_copy", "run_1"] {
        assert_eq!(listed(&here, of_run(run)).await, std::slice::from_ref(&stored.id), "{run}");
    }
    assert!(listed(&here, of_run("run_copy").session("s-2")).await.is_empty());
    assert_eq!(listed(&here, of_run("run_copy").session("s-1").tool("sql")).await, [stored.id]);
}

/// Spec: S10, S14
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_error_is_listed_nowhere() {
    let server = server!();
    let database = fresh(server).await;
    database.errors().store(error_at(1, "s-1", "run_1", "sql", "boom")).await.unwrap();
    let pruned = database.errors().prune(Retention::NONE.max_rows(0), at(2)).await.unwrap();
    assert_eq!(pruned.rows, 1);
    assert!(database.errors().stats(None).await.unwrap().is_empty());
    let later = error_at(3, "s-1", "run_2", "sql", "boom");
    let later = database.errors().store(later).await.unwrap();
    assert_eq!(later.occurrences, 1, "it is another one");
    assert!(listed(&database, of_run("run_1")).await.is_empty());
    assert_eq!(listed(&database, of_run("run_2")).await, [later.id]);
}

/// Spec: S14
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_newest_first_and_limited() {
    let server = server!();
    let database = fresh(server).await;
    let mut ids = Vec::new();
    for (number, (ms, tool)) in [(5, "sql"), (7, "log"), (7, "sql"), (6, "sql")].iter().enumerate()
    {
        let error = error_at(*ms, "s-1", "run_1", tool, &number.to_string());
        ids.push(database.errors().store(error).await.unwrap().id);
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
