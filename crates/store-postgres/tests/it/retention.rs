//! Retention of errors and results, and reasons to keep them longer.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{
    ErrorFilter, ErrorStore, Lookup, NewResult, Origin, ResultStore, Retention, readable,
};
use backstop_event_log::RunWriter;
use backstop_redact::Redactor;
use backstop_store_postgres::{Database, Options};
use layer0::event::{ErrorStored, RunForked};
use sqlx::{AssertSqlSafe, Executor};

use crate::support::{
    DAY, append_at, at, connection, error, error_at, finished, fresh, open, over_on, server,
    started, until,
};

fn writer(database: &Database, run: &str) -> RunWriter {
    RunWriter::new(Arc::new(database.log()), run.into())
}

/// Spec: L2, S10. The time counts from the end of the session's last run.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_run_keeps_what_it_refers_to() {
    let server = server!();
    let database = fresh(server).await;
    let stored = database.errors().store(error("s-1", "run_1", "boom")).await.unwrap();
    let origin = Origin::new(at(0), "s-1", "run_1", "c1", "log");
    let result = NewResult::new(origin, "whole", &Redactor::new());
    let result = database.results().put(result).await.unwrap();
    let mut run = writer(&database, "run_1");
    append_at(&mut run, 0, vec![started("s-1")]).await;

    let prune = async |retention: Retention, ms| {
        let errors = database.errors().prune(retention, at(ms)).await.unwrap();
        let results = database.results().prune(retention, at(ms)).await.unwrap();
        (errors.rows, results.rows)
    };
    assert_eq!(prune(Retention::default(), 40 * DAY).await, (0, 0), "the run is open");
    assert_eq!(prune(Retention::NONE.max_rows(0), 40 * DAY).await, (0, 0), "whatever the limit");
    append_at(&mut run, 40 * DAY, vec![finished()]).await;
    assert_eq!(prune(Retention::default(), 41 * DAY).await, (0, 0), "it ended a day ago");
    assert_eq!(prune(Retention::default(), 71 * DAY).await, (1, 1));
    assert_eq!(database.errors().find(&stored.id).await.unwrap(), Lookup::Expired);
    assert_eq!(database.results().find(&result).await.unwrap(), Lookup::Expired);
}

/// Spec: S10, D7. A copy reads what the run it was copied from stored.
#[tokio::test(flavor = "multi_thread")]
async fn open_fork_keeps_its_parent() {
    let server = server!();
    let database = fresh(server).await;
    let stored = database.errors().store(error("s-1", "run_1", "boom")).await.unwrap();
    let mut run = writer(&database, "run_1");
    append_at(&mut run, 0, vec![started("s-1"), finished()]).await;
    let mut copy = writer(&database, "run_2");
    let forked = RunForked::new("run_2", "s-1", "run_1", 1);
    append_at(&mut copy, 1, vec![started("s-1"), forked.into()]).await;
    let prune = async || {
        let all = Retention::NONE.max_rows(0);
        database.errors().prune(all, at(99 * DAY)).await.unwrap().rows
    };
    assert_eq!(prune().await, 0);
    append_at(&mut copy, 2, vec![finished()]).await;
    assert_eq!(prune().await, 1);

    // A copy in another store has the errors, but not the run that stored them.
    let again = database.errors().store(error("elsewhere", "run_1", "boom")).await.unwrap();
    assert_ne!(again.id, stored.id);
    let met = ErrorStored::new(again.id.clone(), "c", "sql", 1, 0);
    let mut other = writer(&database, "run_3");
    append_at(&mut other, 3, vec![started("s-3"), met.into()]).await;
    assert_eq!(prune().await, 0, "an open run's record names it");
    append_at(&mut other, 4, vec![finished()]).await;
    assert_eq!(prune().await, 1);
}

/// Spec: S10. A run that meets an error that an earlier one stored refers to it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_keeps_what_another_run_stored() {
    let server = server!();
    let database = fresh(server).await;
    let stored = database.errors().store(error("s-1", "run_1", "boom")).await.unwrap();
    let again = database.errors().store(error("s-1", "run_2", "boom")).await.unwrap();
    assert_eq!((&again.id, again.occurrences), (&stored.id, 2));
    for run in ["run_1", "run_2"] {
        let listed = database.errors().list(ErrorFilter::new().run(run)).await.unwrap();
        assert_eq!(listed.len(), 1, "{run}");
    }
    let mut first = writer(&database, "run_1");
    append_at(&mut first, 0, vec![started("s-1"), finished()]).await;
    let removed = database.delete_run(&"run_1".into()).await.unwrap();
    assert_eq!(removed.errors, 0, "the other run refers to it");
    assert!(database.errors().find(&stored.id).await.unwrap().into_item().is_some());
}

/// Spec: S10. No transaction takes more than a small batch away.
#[tokio::test(flavor = "multi_thread")]
async fn pruning_goes_in_small_batches() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let mut other = connection(&url).await;
    let count = "CREATE TABLE batches (rows bigint, bytes bigint, tx text); \
        CREATE FUNCTION count_them() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        INSERT INTO batches SELECT count(*), coalesce(sum(bytes), 0), pg_current_xact_id()::text FROM gone; \
        RETURN NULL; END $$; \
        CREATE TRIGGER counted AFTER DELETE ON backstop.errors REFERENCING OLD TABLE AS gone \
        FOR EACH STATEMENT EXECUTE FUNCTION count_them()";
    other.execute(sqlx::raw_sql(count)).await.unwrap();
    let text = "x".repeat(600 * 1024);
    for number in 0..6 {
        let error = error("s", "run_1", &format!("{number}{text}"));
        database.errors().store(error).await.unwrap();
    }
    for number in 0..130 {
        database.errors().store(error("s", "run_1", &number.to_string())).await.unwrap();
    }
    let pruned = database.errors().prune(Retention::NONE.max_rows(0), at(0)).await.unwrap();
    assert_eq!(pruned.rows, 136);
    let batches: Vec<(i64, String)> =
        sqlx::query_as("SELECT rows, tx FROM batches").fetch_all(&mut other).await.unwrap();
    // Two large batches for each kind, then 64 rows at once, then the rest.
    let rows: Vec<i64> = batches.iter().map(|(rows, _)| *rows).collect();
    assert_eq!(rows, [2, 2, 2, 64, 64, 2]);
    let mut transactions: Vec<&String> = batches.iter().map(|(_, tx)| tx).collect();
    transactions.dedup();
    assert_eq!(transactions.len(), 6);
}

/// Spec: S10. What is too much is counted in pages.
#[tokio::test(flavor = "multi_thread")]
async fn rows_beyond_one_page_are_counted() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let rows = "INSERT INTO backstop.results (id, session, run, call_id, tool, at, bytes, body) \
        SELECT 'res_' || n, 's', 'run_1', 'c', 't', n, 10, 'x' FROM generate_series(1, 10000) AS n";
    sqlx::raw_sql(rows).execute(&mut connection(&url).await).await.unwrap();
    for (kept, gone) in
        [(Retention::NONE.max_rows(9_990), 10), (Retention::NONE.max_bytes(99_800), 10)]
    {
        let pruned = database.results().prune(kept, at(0)).await.unwrap();
        assert_eq!(pruned.rows, gone);
    }
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn old_errors_go_in_the_background() {
    let server = server!();
    let database = fresh(server).await;
    let store = database.errors();
    store.store(error("s-1", "run_1", "old")).await.unwrap();
    store.store(error_at(31 * DAY, "s-1", "run_1", "sql", "new")).await.unwrap();
    let texts = async || {
        let left = store.list(ErrorFilter::new()).await.unwrap();
        left.iter().map(|error| readable(error.raw())).collect::<Vec<_>>()
    };
    until("the old one is gone", async || texts().await.len() == 1).await;
    assert_eq!(texts().await, ["new"]);
    database.close().await;
}

/// Spec: S10. A process that sets no retention follows the one that did.
#[tokio::test(flavor = "multi_thread")]
async fn set_retention_counts_for_other_processes() {
    let server = server!();
    let url = server.database().await;
    for days in [90, 60] {
        let keeps = Retention::default().max_age(Duration::from_secs(days * 24 * 60 * 60));
        let options = Options::new(&url).unwrap().retention(keeps);
        Database::connect_with(options).await.unwrap().close().await;
    }
    let database = open(&url).await;
    let store = database.errors();
    for (day, text) in [(0, "oldest"), (30, "old"), (65, "new")] {
        store.store(error_at(day * DAY, "s-1", "run_1", "sql", text)).await.unwrap();
    }
    let texts = async || {
        let left = store.list(ErrorFilter::new()).await.unwrap();
        let mut left: Vec<_> = left.iter().map(|error| readable(error.raw())).collect();
        left.sort_unstable();
        left
    };
    until("the oldest one is gone", async || texts().await.len() < 3).await;
    assert_eq!(texts().await, ["new", "old"]);
    database.close().await;
}

/// Spec: S10. A run of the session starts and ends while a pass removes its first texts.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_ends_during_a_pass_counts() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    over_on(&database, 0, "run_1", started("s")).await;
    // One page of candidates, and a part of the next one.
    for number in 0..300 {
        database.errors().store(error("s", "run_1", &format!("boom {number}"))).await.unwrap();
    }
    let ends = format!(
        "CREATE FUNCTION backstop.end_another() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         UPDATE backstop.runs SET started_at = {0}, ended_at = {0}; RETURN NULL; END $$; \
         CREATE TRIGGER ends AFTER DELETE ON backstop.errors FOR EACH STATEMENT \
         EXECUTE FUNCTION backstop.end_another()",
        at(39 * DAY).as_millis()
    );
    sqlx::raw_sql(AssertSqlSafe(ends)).execute(&mut connection(&url).await).await.unwrap();
    let pruned = database.errors().prune(Retention::default(), at(40 * DAY)).await.unwrap();
    assert_eq!(pruned.rows, 256, "what is read behind its end stays");
}
