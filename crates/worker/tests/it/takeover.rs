//! Runs whose worker is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Log, LogError, RunState, read_events};
use backstop_store_postgres::Database;
use backstop_worker::Worker;
use layer0::event::EventKind;
use layer0::id::RunId;

use crate::place::Place;
use crate::support::{
    AtWork, Gate, answering, asking, calling, is_in, open, open_with_lease, put, summary,
};

/// Variables of the test that acts as another process: its database, and the time of its lease.
const URL: &str = "BACKSTOP_TEST_WORKER_URL";
const LEASE: &str = "BACKSTOP_TEST_WORKER_LEASE_MS";
const HOUR: Duration = Duration::from_secs(3600);

/// Another process that works on runs, and whose tool does not end. It is killed long before it ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let lease: u64 = std::env::var(LEASE).unwrap().parse().unwrap();
    let database = open_with_lease(&url, Duration::from_millis(lease)).await;
    let gate = Gate::new();
    let agent = calling(&database, gate.again());
    let _worker = AtWork::start(Worker::builder(&database).operator(agent));
    gate.has_begun(1).await;
    println!("\nthe tool has begun");
    SystemClock.sleep(Duration::from_secs(120)).await;
}

/// Starts another process with a lease, and kills it in the middle of a run.
fn start_and_kill(url: &str, lease: Duration) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "takeover::worker_process", "--nocapture"]);
    process.env(URL, url).env(LEASE, lease.as_millis().to_string());
    let mut process = Killed(process.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let has_begun = lines.any(|line| line.unwrap() == "the tool has begun");
    assert!(has_begun, "the process has ended");
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a run whose worker, with such a lease, is killed while its tool is open.
async fn left_run(place: Place, lease: Duration) -> (Database, String, RunId) {
    let (database, url) = place.fresh().await;
    let run = put(&database, &asking("agent")).await;
    let process = url.clone();
    tokio::task::spawn_blocking(move || start_and_kill(&process, lease)).await.unwrap();
    (database, url, run)
}

/// Checks that another worker ends a run whose worker was killed, and does not call the tool again.
async fn is_taken_over(place: Place, lease: Duration) {
    let (database, url, run) = left_run(place, lease).await;
    let gate = Gate::new();
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(calling(&other, gate.again())));
    is_in(&database, &run, RunState::Finished).await;
    worker.stop().await;
    assert_eq!(gate.begun.available_permits(), 0, "the tool is not called again");
    let (_, events) = read_events(&database.log(), &run).await.unwrap();
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => answer.error.as_ref().map(|it| it.reason.to_string()),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), ["tool.interrupted"]);
}

/// Spec: J2w, J2. The lease of the killed process would last for an hour: its lock says that it is dead.
#[tokio::test(flavor = "multi_thread")]
async fn lock_gives_runs_of_killed_worker_away() {
    let Some(place) = Place::direct() else { return };
    is_taken_over(place, HOUR).await;
}

/// Spec: J2w, J2. There is no lock behind the proxy, and the lease has to end first.
#[tokio::test(flavor = "multi_thread")]
async fn ended_lease_gives_runs_of_killed_worker_away() {
    let Some(place) = Place::pooled() else { return };
    is_taken_over(place, Duration::from_secs(2)).await;
}

/// Spec: J2w, J2. Behind the proxy, a worker that was killed is taken for alive until its lease ends; other runs go on.
#[tokio::test(flavor = "multi_thread")]
async fn lease_of_killed_worker_is_waited_for() {
    let Some(place) = Place::pooled() else { return };
    let (database, url, run) = left_run(place, HOUR).await;
    let gate = Gate::new();
    let other = open(&url).await;
    let agents = Worker::builder(&other).operator(answering(&other, "plain"));
    let worker = AtWork::start(agents.operator(calling(&other, gate.again())));
    // More looks than a lock that is free is given.
    for _ in 0..3 {
        let beside = put(&database, &asking("plain")).await;
        is_in(&database, &beside, RunState::Finished).await;
        SystemClock.sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(summary(&database, &run).await.unwrap().state, RunState::Running);
    let refused = database.log().claim(&run).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "{refused:?}");
    worker.stop().await;
}
