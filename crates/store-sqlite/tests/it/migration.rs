//! Older databases are brought to this version.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_error_store::{ErrorStore, ResultStore};
use backstop_event_log::{
    Batch, EventLog, KeyBinding, Log, LogError, Payload, Record, RunFilter, RunSummary, RunWriter,
    Runs, Seed, StartKey, StartKeys, read_events, verify_run,
};
use backstop_store_sqlite::Database;
use layer0::event::{Actor, EventKind};
use layer0::failure::Chain;
use layer0::id::RunId;
use layer0::operator::Task;
use layer0::state::Scope;
use layer0::{JsonText, StateStore};
use serde_json::json;

use crate::{Folder, at, error, open, started, tamper};

/// Brings a database back to the first version, with what is in it.
const FIRST_VERSION: &str = "
    DROP TABLE IF EXISTS state; DROP TABLE IF EXISTS state_words; DROP TABLE IF EXISTS subscriptions; DROP TABLE IF EXISTS positions;
    DROP TABLE IF EXISTS start_keys; DROP INDEX IF EXISTS runs_by_parent;
    DROP TABLE IF EXISTS forgetting; DROP TABLE IF EXISTS erasing; DROP TABLE IF EXISTS lost_tails; DROP INDEX IF EXISTS runs_at_work;
    DROP VIEW appends;
    DROP TRIGGER runs_taken; DROP TABLE labels; DROP TABLE expired_approvals;
    ALTER TABLE runs DROP COLUMN labels;
    DROP TRIGGER errors_added; DROP TRIGGER errors_seen; DROP TRIGGER errors_taken;
    DROP TRIGGER results_added; DROP TRIGGER events_stored; DROP TRIGGER events_started;
    DROP TRIGGER events_forked;
    DROP TABLE error_stats; DROP TABLE expired; DROP TABLE refers; DROP TABLE follows;
    DROP TABLE lineage; DROP TABLE removed; DROP TABLE tombstones;
    DROP INDEX errors_by_time; DROP INDEX errors_by_session; DROP INDEX errors_by_tool;
    DROP INDEX errors_by_age;
    ALTER TABLE events RENAME TO newer;
    CREATE TABLE events (run_id INTEGER NOT NULL REFERENCES runs (id), seq INTEGER NOT NULL,
        at INTEGER NOT NULL, type TEXT NOT NULL, actor TEXT NOT NULL, caused_by INTEGER,
        schema INTEGER NOT NULL, data TEXT NOT NULL, hash BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)) WITHOUT ROWID;
    INSERT INTO events SELECT run_id, seq, at, type, actor, caused_by, schema, data, hash FROM newer;
    DROP TABLE newer;
    ALTER TABLE runs DROP COLUMN last_event;
    ALTER TABLE runs DROP COLUMN terms;
    ALTER TABLE errors RENAME TO newer;
    CREATE TABLE errors (id TEXT PRIMARY KEY, session TEXT NOT NULL, run TEXT NOT NULL,
        call_id TEXT NOT NULL, tool TEXT NOT NULL, reason TEXT NOT NULL, code TEXT,
        summary TEXT NOT NULL, raw TEXT NOT NULL, fingerprint TEXT NOT NULL,
        occurrences INTEGER NOT NULL, at INTEGER NOT NULL, last_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE UNIQUE INDEX errors_by_fingerprint ON errors (session, fingerprint);
    CREATE INDEX errors_by_run ON errors (run, at);
    CREATE INDEX errors_by_time ON errors (at);
    INSERT INTO errors SELECT id, session, run, call_id, tool, reason, code, summary, raw,
        fingerprint, occurrences, at, last_at FROM newer;
    DROP TABLE newer;
    DROP INDEX runs_roots; DROP INDEX runs_by_agent; DROP INDEX runs_by_state; DROP INDEX runs_by_reason;
    ALTER TABLE runs DROP COLUMN agent;
    ALTER TABLE runs DROP COLUMN reason;
    ALTER TABLE runs DROP COLUMN owner;
    ALTER TABLE runs DROP COLUMN epoch;
    ALTER TABLE runs DROP COLUMN state;
    ALTER TABLE runs DROP COLUMN parent;
    DROP TABLE approvals;
    DROP TABLE inbox;
    DROP TABLE results;
    PRAGMA user_version = 1";

/// Writes a run as the first layout has it, without salts.
async fn write_first_layout(log: &dyn EventLog, run: &str, session: &str) -> RunSummary {
    let run = RunId::from(run);
    let claim = log.claim_new(&run);
    let mut summary = RunSummary::new(run.clone());
    for seq in 1..=20 {
        let payload = Payload::Plain(serde_json::to_string(&started(session)).unwrap());
        let mut record = Record::new(seq, at(1), "run.started", Actor::Runtime, payload);
        record.schema = 1;
        record.hash = record.seal(&summary.head, None);
        summary.apply(&record.decode(&run).unwrap());
        let batch = Batch::new(run.clone(), claim.epoch(), vec![record], summary.clone());
        log.append(batch).await.unwrap();
    }
    summary
}

/// Spec: D11. A database of the first version is brought up to this one, with what is in it.
#[tokio::test]
async fn an_older_database_is_migrated() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let written = [
        write_first_layout(&*log, "run_1", "s-1").await,
        write_first_layout(&*log, "run_2", "s-2").await,
    ];
    let stored = database.errors().store(error("s", "c", "it broke")).await.unwrap();
    database.close().await;
    tamper(&folder.file(), BEFORE_TREES).await;
    tamper(&folder.file(), FIRST_VERSION).await;

    let database = open(&folder.file()).await;
    for written in written {
        let (summary, mut events) = read_events(&database.log(), &written.run).await.unwrap();
        assert_eq!((&summary, events.len()), (&written, 20));
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let claim = log.claim(&summary.run).await.unwrap();
        let mut writer = RunWriter::resume(log, summary.clone(), claim);
        writer.stage(
            &Seed::new("test"),
            at(20),
            Actor::Runtime,
            None,
            started(summary.session.as_str()),
        );
        events.extend(writer.commit().await.unwrap());
        let again = read_events(&database.log(), &summary.run).await.unwrap().1;
        assert_eq!(again, events);
        assert!(again.iter().all(|event| event.salt.is_none()), "it stays of the first layout");
    }
    let again = database.errors().store(error("s", "c", "it broke")).await.unwrap();
    assert_eq!((again.id, again.occurrences), (stored.id, 2));
    assert!(!database.results().find(&"res_1".into()).await.unwrap().is_expired());
    let stats = database.errors().stats(None).await.unwrap();
    assert_eq!((stats.len(), stats[0].errors, stats[0].occurrences), (1, 1, 2));
}

/// What migration 13 made.
const BEFORE_TREES: &str = "
    DROP TABLE removed_incarnations; ALTER TABLE runs DROP COLUMN incarnation;
    DROP TRIGGER transcripts_erased; DROP TABLE transcripts;
    DROP TRIGGER events_erased; DROP TRIGGER runs_removed; DROP TABLE store;
    ALTER TABLE removed DROP COLUMN is_silent; DROP INDEX expired_by_time; ALTER TABLE expired DROP COLUMN at;
    DROP TABLE IF EXISTS settled; DROP TABLE IF EXISTS delivery_failures; DROP TABLE IF EXISTS erasures;
    DROP TRIGGER IF EXISTS events_settled; DROP TRIGGER IF EXISTS events_undelivered;
    ALTER TABLE runs DROP COLUMN seal;
    DROP TRIGGER events_rooted; DROP INDEX runs_by_root; DROP INDEX runs_branches; DROP INDEX runs_roots;
    ALTER TABLE runs DROP COLUMN root; ALTER TABLE runs DROP COLUMN branch_of;
    CREATE INDEX runs_roots ON runs (session) WHERE parent IS NULL;
    DROP TABLE IF EXISTS state; DROP TABLE IF EXISTS state_words; DROP TABLE IF EXISTS subscriptions; DROP TABLE IF EXISTS positions;
    DROP INDEX IF EXISTS runs_by_parent; DROP TABLE IF EXISTS start_keys;
    DROP TABLE IF EXISTS forgetting; DROP TABLE IF EXISTS erasing; DROP TABLE IF EXISTS lost_tails; DROP INDEX IF EXISTS runs_at_work; PRAGMA user_version = 12";

/// Spec: D8, D11
#[tokio::test]
async fn an_older_tree_has_one_owner() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    for run in ["run_1", "run_2"] {
        let EventKind::RunStarted(mut start) = started("s") else { unreachable!("a run starts") };
        (start.run, start.root) = (Some(run.into()), Some("run_1".into()));
        start.parent = (run != "run_1").then(|| "run_1".into());
        let mut writer = RunWriter::new(Arc::new(database.log()), run.into());
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, start.into());
        writer.commit().await.unwrap();
    }
    database.close().await;
    tamper(&folder.file(), BEFORE_TREES).await;

    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    for run in ["run_1", "run_2"] {
        verify_run(&one.log(), &run.into()).await.unwrap();
    }
    let root = one.log().claim(&"run_1".into()).await.unwrap();
    let refused = two.log().claim(&"run_2".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "{refused:?}");
    drop(root);
}

/// What migration 11 made.
const BEFORE_LISTS: &str = "
    DROP INDEX runs_by_agent; DROP INDEX runs_by_state; DROP INDEX runs_by_reason;
    DROP INDEX events_failed; DROP TRIGGER appends_written;
    ALTER TABLE runs DROP COLUMN agent; ALTER TABLE runs DROP COLUMN reason;
    CREATE TRIGGER appends_written INSTEAD OF INSERT ON appends BEGIN SELECT 1; END;
    DROP TABLE IF EXISTS state; DROP TABLE IF EXISTS state_words; DROP TABLE IF EXISTS subscriptions; DROP TABLE IF EXISTS positions;
    DROP INDEX IF EXISTS runs_by_parent; DROP TABLE IF EXISTS start_keys;
    DROP TABLE IF EXISTS forgetting; DROP TABLE IF EXISTS erasing; DROP TABLE IF EXISTS lost_tails; DROP INDEX IF EXISTS runs_at_work; PRAGMA user_version = 10";

/// Spec: C3. A reader leaves a file of an older version as it is, and lists what is in it.
#[tokio::test]
async fn older_runs_are_listed_by_agent_and_reason() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = RunWriter::new(log, RunId::from("run_1"));
    writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, started("s"));
    writer.commit().await.unwrap();
    database.close().await;
    tamper(&folder.file(), BEFORE_TREES).await;
    tamper(&folder.file(), BEFORE_LISTS).await;

    let database = Database::open_read_only(folder.file()).await.unwrap();
    let found = async |filter| database.log().runs(filter).await.unwrap().len();
    assert_eq!(found(RunFilter::new().agent("demo")).await, 1);
    assert_eq!(found(RunFilter::new().agent("other")).await, 0);
    assert_eq!(found(RunFilter::new().reason("tool.*")).await, 0);
}

/// What migration 10 made.
const BEFORE_LABELS: &str = "
    DROP TRIGGER runs_taken; DROP TABLE labels; DROP TABLE expired_approvals;
    ALTER TABLE runs DROP COLUMN labels; DROP TABLE IF EXISTS state; DROP TABLE IF EXISTS state_words; DROP TABLE IF EXISTS subscriptions; DROP TABLE IF EXISTS positions;
    DROP INDEX IF EXISTS runs_by_parent; DROP TABLE IF EXISTS start_keys;
    DROP TABLE IF EXISTS forgetting; DROP TABLE IF EXISTS erasing; DROP TABLE IF EXISTS lost_tails; DROP INDEX IF EXISTS runs_at_work; PRAGMA user_version = 9";

/// Spec: D15, D11. Runs that were filed under labels before their rows had them are listed by them.
#[tokio::test]
async fn labels_of_older_runs_are_found() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    for (run, tenant) in [("run_1", Some("ä'%")), ("run_2", None)] {
        let EventKind::RunStarted(mut start) = started(run) else { unreachable!("a run starts") };
        let labels = tenant.map(|tenant| ("tenant".to_owned(), tenant.to_owned()));
        start.labels = Arc::new(labels.into_iter().collect());
        let mut writer = RunWriter::new(Arc::new(database.log()), run.into());
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, start.into());
        writer.commit().await.unwrap();
    }
    database.close().await;
    tamper(&folder.file(), BEFORE_TREES).await;
    tamper(&folder.file(), BEFORE_LISTS).await;
    tamper(&folder.file(), BEFORE_LABELS).await;

    let older = Database::open_read_only(folder.file()).await.unwrap();
    let refused = older.log().runs(RunFilter::new().label("tenant", "x")).await.unwrap_err();
    let said = Chain(&refused).to_string();
    assert_eq!(said, "log failed: labels need migration 10 of the store, which is at 9");
    assert_eq!(older.log().runs(RunFilter::new()).await.unwrap().len(), 2);
    older.close().await;

    let database = open(&folder.file()).await;
    let filter = RunFilter::new().label("tenant", "ä'%");
    let found = database.log().runs(filter).await.unwrap();
    assert_eq!(found.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["run_1"]);
    for run in ["run_1", "run_2"] {
        verify_run(&database.log(), &run.into()).await.unwrap();
    }
}

/// The rows that migration 21 makes.
const BEFORE_ERASED_TEXTS: &str = "
    DROP TABLE removed_incarnations; ALTER TABLE runs DROP COLUMN incarnation;
    DROP TRIGGER transcripts_erased; DROP TABLE transcripts;
    DROP TRIGGER events_erased; DROP TRIGGER runs_removed; DROP TABLE store;
    ALTER TABLE removed DROP COLUMN is_silent; DROP INDEX expired_by_time; ALTER TABLE expired DROP COLUMN at;
    DROP TABLE settled; DROP TABLE delivery_failures; DROP TABLE erasures; DROP TRIGGER events_settled;
    DROP TRIGGER events_undelivered; ALTER TABLE runs DROP COLUMN seal;
    INSERT INTO state (scope, key, at, value) VALUES
    ('global', 'once/pay/a', 1,
     '{\"call_id\":\"c\",\"output\":\"a private answer\",\"run\":\"run_1\",\"state\":\"done\"}'),
    ('global', 'once/pay/b', 1,
     '{\"call_id\":\"c\",\"output\":\"an older answer\",\"run\":\"run_0\",\"state\":\"done\"}');
    INSERT INTO start_keys (operator, key, input, run, at)
    VALUES ('demo', 'a private key', 'x', 'run_1', 1); PRAGMA user_version = 20";

/// Spec: T16. Where the runs are in another store, what their calls answered is kept.
#[tokio::test]
async fn older_answers_of_runs_elsewhere_stay() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    tamper(&folder.file(), BEFORE_ERASED_TEXTS).await;
    let database = open(&folder.file()).await;
    let kept = database.state().read(&Scope::Run("run_0".into()), "once/pay/b").await.unwrap();
    assert!(kept.unwrap().value.to_string().contains("an older answer"));
    let done = database.state().read(&Scope::Global, "once/pay/b").await.unwrap().unwrap().value;
    assert_eq!(done, json!({ "call_id": "c", "run": "run_0", "state": "done" }));
}

/// Spec: S10, T16. A store whose runs were all removed is not one without runs.
#[tokio::test]
async fn older_answers_of_pruned_runs_go() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    crate::removal::over(&database, 0, "run_0", started("s")).await;
    database.delete_run(&"run_0".into()).await.unwrap();
    database.close().await;
    tamper(&folder.file(), BEFORE_ERASED_TEXTS).await;
    let database = open(&folder.file()).await;
    let kept = database.state().read(&Scope::Run("run_0".into()), "once/pay/b").await.unwrap();
    assert!(kept.is_none(), "{kept:?}");
}

/// Spec: S10, T16. What an older version kept of calls and starts goes with their runs.
#[tokio::test]
async fn older_texts_go_with_their_runs() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    crate::removal::over(&database, 0, "run_1", started("s")).await;
    database.close().await;
    tamper(&folder.file(), BEFORE_ERASED_TEXTS).await;

    let database = open(&folder.file()).await;
    let state = database.state();
    let entry = async |scope: Scope, key: &str| {
        state.read(&scope, key).await.unwrap().map(|found| found.value)
    };
    let done = |run: &str| JsonText::from(json!({ "call_id": "c", "run": run, "state": "done" }));
    let (of_run, pay) = (Scope::Run("run_1".into()), "once/pay/a");
    assert_eq!(entry(Scope::Global, pay).await, Some(done("run_1")));
    assert_eq!(entry(Scope::Global, "once/pay/b").await, Some(done("run_0")));
    assert!(entry(of_run.clone(), pay).await.unwrap().to_string().contains("a private answer"));
    database.delete_run(&"run_1".into()).await.unwrap();
    assert_eq!(entry(Scope::Global, pay).await, Some(done("run_1")));
    assert_eq!(entry(of_run, pay).await, None);
    let key = StartKey::new("demo", "a private key", &Task::text("go"), None, &BTreeMap::new());
    let bound = database.log().bind(&key.unwrap(), &"run_2".into(), at(0)).await.unwrap();
    let is_reused = matches!(bound, KeyBinding::Reused(_));
    assert!(is_reused, "the key is known, of another input: {bound:?}");
    database.close().await;
    let bytes = std::fs::read(folder.file()).unwrap();
    for text in ["a private answer", "an older answer", "a private key"] {
        assert!(!bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes()), "{text}");
    }
}
