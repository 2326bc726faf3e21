//! Databases for tests.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, LogError, RunWriter, Seed};
use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;
use layer0::Timestamp;
use layer0::event::{Actor, AgentRecord, EventKind, RunStarted};
use layer0::id::RunId;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

/// The server, or a test that is left out, which says so.
macro_rules! server {
    () => {
        match backstop_testkit::PostgresServer::shared() {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;

/// Opens a new database.
pub(crate) async fn fresh(server: &PostgresServer) -> Database {
    open(&server.database().await).await
}

/// Opens a database once more, as another process would.
pub(crate) async fn open(url: &str) -> Database {
    // Tests run side by side: few connections each.
    let options = Options::new(url).unwrap().connections(3);
    Database::connect_with(options).await.unwrap()
}

/// Opens a database again once what had it before, and was only dropped, has freed its runs.
pub(crate) async fn reopen(url: &str) -> Database {
    let database = open(url).await;
    let options: PgConnectOptions = url.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    for _ in 0..250 {
        let owners: i64 = sqlx::query_scalar("SELECT count(*) FROM backstop.processes")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        if owners == 0 {
            break;
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    connection.close().await.unwrap();
    database
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + ms)
}

pub(crate) fn started(session: &str) -> EventKind {
    let agent = AgentRecord::new("demo", "d", serde_json::json!({"name": "demo"}));
    RunStarted::new("hello", session.into(), agent).into()
}

/// Stages an event behind those of a writer.
pub(crate) fn stage(writer: &mut RunWriter, kind: EventKind) {
    let ms = i64::try_from(writer.summary().last_seq).unwrap();
    writer.stage(&Seed::new("test"), at(ms), Actor::Runtime, None, kind);
}

/// Appends an event, and returns its seq.
pub(crate) async fn append(writer: &mut RunWriter, kind: EventKind) -> Result<u64, LogError> {
    stage(writer, kind);
    writer.commit().await?;
    Ok(writer.summary().last_seq)
}

/// Begins a run.
pub(crate) async fn begin(log: &Arc<dyn EventLog>, run: &str, session: &str) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    append(&mut writer, started(session)).await.unwrap();
    writer
}

/// Goes on with a run, once it is free.
pub(crate) async fn resume(log: &Arc<dyn EventLog>, run: &str) -> RunWriter {
    let run = RunId::from(run);
    let claim = loop {
        match log.claim(&run).await {
            Err(LogError::Claimed(_)) => SystemClock.sleep(Duration::from_millis(50)).await,
            claim => break claim.unwrap(),
        }
    };
    let summary = log.summary(&run).await.unwrap().unwrap();
    RunWriter::resume(Arc::clone(log), summary, claim)
}
