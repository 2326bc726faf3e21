//! Unreadable rows do not block anything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_event_log::{
    Batch, Erasures, EventLog, InboxRequest, Log, LogError, MemoryLog, Payload, RunFilter,
    RunState, RunWriter, Seed,
};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, RunRequest};
use layer0::event::{Actor, AgentRecord, RunStarted, Warning};
use layer0::stop::Stop;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use tracing::{Level, Metadata, Subscriber, span};

use crate::claims::begin;
use crate::{Folder, at, open};

/// Spec: D11, D4. An open run whose row cannot be read is what its record says, and its writer makes
/// the row again.
#[tokio::test]
async fn unreadable_open_row_is_rebuilt_from_events() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = Arc::new(database.log()) as Arc<dyn EventLog>;
    let run = "run_1".into();
    drop(begin(&log, "run_1").await);
    let whole = log.summary(&run).await.unwrap().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    let broken = "UPDATE runs SET summary = '{'";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    assert_eq!(log.summary(&run).await.unwrap().as_ref(), Some(&whole));
    let found = backstop_event_log::verify_run(&*log, &run).await;
    assert!(matches!(found, Err(LogError::UnreadableRun { .. })), "{found:?}");
    let last = log.last_root(&whole.session).await.unwrap().unwrap();
    assert_eq!(last, whole);
    let claim = log.claim(&run).await.unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log), last, claim);
    let warning = Warning::new("goes on");
    writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, warning.into());
    writer.commit().await.unwrap();
    assert_eq!(
        backstop_event_log::verify_run(&*log, &run).await.unwrap().summary.last_seq,
        whole.last_seq + 1
    );
}

/// Spec: D11. Where the record is broken too, what is left is enough to close the run.
#[tokio::test]
async fn a_broken_open_run_can_be_closed() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = Arc::new(database.log()) as Arc<dyn EventLog>;
    let run = "run_1".into();
    drop(begin(&log, "run_1").await);
    let whole = log.summary(&run).await.unwrap().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    let broken = "UPDATE runs SET summary = '{', head = zeroblob(32)";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    let found = log.summary(&run).await;
    assert!(matches!(found, Err(LogError::UnreadableRun { .. })), "{found:?}");
    let left = log.last_root(&whole.session).await.unwrap().unwrap();
    assert!(left.is_open());
    assert_eq!((&left.run, left.last_seq), (&whole.run, whole.last_seq));
}

/// Spec: D11. A session goes on over an open run that cannot be read: it is closed, whether its record
/// can be read or not.
#[tokio::test]
async fn an_unreadable_open_run_keeps_no_session() {
    for broken in ["summary = '{'", "summary = '{', head = zeroblob(32)"] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let log = Arc::new(database.log()) as Arc<dyn EventLog>;
        drop(begin(&log, "run_1").await);
        let options = SqliteConnectOptions::new().filename(folder.file());
        let mut connection = options.connect().await.unwrap();
        let broken = sqlx::AssertSqlSafe(format!("UPDATE runs SET {broken}"));
        sqlx::query(broken).execute(&mut connection).await.unwrap();
        let agent = Agent::builder(ScriptedProvider::saying(["yes"])).shared_log(Arc::clone(&log));
        let request = RunRequest::new("second?").session("ses_run_1");
        let outcome = agent.build().unwrap().run(request).await.unwrap();
        assert_eq!(outcome.stop, Stop::Completed);
        let closed = log.summary(&"run_1".into()).await.unwrap().unwrap();
        assert_eq!(closed.state, RunState::Failed);
    }
}

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Spec: A1. It is said once, and the rows beside it are read.
#[tokio::test]
async fn unreadable_inbox_row_warns_once() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = Arc::new(database.log()) as Arc<dyn EventLog>;
    let _writer = begin(&log, "run_1").await;
    let run = layer0::id::RunId::from("run_1");
    for text in ["first", "second", "third"] {
        let request = InboxRequest::Input { run: run.clone(), text: text.into() };
        assert!(log.send(request, "ops", at(1)).await.unwrap());
    }
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    for broken in [
        "UPDATE inbox SET kind = 'unknown' WHERE data LIKE '%first%'",
        "UPDATE inbox SET sender = x'ff' WHERE data LIKE '%second%'",
    ] {
        sqlx::query(broken).execute(&mut connection).await.unwrap();
    }
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for _ in 0..5 {
        assert_eq!(log.inbox(&run).await.unwrap().len(), 1);
    }
    assert_eq!(warnings.0.load(Ordering::Relaxed), 2);
}

/// Spec: D4, D11. What stands beside the summary of a run is read as strictly as the summary.
#[tokio::test]
async fn unreadable_columns_are_no_defaults() {
    for broken in ["labels = '{'", "terms = '{'", "branch_of = x'ff'", "parent = x'ff'"] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let log = Arc::new(database.log()) as Arc<dyn EventLog>;
        let run = layer0::id::RunId::from("run_1");
        let definition = serde_json::json!({ "budget": { "max_model_calls": 3 } });
        let agent = AgentRecord::new("demo", "d", definition);
        let mut started = RunStarted::new("hello", "s-1".into(), agent);
        started.labels = Arc::new([("team".to_owned(), "blue".to_owned())].into());
        let mut writer = RunWriter::new(Arc::clone(&log), run.clone());
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, started.into());
        writer.commit().await.unwrap();
        let whole = log.kept_summary(&run).await.unwrap().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.file());
        let mut connection = options.connect().await.unwrap();
        let broken = sqlx::AssertSqlSafe(format!("UPDATE runs SET {broken}"));
        sqlx::query(broken).execute(&mut connection).await.unwrap();
        let kept = log.kept_summary(&run).await;
        assert!(matches!(kept, Err(LogError::UnreadableRun { .. })), "{kept:?}");
        assert_eq!(log.runs(RunFilter::new()).await.unwrap()[0].state, RunState::Unreadable);
        // The record has it too.
        assert_eq!(log.summary(&run).await.unwrap().unwrap(), whole);
    }
}

/// Spec: A1, D2. An approval that could be shown to no person is not written.
#[tokio::test]
async fn an_unreadable_approval_is_not_appended() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let logs: [Arc<dyn EventLog>; 2] = [Arc::new(database.log()), Arc::new(MemoryLog::new())];
    for log in logs {
        let run = layer0::id::RunId::from("run_1");
        drop(begin(&log, "run_1").await);
        let whole = log.summary(&run).await.unwrap().unwrap();
        let claim = log.claim(&run).await.unwrap();
        let mut record = log.records(&run, 1).await.unwrap().remove(0);
        (record.seq, record.event_type) = (2, "approval.requested".into());
        record.payload = Payload::Plain("{}".to_owned());
        let mut after = whole.clone();
        after.last_seq = 2;
        let batch = Batch::new(run.clone(), claim.epoch(), vec![record], after);
        let refused = log.append(batch).await;
        assert!(matches!(refused, Err(LogError::Unreadable { seq: 2, .. })), "{refused:?}");
        assert_eq!(log.summary(&run).await.unwrap(), Some(whole));
    }
}

/// Spec: D11, D1. Where an event is erased too, the others and the columns of the row say what the run is.
#[tokio::test]
async fn unreadable_row_is_rebuilt_beside_erased_events() {
    for seq in [1, 2] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        crate::removal::over(&database, 0, "run_1", crate::started("s-1")).await;
        let log = database.log();
        let run = "run_1".into();
        let whole = log.summary(&run).await.unwrap().unwrap();
        log.erase(&run, seq).await.unwrap();
        let options = SqliteConnectOptions::new().filename(folder.file());
        let mut connection = options.connect().await.unwrap();
        let broken = "UPDATE runs SET summary = '{'";
        sqlx::query(broken).execute(&mut connection).await.unwrap();
        let rebuilt = log.summary(&run).await.unwrap().unwrap();
        assert_eq!((rebuilt.state, &rebuilt.session), (whole.state, &whole.session));
        assert_eq!((rebuilt.last_seq, rebuilt.head), (whole.last_seq, whole.head));
    }
}

/// Spec: D11, D1
#[tokio::test]
async fn unreadable_row_keeps_time_of_erased_events() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let mut writer = crate::removal::begin(&database, 0, "run_1", crate::started("s-1")).await;
    crate::removal::append(&mut writer, 5, vec![Warning::new("public").into()]).await;
    crate::removal::append(&mut writer, 9_000, vec![Warning::new("private").into()]).await;
    drop(writer);
    let (log, run) = (database.log(), "run_1".into());
    let whole = log.summary(&run).await.unwrap().unwrap();
    log.erase(&run, 3).await.unwrap();
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    let broken = "UPDATE runs SET summary = '{'";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    assert_eq!(log.summary(&run).await.unwrap(), Some(whole));
}
