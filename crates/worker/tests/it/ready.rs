//! Runs that a worker finds to resume.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, Inbox, RunState, RunWriter, Seed, read_events};
use backstop_store_postgres::{Look, WorkerRow};
use backstop_worker::Worker;
use layer0::event::{Actor, AgentRecord, EventKind, RunParked, RunStarted};
use sqlx::PgConnection;

use crate::place::{Place, begin, connect, direct_and_pooled_checks};
use crate::support::{AtWork, Gate, asking, caller, calling, is_in, open, put};

direct_and_pooled_checks![
    parked_runs_are_in_the_way_of_none,
    expired_approval_ends_its_wait,
    expired_approval_of_a_child_ends_the_wait,
    locked_server_holds_up_no_leaving,
];

/// Spec: J2w. Those that are not due do not count among the runs that are looked for, however many there are.
async fn parked_runs_are_in_the_way_of_none(place: Place) {
    let (database, url) = place.fresh().await;
    let left = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(left.log());
    let now = SystemClock.now();
    let record = async |number: usize, parked_for: Option<Duration>| {
        let mut writer = RunWriter::new(Arc::clone(&log), format!("run_{number}").into());
        let agent = AgentRecord::new("agent", "digest", serde_json::json!({"name": "agent"}));
        let started = RunStarted::new("go", format!("s-{number}").into(), agent);
        let parked = parked_for
            .map(|wait| RunParked::new(now.after(wait), "provider.rate_limited", "later").into());
        for kind in [EventKind::from(started)].into_iter().chain(parked) {
            writer.stage(&Seed::new("test"), now, Actor::Runtime, None, kind);
        }
        writer.commit().await.unwrap();
    };
    for number in 0..300 {
        record(number, Some(Duration::from_secs(3_600))).await;
    }
    record(300, Some(Duration::ZERO)).await;
    record(301, None).await;
    left.close().await;
    let worker = WorkerRow::new(vec![("agent".into(), "digest".into())], vec!["default".into()]);
    let found = async |look: Look<'_>| -> Vec<String> {
        let ready = database.queue().ready(&worker, look).await.unwrap();
        ready.into_iter().map(|ready| ready.run.to_string()).collect()
    };
    assert_eq!(found(Look::new(10)).await, ["run_300", "run_301"]);
    assert_eq!(found(Look::new(1)).await, ["run_300"]);
    assert_eq!(found(Look::new(10).with_paused(&["run_300"])).await, ["run_301"]);
    assert_eq!(found(Look::new(10).with_parked(false)).await, ["run_301"]);
}

/// Spec: J2w, A1. Nobody decides, and no process has the run when the time is over.
async fn expired_approval_ends_its_wait(place: Place) {
    let (database, url) = place.fresh().await;
    let other = open(&url).await;
    let mut gate = Gate::new();
    gate.needs_approval(Duration::from_millis(1_500));
    let worker = AtWork::start(Worker::builder(&other).operator(calling(&other, gate)));
    let (run, behind) = (
        put(&database, &asking("agent").session("s")).await,
        put(&database, &asking("agent").session("s")).await,
    );
    is_in(&database, &run, RunState::WaitingApproval).await;
    is_in(&database, &run, RunState::Finished).await;
    let (_, events) = read_events(&database.log(), &run).await.unwrap();
    let expired = |kind: &EventKind| format!("{kind:?}").contains("approval.expired");
    assert!(events.iter().any(|event| expired(&event.kind)), "{events:#?}");
    is_in(&database, &behind, RunState::Finished).await;
    worker.stop().await;
}

/// Spec: J2w, A1. The run that waits is the caller, and the approval is its child's.
async fn expired_approval_of_a_child_ends_the_wait(place: Place) {
    let (database, url) = place.fresh().await;
    let other = open(&url).await;
    let mut gate = Gate::new();
    gate.needs_approval(Duration::from_millis(1_500));
    let clerk = caller(&other, gate).name("clerk").build().unwrap();
    let lead = calling(&other, clerk.as_tool("Goes through the gate."));
    let worker = AtWork::start(Worker::builder(&other).operator(lead));
    let run = put(&database, &asking("agent")).await;
    is_in(&database, &run, RunState::WaitingApproval).await;
    let log = database.log();
    let open = log.open_approvals().await.unwrap();
    assert!(open.iter().all(|approval| approval.run != run), "{open:?}");
    is_in(&database, &run, RunState::Finished).await;
    assert!(log.open_approvals().await.unwrap().is_empty());
    worker.stop().await;
}

/// Spec: J2w. What the worker waits for at the server is not waited for once it is told to leave.
async fn locked_server_holds_up_no_leaving(place: Place) {
    let (database, url) = place.fresh().await;
    let other = open(&url).await;
    let worker = AtWork::start(Worker::builder(&other).operator(calling(&other, Gate::new())));
    let mut locking = connect(&url).await;
    while count_workers(&mut locking).await == 0 {
        tokio::task::yield_now().await;
    }
    let mut locking = begin(&mut locking).await;
    let lock =
        "LOCK TABLE backstop.queue, backstop.processes, backstop.runs IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut *locking).await.unwrap();
    worker.stop().await;
    locking.rollback().await.unwrap();
    drop(database);
}

/// Counts the registered workers. The transaction keeps the connection of the server behind a proxy, which may give
/// each message outside of one to another connection.
async fn count_workers(connection: &mut PgConnection) -> i64 {
    let mut counting = begin(connection).await;
    let count = sqlx::query_scalar("SELECT count(*) FROM backstop.workers")
        .fetch_one(&mut *counting)
        .await
        .unwrap();
    counting.rollback().await.unwrap();
    count
}
