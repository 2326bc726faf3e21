//! Databases for tests.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock, VirtualClock};
use backstop_error_store::{NewError, Origin};
use backstop_event_log::{EventLog, LogError, RunFilter, RunWriter, Runs, Seed};
use backstop_redact::Redactor;
use backstop_store_postgres::{Database, Options, PostgresStateStore};
use backstop_testkit::PostgresServer;
use layer0::event::{Actor, AgentRecord, EventKind, Follows, Hash, RunFinished, RunStarted};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp, code};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;

/// Returns the server; otherwise the test is skipped with a message.
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

/// Opens a database again, as another process would.
pub(crate) async fn open(url: &str) -> Database {
    // Tests are concurrent: few connections each.
    let options = Options::new(url).unwrap().connections(3);
    Database::connect_with(options).await.unwrap()
}

/// Opens a database again once its previous handle, which was only dropped, has released its runs.
pub(crate) async fn reopen(url: &str) -> Database {
    reopen_at(url, url).await
}

/// Opens a database again as [`reopen`] does, with one URL, and checks it with another.
pub(crate) async fn reopen_at(through: &str, url: &str) -> Database {
    let database = open(through).await;
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

pub(crate) fn following(session: &str, earlier: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    first.follows = Some(Box::new(Follows::new(earlier, 1, Hash::default(), 1)));
    first.into()
}

/// The first event of a run below another.
pub(crate) fn started_below(session: &str, run: &str, root: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    (first.run, first.depth) = (Some(run.into()), 1);
    (first.root, first.parent) = (Some(root.into()), Some(root.into()));
    first.into()
}

pub(crate) fn finished() -> EventKind {
    RunFinished::new(Outcome::Completed, "done", Usage::default()).into()
}

/// An error that a run met.
pub(crate) fn error(session: &str, run: &str, text: &str) -> NewError {
    error_at(0, session, run, "sql", text)
}

pub(crate) fn error_at(ms: i64, session: &str, run: &str, tool: &str, text: &str) -> NewError {
    let origin = Origin::new(at(ms), session, run, "c1", tool);
    NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), None, text, &Redactor::new())
}

/// Returns a text of this many characters that cannot be compressed.
pub(crate) fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    // Words of seven letters do not look like secrets.
    (0..length).map(|place| if place % 8 == 7 { '-' } else { letter() }).collect()
}

/// Appends events at a time.
pub(crate) async fn append_at(writer: &mut RunWriter, ms: i64, kinds: Vec<EventKind>) {
    for kind in kinds {
        writer.stage(&Seed::new("test"), at(ms), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// A run that started and ended on a day.
pub(crate) async fn over_on(database: &Database, day: i64, run: &str, first: EventKind) {
    let mut writer = RunWriter::new(Arc::new(database.log()), run.into());
    append_at(&mut writer, day * DAY, vec![first, finished()]).await;
}

/// Lists the runs, sorted by their names.
pub(crate) async fn names(database: &Database) -> Vec<String> {
    let runs = database.log().runs(RunFilter::new()).await.unwrap();
    let mut names: Vec<String> = runs.iter().map(|run| run.run.to_string()).collect();
    names.sort();
    names
}

/// The state store at the time of these tests' writes: with the system's time, a write would prune old errors.
pub(crate) fn state(database: &Database) -> PostgresStateStore {
    database.state().clock(Arc::new(VirtualClock::starting_at(at(0))))
}

/// Connects as another program would.
pub(crate) async fn connection(url: &str) -> PgConnection {
    url.parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_met().await {
            return;
        }
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not within 30 s");
}

/// Stages an event of a writer.
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

/// Starts a run.
pub(crate) async fn begin(log: &Arc<dyn EventLog>, run: &str, session: &str) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    append(&mut writer, started(session)).await.unwrap();
    writer
}

/// Resumes a run, once it is free.
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

/// Holds the first append of a run back in the middle of its transaction, until this connection is closed.
pub(crate) async fn hold_back(url: &str, run: &str) -> PgConnection {
    let mut holding = connection(url).await;
    let hold = format!(
        "SELECT pg_advisory_lock(4711); \
         CREATE FUNCTION backstop.hold_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_advisory_xact_lock(4711); RETURN new; END $$; \
         CREATE TRIGGER held_back BEFORE INSERT ON backstop.runs \
         FOR EACH ROW WHEN (new.run = '{run}') EXECUTE FUNCTION backstop.hold_back()"
    );
    sqlx::raw_sql(AssertSqlSafe(hold)).execute(&mut holding).await.unwrap();
    holding
}

/// Counts the locks of this database that are waited for.
pub(crate) async fn count_waits(connection: &mut PgConnection) -> i64 {
    let waits = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
        WHERE NOT granted AND datname = current_database()";
    sqlx::query_scalar(waits).fetch_one(connection).await.unwrap()
}
