//! Which run a worker takes next.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Decision, EventLog, Inbox, RunState, RunWriter, Seed};
use backstop_react::decide;
use backstop_store_postgres::Database;
use backstop_worker::{RunChange, Worker, WorkerReport};
use layer0::event::{Actor, AgentRecord, EventKind, RunFinished, RunStarted};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use tokio::sync::broadcast::Receiver;

use crate::place::{Place, direct_and_pooled_checks};
use crate::support::{AtWork, Gate, answering, asking, calling, is_in, open, put};

direct_and_pooled_checks![busy_session_puts_its_run_off, resumed_runs_starve_no_new_one];

/// Waits for the next change of a run.
async fn change(reports: &mut Receiver<WorkerReport>) -> RunChange {
    loop {
        let report = tokio::select! {
            report = reports.recv() => report.unwrap(),
            () = SystemClock.sleep(Duration::from_secs(60)) => panic!("nothing more is reported"),
        };
        if let WorkerReport::Run(change) = report {
            return change;
        }
    }
}

/// Waits until the worker begins a run, and returns it.
async fn begun(reports: &mut Receiver<WorkerReport>) -> RunId {
    loop {
        if let RunChange::Begun { run, .. } = change(reports).await {
            return run;
        }
    }
}

/// A branch of another run in a session, which is open.
async fn open_branch(database: &Database, session: &str) -> RunWriter {
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = RunWriter::new(log, "run_branch".into());
    let agent = AgentRecord::new("elsewhere", "d", serde_json::json!({"name": "elsewhere"}));
    let mut started = RunStarted::new("hello", session.into(), agent);
    started.branch_of = Some("run_beside".into());
    append(&mut writer, started.into()).await;
    writer
}

async fn append(writer: &mut RunWriter, kind: EventKind) {
    writer.stage(&Seed::new("test"), SystemClock.now(), Actor::Runtime, None, kind);
    writer.commit().await.unwrap();
}

/// Spec: J2w. A run whose session has another open run is tried again, later than those behind it.
async fn busy_session_puts_its_run_off(place: Place) {
    let (database, url) = place.fresh().await;
    let mut branch = open_branch(&database, "s").await;
    let (busy, behind) = (
        put(&database, &asking("agent").session("s")).await,
        put(&database, &asking("agent")).await,
    );
    let other = open(&url).await;
    let builder = Worker::builder(&other).operator(answering(&other, "agent"));
    let (worker, mut reports) = AtWork::subscribe(builder.concurrency(1));
    assert_eq!(begun(&mut reports).await, busy);
    let put_off = change(&mut reports).await;
    assert!(
        matches!(&put_off, RunChange::PutOff { run, code, .. } if *run == busy && code == "run.open"),
        "{put_off:?}"
    );
    assert_eq!(begun(&mut reports).await, behind, "it is not tried again at once");
    is_in(&database, &behind, RunState::Finished).await;
    let over = RunFinished::new(Outcome::Completed, "done", Usage::default());
    append(&mut branch, over.into()).await;
    is_in(&database, &busy, RunState::Finished).await;
    worker.stop().await;
}

/// Spec: J2w. Whenever a place is free, some run can be resumed, and each takes longer than the time between two looks.
async fn resumed_runs_starve_no_new_one(place: Place) {
    let (database, url) = place.fresh().await;
    let mut gate = Gate::new();
    gate.needs_approval(Duration::from_secs(3_600));
    let first = open(&url).await;
    let worker = AtWork::start(Worker::builder(&first).operator(calling(&first, gate.again())));
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(put(&database, &asking("agent")).await);
    }
    for run in &waiting {
        is_in(&database, run, RunState::WaitingApproval).await;
    }
    worker.stop().await;
    first.close().await;
    let log = database.log();
    for approval in log.open_approvals().await.unwrap() {
        let agreed = Decision::approve("ops");
        decide(&log, &approval.id, agreed, SystemClock.now()).await.unwrap();
    }
    let new = put(&database, &asking("plain")).await;
    let other = open(&url).await;
    let builder = Worker::builder(&other).operator(answering(&other, "plain"));
    let builder = builder.operator(calling(&other, gate.again())).concurrency(1);
    let (worker, mut reports) = AtWork::subscribe(builder);
    let mut resumed = 0;
    while begun(&mut reports).await != new {
        resumed += 1;
        assert!(resumed < waiting.len(), "all runs with a record go before the new one");
        gate.has_begun(1).await;
        SystemClock.sleep(Duration::from_millis(700)).await;
        gate.open.add_permits(1);
    }
    gate.open.add_permits(waiting.len());
    for run in &waiting {
        is_in(&database, run, RunState::Finished).await;
    }
    worker.stop().await;
}
