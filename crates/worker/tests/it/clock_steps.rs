//! A process whose time of day is set by an hour while it works.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{RunState, read_events};
use backstop_react::RunRequest;
use backstop_testkit::{PostgresServer, is_own_process};
use backstop_worker::Worker;
use layer0::event::EventKind;
use layer0::id::RunId;

use crate::place::connect;
use crate::support::{
    AtWork, Gate, answering, asking, calling, is_in, open, open_with_lease, put, summary,
};

const HOUR_MS: i64 = 60 * 60 * 1_000;
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

/// A step of the time of day, which is taken back when this is dropped.
struct Step(i64);

impl Step {
    fn by(ms: i64) -> Self {
        SystemClock::set_time_of_day(ms);
        Self(ms)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        SystemClock::set_time_of_day(-self.0);
    }
}

/// Spec: J2, J2w. What is taken, taken over, due or expired is decided by the clock of the server, and leases are
/// measured.
#[tokio::test(flavor = "multi_thread")]
async fn worker_with_a_set_clock_works_on() {
    if !is_own_process("clock_steps::worker_with_a_set_clock_works_on") {
        return;
    }
    let Some(server) = PostgresServer::shared() else { return };
    for by in [HOUR_MS, -HOUR_MS] {
        keeps_its_runs(&server.database().await, by).await;
        takes_over_what_others_left(&server.database().await, by).await;
        starts_what_is_due(&server.database().await, by).await;
    }
    expires_nothing_early(&server.database().await).await;
    enqueued_run_is_due_at_once(&server.database().await).await;
}

/// Counts the renewals of the leases of all processes until there were some.
async fn renewed(url: &str) {
    let mut sql = connect(url).await;
    let mut leases = async || -> Vec<String> {
        let leases = "SELECT lease_until::text FROM backstop.processes ORDER BY id";
        sqlx::query_scalar(leases).fetch_all(&mut sql).await.unwrap()
    };
    for _ in 0..3 {
        let before = leases().await;
        while leases().await == before {
            SystemClock.sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A run whose tool is at work when the clock is set stays with its worker, and the tool is called once.
async fn keeps_its_runs(url: &str, by: i64) {
    let (database, other) = (open(url).await, open(url).await);
    let gate = Gate::new();
    let run = put(&database, &asking("agent")).await;
    let worker =
        AtWork::start(Worker::builder(&database).operator(calling(&database, gate.again())));
    gate.has_begun(1).await;
    let beside = AtWork::start(Worker::builder(&other).operator(calling(&other, gate.again())));
    let step = Step::by(by);
    renewed(url).await;
    gate.open.add_permits(1);
    is_in(&database, &run, RunState::Finished).await;
    drop(step);
    assert_eq!(gate.begun.available_permits(), 0, "the tool is called once");
    assert!(!is_recovered(&database, &run).await, "{by}: no other process has it");
    worker.stop().await;
    beside.stop().await;
}

async fn is_recovered(database: &backstop_store_postgres::Database, run: &RunId) -> bool {
    let (_, events) = read_events(&database.log(), run).await.unwrap();
    events.iter().any(|event| matches!(event.kind, EventKind::RunRecovered(_)))
}

/// A run that a dead process left is found, also while the time of day catches up.
async fn takes_over_what_others_left(url: &str, by: i64) {
    let (left, working) = (open(url).await, open_with_lease(url, Duration::from_secs(300)).await);
    let gate = Gate::new();
    let agent = calling(&left, gate.again());
    let running =
        tokio::spawn(async move { agent.run(RunRequest::new("go").run("run_1".into())).await });
    gate.has_begun(1).await;
    let builder = Worker::builder(&working).operator(calling(&working, gate.again()));
    let worker = AtWork::start(builder.operator(answering(&working, "plain")));
    // It has looked before.
    let beside = put(&working, &asking("plain")).await;
    is_in(&working, &beside, RunState::Finished).await;
    let _step = Step::by(by);
    running.abort();
    let free = "UPDATE backstop.runs SET owner = NULL";
    sqlx::raw_sql(free).execute(&mut connect(url).await).await.unwrap();
    let run = RunId::from("run_1");
    is_in(&working, &run, RunState::Finished).await;
    assert!(is_recovered(&working, &run).await);
    worker.stop().await;
}

/// Half an hour is not over by a clock that is an hour ahead, and what is due is due by one that is behind.
async fn starts_what_is_due(url: &str, by: i64) {
    let database = open(url).await;
    let now = SystemClock.now();
    let late = put(&database, &asking("agent").not_before(now.after(HALF_AN_HOUR))).await;
    let due = put(&database, &asking("agent").not_before(now)).await;
    let _step = Step::by(by);
    let other = open(url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(answering(&other, "agent")));
    is_in(&database, &due, RunState::Finished).await;
    let behind = put(&database, &asking("agent")).await;
    is_in(&database, &behind, RunState::Finished).await;
    assert!(summary(&database, &late).await.is_none(), "{by}: it is not due");
    worker.stop().await;
}

/// An approval that a person may still give is not expired by a worker whose clock is ahead.
async fn expires_nothing_early(url: &str) {
    let (database, other) = (open(url).await, open(url).await);
    let mut gate = Gate::new();
    gate.needs_approval(HALF_AN_HOUR);
    let agent = calling(&other, gate.again());
    let worker = AtWork::start(Worker::builder(&other).operator(agent));
    let run = put(&database, &asking("agent")).await;
    is_in(&database, &run, RunState::WaitingApproval).await;
    worker.stop().await;
    let _step = Step::by(HOUR_MS);
    let next = open(url).await;
    let builder = Worker::builder(&next).operator(answering(&next, "plain"));
    let worker = AtWork::start(builder.operator(calling(&next, gate)).concurrency(1));
    for _ in 0..3 {
        let beside = put(&database, &asking("plain")).await;
        is_in(&database, &beside, RunState::Finished).await;
        // One more look for runs that can be resumed.
        SystemClock.sleep(Duration::from_millis(600)).await;
    }
    assert_eq!(summary(&database, &run).await.unwrap().state, RunState::WaitingApproval);
    worker.stop().await;
}

/// A run of a process whose clock is ahead does not wait for that clock.
async fn enqueued_run_is_due_at_once(url: &str) {
    let database = open(url).await;
    let _step = Step::by(HOUR_MS);
    put(&database, &asking("agent")).await;
    let is_due = "SELECT not_before <= extract(epoch FROM now()) * 1000 FROM backstop.queue";
    let is_due: bool = sqlx::query_scalar(is_due).fetch_one(&mut connect(url).await).await.unwrap();
    assert!(is_due);
}
