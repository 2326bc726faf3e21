//! Removals with other actors before, during and after them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{ErrorStore, Lookup};
use backstop_event_log::{
    Erasures, EventLog, KeyBinding, LogError, RunFilter, RunWriter, StartKey, StartKeys,
    read_events,
};
use backstop_retention::{RemoveError, StoreRetention};
use backstop_store_postgres::{Database, Enqueue, Options, Queue, QueueLimit};
use backstop_testkit::contract::{RemovalStore, RunQueue, removals};
use layer0::event::{EventKind, RunForked};
use layer0::id::{RunId, SessionId};
use layer0::operator::Task;
use sqlx::Connection;

use crate::support::{
    DAY, append, append_at, at, connection, count_waits, error, error_at, finished, fresh,
    hold_back, names, open, server, stage, started, until,
};

async fn over(log: &Arc<dyn EventLog>, run: &str, first: EventKind) {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    stage(&mut writer, first);
    append(&mut writer, finished()).await.unwrap();
}

/// Spec: S10. A table of each removal, each actor and each step between which it acts.
#[tokio::test(flavor = "multi_thread")]
async fn removals_meet_other_actors() {
    let url = server!().database().await;
    let (shelf, other) = (open(&url).await, open(&url).await);
    let (log, errors) = (Arc::new(other.log()), Arc::new(other.errors()));
    let queue: Arc<dyn RunQueue> = Arc::new(Worker(other));
    removals(RemovalStore { shelf, log, errors, queue: Some(queue) }).await;
}

#[derive(Debug)]
struct Worker(Database);

#[async_trait]
impl RunQueue for Worker {
    async fn put(&self, session: &SessionId) -> RunId {
        let request = Enqueue::new("demo", Task::text("pay the invoice")).session(session.clone());
        self.0.queue().enqueue(&request).await.unwrap().run
    }

    async fn take(&self) -> Option<RunId> {
        let queues = [QueueLimit::new(Queue::DEFAULT)];
        let taken = self.0.queue().take(&queues, &["demo"], 1, &[]).await.unwrap();
        taken.into_iter().next().map(|taken| taken.run)
    }
}

/// Spec: S10, J2. A session is forgotten while a worker has taken a queued run of it and not begun it yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_taken_is_open() {
    let server = server!();
    let url = server.database().await;
    let (worker, person) = (open(&url).await, open(&url).await);
    let mut request = Enqueue::new("demo", Task::text("pay the invoice")).queue("mail");
    request.session = Some("a".into());
    let queued = worker.queue().enqueue(&request).await.unwrap();
    let waiting = worker.queue().enqueue(&request.clone().queue("other")).await.unwrap();
    let taken = worker.queue().take(&[QueueLimit::new("mail")], &["demo"], 1, &[]).await.unwrap();
    assert_eq!(taken.len(), 1);
    let forgotten = person.forget_session(&"a".into(), "ada", false, at(9)).await;
    assert!(
        matches!(&forgotten, Err(RemoveError::Open(run)) if *run == queued.run),
        "{forgotten:?}"
    );
    // The worker died: its run waits again, and is removed with the other one.
    let mut looking = connection(&url).await;
    sqlx::query("UPDATE backstop.queue SET owner = NULL").execute(&mut looking).await.unwrap();
    let forgotten = person.forget_session(&"a".into(), "ada", false, at(9)).await.unwrap();
    assert!(forgotten.removed.runs.contains(&queued.run) && forgotten.removed.runs.len() == 2);
    for run in [&queued.run, &waiting.run] {
        let log: Arc<dyn EventLog> = Arc::new(worker.log());
        let mut writer = RunWriter::new(log, run.clone());
        let begun = append(&mut writer, started("a")).await;
        assert!(matches!(begun, Err(LogError::RunForgotten(_))), "{begun:?}");
    }
    assert!(names(&person).await.is_empty());
}

/// Spec: S10. What is old is decided by the clock of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_ahead_removes_nothing() {
    let server = server!();
    let url = server.database().await;
    let keeps = StoreRetention::default().runs(Duration::from_secs(30 * 24 * 60 * 60));
    let connect = async || {
        let options = Options::new(&url).unwrap().connections(3).retention(keeps);
        Database::connect_with(options).await.unwrap()
    };
    let (sound, ahead) = (connect().await, connect().await);
    let now = SystemClock.now();
    let ms = now.as_millis() - at(0).as_millis();
    let mut writer = RunWriter::new(Arc::new(sound.log()) as Arc<dyn EventLog>, "run_1".into());
    append_at(&mut writer, ms, vec![started("a"), finished()]).await;
    let text = sound.errors().store(error_at(ms, "a", "run_1", "sql", "boom")).await.unwrap();
    let key = StartKey::new("demo", "mail-7", &Task::text("pay"), None, &Default::default());
    let key = key.unwrap();
    let bind = async || sound.log().bind(&key, &"run_1".into(), now).await.unwrap();
    assert_eq!(bind().await, KeyBinding::New);
    let year = ms + 366 * DAY;
    ahead.errors().store(error_at(year, "b", "run_9", "sql", "boom")).await.unwrap();
    let pruned = ahead.prune_runs(Duration::from_secs(24 * 60 * 60), &[], at(year)).await;
    assert!(pruned.unwrap().runs.is_empty());
    for _ in 0..50 {
        assert_eq!(names(&sound).await.len(), 1);
        let found = sound.errors().find(&text.id).await.unwrap();
        assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    }
    assert_eq!(bind().await, KeyBinding::Earlier("run_1".into()));
}

/// A copy of the first event of `run_1`, which has not been appended.
async fn copy_of(log: &Arc<dyn EventLog>) -> RunWriter {
    let (_, events) = read_events(&**log, &"run_1".into()).await.unwrap();
    let records = log.records(&"run_1".into(), 1).await.unwrap();
    let mut copy =
        RunWriter::copy(Arc::clone(log), "run_copy".into(), &events[..1], records[..1].to_vec());
    stage(&mut copy, RunForked::new("run_copy", "ses_copy", "run_1", 1).into());
    copy
}

/// Spec: S10, D1. What is erased while it is copied does not come back with the copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_copies_no_erased_event() {
    let database = fresh(server!()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    let mut copy = copy_of(&log).await;
    log.erase(&"run_1".into(), 1).await.unwrap();
    let refused = copy.commit().await.map(|_| ());
    assert!(matches!(refused, Err(LogError::Erased { seq: 1, .. })), "{refused:?}");
}

/// Spec: S10, D1. A copy whose append is under way has seen the event, and is named.
#[tokio::test(flavor = "multi_thread")]
async fn erasure_names_a_copy_under_way() {
    let server = server!();
    let url = server.database().await;
    let (database, other) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    let mut copy = copy_of(&log).await;
    let holding = hold_back(&url, "run_copy").await;
    let copying = tokio::spawn(async move { copy.commit().await.map(|_| ()) });
    let mut looking = connection(&url).await;
    until("the copy waits", async || count_waits(&mut looking).await == 1).await;
    let erasing = tokio::spawn(async move { other.log().erase(&"run_1".into(), 1).await });
    until("the erasure waits or is over", async || {
        erasing.is_finished() || count_waits(&mut looking).await == 2
    })
    .await;
    holding.close().await.unwrap();
    copying.await.unwrap().unwrap();
    assert_eq!(erasing.await.unwrap().unwrap(), ["run_copy".into()]);
}

/// Spec: D1. What the first event says of labels is erased with it.
#[tokio::test(flavor = "multi_thread")]
async fn redaction_takes_labels_too() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let EventKind::RunStarted(mut first) = started("a") else { unreachable!() };
    first.labels = Arc::new([("customer".to_owned(), "eve@example.org".to_owned())].into());
    over(&log, "run_1", first.into()).await;
    log.erase(&"run_1".into(), 1).await.unwrap();
    let found = log.runs(RunFilter::new().label("customer", "eve@example.org")).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    let mut looking = connection(&url).await;
    let held: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM backstop.runs AS it WHERE it::text LIKE '%eve@example.org%'",
    )
    .fetch_one(&mut looking)
    .await
    .unwrap();
    assert_eq!(held, 0);
}

/// Spec: S10. A process died between the row of a run and its texts, and the run was copied back.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_spares_a_run_that_returned() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    let mut died = connection(&url).await;
    sqlx::query(
        "WITH gone AS (DELETE FROM backstop.runs WHERE run = 'run_1' RETURNING id, run) \
         INSERT INTO backstop.removed SELECT id, run FROM gone",
    )
    .execute(&mut died)
    .await
    .unwrap();
    over(&log, "run_1", started("a")).await;
    let text = database.errors().store(error("a", "run_1", "boom")).await.unwrap();
    database.prune_runs(Duration::from_secs(7 * 24 * 60 * 60), &[], at(0)).await.unwrap();
    let found = database.errors().find(&text.id).await.unwrap();
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    assert_eq!(database.delete_run(&"run_1".into()).await.unwrap().errors, 1);
}

/// Spec: S10. A process died while it forgot a session: what it stored is forgotten too, and not expired.
#[tokio::test(flavor = "multi_thread")]
async fn sweep_forgets_what_was_to_be_forgotten() {
    let server = server!();
    for is_silent in [true, false] {
        let url = server.database().await;
        let database = open(&url).await;
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        over(&log, "run_1", started("a")).await;
        let text = database.errors().store(error("a", "run_1", "boom")).await.unwrap();
        sqlx::query(
            "WITH gone AS (DELETE FROM backstop.runs WHERE run = 'run_1' RETURNING id, run) \
             INSERT INTO backstop.removed SELECT id, run, $1 FROM gone",
        )
        .bind(is_silent)
        .execute(&mut connection(&url).await)
        .await
        .unwrap();
        database.prune_runs(Duration::from_secs(7 * 24 * 60 * 60), &[], at(0)).await.unwrap();
        let found = database.errors().find(&text.id).await.unwrap();
        assert_eq!(found.is_expired(), !is_silent, "{found:?}");
    }
}

/// Spec: S10. A run is removed while another stores a text that both refer to.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_being_stored_stays() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    over(&log, "run_1", started("a")).await;
    let text = database.errors().store(error("a", "run_1", "boom")).await.unwrap();
    let mut other = connection(&url).await;
    let mut storing = other.begin().await.unwrap();
    sqlx::query(
        "WITH met AS (UPDATE backstop.errors SET occurrences = occurrences + 1 RETURNING id) \
         INSERT INTO backstop.refers SELECT 'run_2', id FROM met",
    )
    .execute(&mut *storing)
    .await
    .unwrap();
    let removing = {
        let database = database.clone();
        tokio::spawn(async move { database.delete_run(&"run_1".into()).await })
    };
    let mut looking = connection(&url).await;
    until("the removal waits", async || count_waits(&mut looking).await > 0).await;
    storing.commit().await.unwrap();
    assert_eq!(removing.await.unwrap().unwrap().errors, 0);
    let found = database.errors().find(&text.id).await.unwrap();
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
}
