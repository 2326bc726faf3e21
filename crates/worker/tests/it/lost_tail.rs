//! Runs whose server comes back without events that it had acknowledged.

use backstop_event_log::{LostTails, RunState, read_events};
use backstop_orchestrator::LocalOrchestrator;
use backstop_react::{Agent, ResumeRequest};
use backstop_store_postgres::{Database, Look, Queue, QueueFilter, QueueLimit, WorkerRow};
use backstop_worker::{RunChange, Worker, WorkerReport};
use layer0::Orchestrator;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::operator::{Context, Task};
use layer0::stop::Stop;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use tokio::sync::broadcast::Receiver;

use crate::support::{AtWork, Gate, asking, calling, is_in, open, put, until};

/// The rows of all runs as they were at a moment.
struct Snapshot(PgConnection);

impl Snapshot {
    async fn take(url: &str) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let mut connection = options.connect().await.unwrap();
        for table in ["runs", "events", "queue"] {
            let copy = format!("CREATE TEMP TABLE old_{table} AS SELECT * FROM backstop.{table}");
            sqlx::raw_sql(AssertSqlSafe(copy)).execute(&mut connection).await.unwrap();
        }
        Self(connection)
    }

    /// Sets the rows back, as a server does that was restored; no run has an owner.
    async fn restore(&mut self) {
        let back = |table: &str| {
            format!(
                "DELETE FROM backstop.{table}; \
                 INSERT INTO backstop.{table} OVERRIDING SYSTEM VALUE SELECT * FROM old_{table};"
            )
        };
        let rows: String = ["runs", "events", "queue"].map(back).concat();
        let free = "UPDATE backstop.runs SET owner = NULL; UPDATE backstop.queue SET owner = NULL";
        let all = format!("BEGIN; {rows} {free}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(all)).execute(&mut self.0).await.unwrap();
    }
}

/// Waits until a run is reported as put off or refused, and returns the code.
async fn hindrance(reports: &mut Receiver<WorkerReport>) -> String {
    loop {
        let report = reports.recv().await.unwrap();
        if let WorkerReport::Run(RunChange::PutOff { code, .. } | RunChange::Refused { code, .. }) =
            report
        {
            return code;
        }
    }
}

async fn is_ready(database: &Database) -> bool {
    let worker = WorkerRow::new(vec![("agent".into(), String::new())], Vec::new());
    !database.queue().ready(&worker, Look::new(8)).await.unwrap().is_empty()
}

/// Returns the code with which another attempt of an orchestrator fails.
async fn dispatched_again(agent: Agent, run: &RunId) -> String {
    let orchestrator = LocalOrchestrator::builder().operator(agent).build().unwrap();
    let mut context = Context::root();
    (context.run, context.goes_on, context.is_recorded) = (Some(run.clone()), true, true);
    let failed = orchestrator.dispatch("agent", Task::text("go"), context).await;
    failed.unwrap_err().code().to_owned()
}

/// Spec: J2, J2w. A call that was answered is not made again, by whomever, until a person accepts the loss.
#[tokio::test(flavor = "multi_thread")]
async fn lost_tail_ends_all_work_on_its_run() {
    let Some(server) = backstop_testkit::PostgresServer::shared() else { return };
    let url = server.database().await;
    let (database, gate) = (open(&url).await, Gate::new());
    let builder = Worker::builder(&database).operator(calling(&database, gate.again()));
    let (worker, mut reports) = AtWork::subscribe(builder);
    let run = put(&database, &asking("agent")).await;
    gate.has_begun(1).await;
    let mut snapshot = Snapshot::take(&url).await;
    gate.open.add_permits(8);
    is_in(&database, &run, RunState::Finished).await;
    until(async || {
        database.queue().list(&QueueFilter::default()).await.unwrap().is_empty().then_some(())
    })
    .await;
    snapshot.restore().await;
    assert_eq!(hindrance(&mut reports).await, "log.lost_tail");
    assert!(!is_ready(&database).await, "no worker takes it again");

    let other = open(&url).await;
    let agent = || calling(&other, gate.again());
    let refused = agent().resume(run.clone()).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_retryable()), ("log.lost_tail", false));
    assert_eq!(dispatched_again(agent(), &run).await, "log.lost_tail");
    assert_eq!(gate.begun.available_permits(), 0, "the call was made once");

    let accepting = ResumeRequest::new(run.clone()).by("ops").accept_lost_tail();
    let outcome = agent().resume(accepting).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    assert_eq!(gate.begun.available_permits(), 0, "it may have acted");
    let (_, events) = read_events(&other.log(), &run).await.unwrap();
    let accepted = events.iter().find_map(|event| match &event.kind {
        EventKind::RunResumed(resumed) => resumed.lost_tail,
        _ => None,
    });
    assert!(accepted.is_some(), "the record says so");
    assert!(other.log().lost_tails().await.unwrap().is_empty());
    backstop_react::replay(&other.log(), &run).await.unwrap();
    worker.stop().await;
}

/// Spec: J2, J2w. A run that has lost its whole record is not begun again, though it is in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn run_without_its_record_stays_in_the_queue() {
    let Some(server) = backstop_testkit::PostgresServer::shared() else { return };
    let url = server.database().await;
    let (database, gate) = (open(&url).await, Gate::new());
    let run = put(&database, &asking("agent")).await;
    let mut snapshot = Snapshot::take(&url).await;
    let builder = Worker::builder(&database).operator(calling(&database, gate.again()));
    let (worker, mut reports) = AtWork::subscribe(builder);
    gate.has_begun(1).await;
    snapshot.restore().await;
    gate.open.add_permits(8);
    assert_eq!(hindrance(&mut reports).await, "log.lost_tail");
    let queues = [QueueLimit::new(Queue::DEFAULT)];
    let taken = database.queue().take(&queues, &["agent"], 8, &[]).await.unwrap();
    assert!(taken.is_empty(), "no worker takes it again");
    assert_eq!(database.log().lost_tails().await.unwrap()[0].run, run);
    assert_eq!(gate.begun.available_permits(), 0, "the call was made once");
    assert!(database.queue().cancel(&run).await.unwrap(), "a person takes it out");
    assert!(database.log().lost_tails().await.unwrap().is_empty());
    worker.stop().await;
}
