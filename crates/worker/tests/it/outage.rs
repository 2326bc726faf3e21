//! Reports of a worker while its database is away.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::RunState;
use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;
use backstop_worker::{Worker, WorkerReport};
use tokio::sync::broadcast::Receiver;

use crate::support::{AtWork, answering, asking, is_in, put};

/// Starts a worker that has ended a run, on a database that fails at once while its server is away.
async fn at_work(
    server: &PostgresServer,
    lease: Duration,
) -> (Database, AtWork, Receiver<WorkerReport>) {
    let options = Options::new(&server.database().await).unwrap().connections(4).lease(lease);
    let options = options.patience(Duration::from_millis(200));
    let database = Database::connect_with(options).await.unwrap();
    let worker = Worker::builder(&database).operator(answering(&database, "agent"));
    let (worker, reports) = AtWork::subscribe(worker);
    works(&database).await;
    (database, worker, reports)
}

/// Stops a worker, which reports nothing more about itself.
async fn leaves(worker: AtWork, mut reports: Receiver<WorkerReport>) {
    worker.stop().await;
    while let Ok(report) = reports.try_recv() {
        assert!(matches!(report, WorkerReport::Run(_)), "{report:?}");
    }
}

/// Waits until the worker has ended a run.
async fn works(database: &Database) {
    let run = put(database, &asking("agent")).await;
    is_in(database, &run, RunState::Finished).await;
}

/// Waits for the next report about the worker itself.
async fn next(reports: &mut Receiver<WorkerReport>) -> WorkerReport {
    let own = async {
        loop {
            match reports.recv().await.unwrap() {
                WorkerReport::Run(_) => {}
                report => return report,
            }
        }
    };
    tokio::select! {
        report = own => report,
        () = SystemClock.sleep(Duration::from_secs(60)) => panic!("nothing is reported"),
    }
}

async fn is_away(reports: &mut Receiver<WorkerReport>) {
    match next(reports).await {
        WorkerReport::DatabaseAway { code, message, .. } => {
            assert_eq!(code, "store.failed");
            assert!(message.starts_with("log cannot be reached: "), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

async fn is_back(reports: &mut Receiver<WorkerReport>) {
    match next(reports).await {
        WorkerReport::DatabaseBack { after, .. } => assert!(after > Duration::ZERO),
        other => panic!("{other:?}"),
    }
}

/// Spec: J2w, J2. It is told once, however often the server is tried.
#[tokio::test(flavor = "multi_thread")]
async fn outage_is_reported_once() {
    let Some(server) = PostgresServer::start() else { return };
    let (database, worker, mut reports) = at_work(&server, Duration::from_secs(3_600)).await;
    for _ in 0..2 {
        server.kill();
        is_away(&mut reports).await;
        // A few tries.
        SystemClock.sleep(Duration::from_secs(2)).await;
        assert!(reports.is_empty(), "{:?}", reports.recv().await);
        server.start_again();
        is_back(&mut reports).await;
        works(&database).await;
    }
    leaves(worker, reports).await;
}

/// Spec: J2w, J2
#[tokio::test(flavor = "multi_thread")]
async fn lease_that_ends_is_reported() {
    let Some(server) = PostgresServer::start() else { return };
    let (database, worker, mut reports) = at_work(&server, Duration::from_secs(3)).await;
    server.kill();
    is_away(&mut reports).await;
    assert_eq!(next(&mut reports).await, WorkerReport::LeaseLost);
    server.start_again();
    is_back(&mut reports).await;
    works(&database).await;
    leaves(worker, reports).await;
}

/// Spec: J2w, J2. A connection that is lost and made again at once is not told.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_are_no_outage() {
    let Some(server) = PostgresServer::start() else { return };
    let (database, worker, reports) = at_work(&server, Duration::from_secs(3_600)).await;
    for _ in 0..3 {
        let lease = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
            JOIN pg_locks USING (pid) WHERE locktype = 'advisory'";
        server.execute(lease).await;
        SystemClock.sleep(Duration::from_secs(1)).await;
    }
    works(&database).await;
    leaves(worker, reports).await;
}
