//! Rows that a removed run leaves behind, and waits during a removal.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{ErrorStore, NewResult, Origin, ResultStore};
use backstop_event_log::{Decision, EventLog, LogError, RunWriter};
use backstop_redact::Redactor;
use layer0::StateStore;
use layer0::event::{ApprovalRequested, EventKind, Warning};
use layer0::state::{Scope, StateWrite};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::support::{
    append, at, begin, connection, count_waits, error, finished, open, over_on, server, stage,
    started, state, until,
};

/// Each table with the condition for the rows of the run `run_1`, number 1, in the session `s`.
const TABLES: [(&str, &str); 15] = [
    ("approvals", "run = 'run_1'"),
    ("attempts", "run_id = 1"),
    ("errors", "run = 'run_1'"),
    ("events", "run_id = 1"),
    ("expired_approvals", "run = 'run_1'"),
    ("inbox", "run = 'run_1'"),
    ("labels", "run_id = 1"),
    ("lineage", "session = 's'"),
    ("positions", "run = 'run_1'"),
    ("refers", "run = 'run_1'"),
    ("removed", "run_id = 1"),
    ("results", "run = 'run_1'"),
    ("runs", "run = 'run_1'"),
    ("settled", "run = 'run_1'"),
    ("state", "scope = 'run:run_1'"),
];

async fn count(connection: &mut PgConnection, table: &str, of: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM backstop.{table} WHERE {of}");
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap()
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_run_leaves_no_row() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let EventKind::RunStarted(mut first) = started("s") else { unreachable!() };
    first.labels = Arc::new([("tenant".to_owned(), "acme".to_owned())].into());
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    append(&mut writer, first.into()).await.unwrap();
    append(&mut writer, finished()).await.unwrap();
    drop(writer);
    over_on(&database, 0, "run_2", started("other")).await;
    database.errors().store(error("s", "run_1", "boom")).await.unwrap();
    let origin = Origin::new(at(0), "s", "run_1", "c1", "log");
    let result = NewResult::new(origin, "whole", &Redactor::new());
    database.results().put(result).await.unwrap();
    let write = StateWrite::new(Scope::Run("run_1".into()), "k", json!(1));
    state(&database).write(write).await.unwrap();
    let mut other = connection(&url).await;
    let rows = "INSERT INTO backstop.approvals VALUES ('a1', 'run_1', 'c1', 1, 1); \
        INSERT INTO backstop.expired_approvals VALUES ('a2', 'run_1'); \
        INSERT INTO backstop.inbox (run, kind, data, sender, at) VALUES ('run_1', 'input', '{}', 'ada', 0); \
        INSERT INTO backstop.settled VALUES ('run_1', 'c1'); \
        INSERT INTO backstop.attempts VALUES (1, 1, 0, 'p', 'model.timeout'); \
        INSERT INTO backstop.lineage VALUES ('s', 'ancestor'); \
        INSERT INTO backstop.subscriptions VALUES ('tell', 'run.failed', 1, 'start'); \
        INSERT INTO backstop.positions VALUES ('tell', 'run_1', 2), ('tell', 'run_2', 2)";
    other.execute(sqlx::raw_sql(rows)).await.unwrap();
    for (table, of) in TABLES.iter().filter(|(table, _)| *table != "removed") {
        assert!(count(&mut other, table, of).await > 0, "{table}: there is something to remove");
    }
    database.delete_run(&"run_1".into()).await.unwrap();
    for (table, of) in TABLES {
        assert_eq!(count(&mut other, table, of).await, 0, "{table}");
    }
    assert_eq!(count(&mut other, "positions", "run = 'run_2'").await, 1);
    assert_eq!(count(&mut other, "events", "run_id <> 1").await, 2);
}

/// Spec: S10. No transaction takes more than some hundred events away.
#[tokio::test(flavor = "multi_thread")]
async fn events_go_in_batches() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    for _ in 0..1_198 {
        stage(&mut writer, Warning::new("x").into());
    }
    append(&mut writer, finished()).await.unwrap();
    drop(writer);
    let mut other = connection(&url).await;
    let count = "CREATE TABLE batches (rows bigint); \
        CREATE FUNCTION count_them() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        INSERT INTO batches SELECT count(*) FROM gone; RETURN NULL; END $$; \
        CREATE TRIGGER counted AFTER DELETE ON backstop.events REFERENCING OLD TABLE AS gone \
        FOR EACH STATEMENT EXECUTE FUNCTION count_them()";
    other.execute(sqlx::raw_sql(count)).await.unwrap();
    database.delete_run(&"run_1".into()).await.unwrap();
    let rows: Vec<i64> =
        sqlx::query_scalar("SELECT rows FROM batches").fetch_all(&mut other).await.unwrap();
    assert_eq!(rows, [512, 512, 176, 0]);
}

/// Spec: S10, J2. A removal that is under way has locked nothing that other runs need.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_holds_up_no_other_run() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut running = begin(&log, "run_open", "s-2").await;
    over_on(&database, 0, "run_1", started("s")).await;
    let write = StateWrite::new(Scope::Run("run_1".into()), "k", json!(1));
    state(&database).write(write).await.unwrap();
    // The removal stops before it removes the state of the run, in the middle of its transaction.
    let mut other = connection(&url).await;
    let mut in_the_way = other.begin().await.unwrap();
    in_the_way.execute("SELECT * FROM backstop.state FOR UPDATE").await.unwrap();
    let removing = {
        let database = database.clone();
        tokio::spawn(async move { database.delete_run(&"run_1".into()).await })
    };
    let mut watch = connection(&url).await;
    until("the removal waits", async || count_waits(&mut watch).await > 0).await;
    let writing = async {
        append(&mut running, Warning::new("x").into()).await.unwrap();
        begin(&log, "run_2", "s-3").await
    };
    tokio::select! {
        _ = writing => {}
        () = SystemClock.sleep(Duration::from_secs(20)) => panic!("an append waits for a removal"),
    }
    assert!(!removing.is_finished());
    in_the_way.rollback().await.unwrap();
    let removed = removing.await.unwrap().unwrap();
    assert_eq!(removed.runs, ["run_1".into()]);
}

/// Spec: A1. The clock of the server decides too: that of a sender may be behind.
#[tokio::test(flavor = "multi_thread")]
async fn late_decision_of_a_slow_clock_is_refused() {
    let url = server!().database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    for (id, call) in [("apr_1", "c1"), ("apr_2", "c2")] {
        let mut asked = ApprovalRequested::new(id, call, "wipe", json!({}), "0");
        asked.expires_at = Some(at(60_000));
        append(&mut writer, asked.into()).await.unwrap();
    }
    let passed =
        "UPDATE backstop.approvals SET asked_at = asked_at - interval '121 s' WHERE id = 'apr_2'";
    sqlx::raw_sql(passed).execute(&mut connection(&url).await).await.unwrap();
    let decide = async |id: &str| {
        let decision = Decision::approve("ops");
        log.decide(&id.into(), decision, at(10)).await
    };
    assert!(decide("apr_1").await.unwrap());
    let refused = decide("apr_2").await;
    assert!(matches!(refused, Err(LogError::ApprovalExpired(_))), "{refused:?}");
}

/// Spec: S10
#[tokio::test(flavor = "multi_thread")]
async fn references_beyond_one_batch_go_too() {
    let url = server!().database().await;
    let database = open(&url).await;
    over_on(&database, 0, "run_1", started("s")).await;
    let mut other = connection(&url).await;
    let refers = "INSERT INTO backstop.refers SELECT 'run_' || n % 2, 'err_' || n FROM generate_series(1, 3000) AS n";
    sqlx::raw_sql(refers).execute(&mut other).await.unwrap();
    database.delete_run(&"run_1".into()).await.unwrap();
    let left: Vec<(String, i64)> =
        sqlx::query_as("SELECT run, count(*) FROM backstop.refers GROUP BY run")
            .fetch_all(&mut other)
            .await
            .unwrap();
    assert_eq!(left, [("run_0".to_owned(), 1_500)]);
}
