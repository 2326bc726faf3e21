//! A server that is restored without events that it had acknowledged.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Erasures, EventLog, Log, LogError, LostTails, RunWriter};
use backstop_store_postgres::{Database, Look, WorkerRow};
use layer0::event::{LostTail, RunResumed, Warning};
use layer0::failure::Failure;
use layer0::id::RunId;
use sqlx::PgConnection;

use crate::support::{append, begin, connection, finished, open, server};

const LEFT: [&str; 2] = ["runs", "events"];

/// The rows of all runs at one moment.
pub(crate) struct Snapshot(PgConnection);

impl Snapshot {
    pub(crate) async fn take(url: &str) -> Self {
        let mut connection = connection(url).await;
        for table in LEFT {
            let copy = format!("CREATE TEMP TABLE old_{table} AS SELECT * FROM backstop.{table}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut connection).await.unwrap();
        }
        Self(connection)
    }

    /// Restores the rows, as on a restored server.
    pub(crate) async fn restore(&mut self) {
        for table in LEFT {
            let back = format!(
                "DELETE FROM backstop.{table}; \
                 INSERT INTO backstop.{table} OVERRIDING SYSTEM VALUE SELECT * FROM old_{table}"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(back)).execute(&mut self.0).await.unwrap();
        }
        let free = "UPDATE backstop.runs SET owner = NULL";
        sqlx::raw_sql(free).execute(&mut self.0).await.unwrap();
    }
}

async fn note(writer: &mut RunWriter, text: &str) -> u64 {
    append(writer, Warning::new(text).into()).await.unwrap()
}

fn log_of(database: &Database) -> Arc<dyn EventLog> {
    Arc::new(database.log())
}

/// A run of four events that lost two, and two processes.
async fn set_back(url: &str) -> (Database, Database) {
    let (one, two) = (open(url).await, open(url).await);
    let mut writer = begin(&log_of(&one), "run_1", "s").await;
    note(&mut writer, "kept").await;
    let mut snapshot = Snapshot::take(url).await;
    note(&mut writer, "lost").await;
    note(&mut writer, "lost too").await;
    drop(writer);
    snapshot.restore().await;
    (one, two)
}

async fn refused(database: &Database) -> LogError {
    let run = RunId::from("run_1");
    loop {
        match database.log().claim(&run).await {
            Err(LogError::Claimed(_)) => SystemClock.sleep(Duration::from_millis(20)).await,
            claim => return claim.map(drop).unwrap_err(),
        }
    }
}

/// Spec: J2
#[tokio::test]
async fn lost_tail_is_refused_by_every_process() {
    let (one, two) = set_back(&server!().database().await).await;
    assert!(two.log().lost_tails().await.unwrap().is_empty(), "nobody has looked");
    for database in [&one, &two] {
        let error = refused(database).await;
        assert!(matches!(error, LogError::LostTail { seq: 4, .. }), "{error:?}");
        assert_eq!((error.code(), error.is_retryable()), ("log.lost_tail", false));
    }
    let marked = two.log().lost_tails().await.unwrap();
    assert_eq!((marked[0].run.as_str(), marked[0].tail.seq), ("run_1", 4));
}

/// Spec: J2. A writer that has the run is refused as well, and so is what comes after it.
#[tokio::test]
async fn living_writer_hears_of_its_lost_tail() {
    let url = server!().database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let mut writer = begin(&log_of(&one), "run_1", "s").await;
    let mut snapshot = Snapshot::take(&url).await;
    note(&mut writer, "lost").await;
    snapshot.restore().await;
    let error = append(&mut writer, Warning::new("more").into()).await.unwrap_err();
    assert!(matches!(error, LogError::LostTail { seq: 2, .. }), "{error:?}");
    drop(writer);
    assert!(matches!(refused(&two).await, LogError::LostTail { seq: 2, .. }));
}

/// Spec: J2. Another event at the seq of the lost one is no tail either.
#[tokio::test]
async fn other_tail_is_refused() {
    let url = server!().database().await;
    let (one, two) = set_back(&url).await;
    let run = RunId::from("run_1");
    let claim = two.log().claim(&run).await.unwrap();
    let summary = two.log().summary(&run).await.unwrap().unwrap();
    let mut writer = RunWriter::resume(log_of(&two), summary, claim);
    for text in ["other", "other too", "and more"] {
        note(&mut writer, text).await;
    }
    drop(writer);
    assert!(matches!(refused(&one).await, LogError::LostTail { seq: 4, .. }));
}

/// Spec: J2
#[tokio::test]
async fn accepted_loss_frees_the_run() {
    let (one, two) = set_back(&server!().database().await).await;
    refused(&one).await;
    let run = RunId::from("run_1");
    let (claim, lost) = two.log().claim_with_loss(&run).await.unwrap();
    let lost: LostTail = lost.unwrap();
    assert_eq!(lost.seq, 4);
    let summary = two.log().summary(&run).await.unwrap().unwrap();
    let mut writer = RunWriter::resume(log_of(&two), summary, claim);
    append(&mut writer, RunResumed::new("ops").accepting(lost).into()).await.unwrap();
    let kept = two.log().summary(&run).await.unwrap().unwrap().accepted_loss.unwrap();
    assert_eq!((kept.tail, kept.count), (lost, 1));
    drop(writer);
    assert!(one.log().lost_tails().await.unwrap().is_empty());
    for database in [&one, &two] {
        drop(crate::support::resume(&log_of(database), "run_1").await);
    }
}

/// Spec: J2
#[tokio::test]
async fn restored_tail_is_taken_again() {
    let url = server!().database().await;
    let one = open(&url).await;
    let mut writer = begin(&log_of(&one), "run_1", "s").await;
    let mut older = Snapshot::take(&url).await;
    note(&mut writer, "lost").await;
    drop(writer);
    let mut newer = Snapshot::take(&url).await;
    older.restore().await;
    refused(&one).await;
    newer.restore().await;
    drop(crate::support::resume(&log_of(&one), "run_1").await);
    assert!(one.log().lost_tails().await.unwrap().is_empty());
}

/// Spec: J2
#[tokio::test]
async fn run_without_its_record_does_not_begin_again() {
    let url = server!().database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let mut empty = Snapshot::take(&url).await;
    drop(begin(&log_of(&one), "run_1", "s").await);
    empty.restore().await;
    for database in [&one, &two] {
        let mut again = RunWriter::new(log_of(database), "run_1".into());
        let error = append(&mut again, crate::support::started("s")).await.unwrap_err();
        assert!(matches!(error, LogError::Lost(_)), "{error:?}");
    }
}

/// Spec: J2, S10. A process that knows a removed run takes another of its id, and still misses what is lost of that one.
#[tokio::test]
async fn removed_run_begins_again_elsewhere() {
    let url = server!().database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    for by in [&one, &two, &one] {
        let mut writer = begin(&log_of(by), "run_1", "s").await;
        for text in ["a note", "another"] {
            note(&mut writer, text).await;
        }
        append(&mut writer, finished()).await.unwrap();
        drop(writer);
        one.log().summary(&"run_1".into()).await.unwrap();
        two.delete_run(&"run_1".into()).await.unwrap();
    }
    drop(begin(&log_of(&two), "run_1", "s").await);
    let mut snapshot = Snapshot::take(&url).await;
    let mut writer = crate::support::resume(&log_of(&one), "run_1").await;
    note(&mut writer, "lost").await;
    drop(writer);
    snapshot.restore().await;
    assert!(matches!(refused(&one).await, LogError::LostTail { seq: 2, .. }));
}

/// Spec: J2, S10
#[tokio::test]
async fn removed_and_erased_events_are_no_loss() {
    let url = server!().database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let mut writer = begin(&log_of(&one), "run_1", "s").await;
    note(&mut writer, "private").await;
    drop(writer);
    let run = RunId::from("run_1");
    drop(crate::support::resume(&log_of(&two), "run_1").await);
    two.log().erase(&run, 2).await.unwrap();
    let mut writer = crate::support::resume(&log_of(&one), "run_1").await;
    append(&mut writer, finished()).await.unwrap();
    drop(writer);
    one.delete_run(&run).await.unwrap();
    drop(begin(&log_of(&one), "run_1", "s").await);
    drop(crate::support::resume(&log_of(&one), "run_1").await);
}

/// Spec: J2, J2w
#[tokio::test]
async fn workers_leave_a_run_with_a_lost_tail() {
    let (one, two) = set_back(&server!().database().await).await;
    let worker = WorkerRow::new(vec![("demo".into(), String::new())], Vec::new());
    let ready = async |database: &Database| {
        database.queue().ready(&worker, Look::new(8)).await.unwrap().len()
    };
    assert_eq!(ready(&two).await, 1);
    refused(&one).await;
    assert_eq!(ready(&two).await, 0);
}
