//! Distribution of runs among workers.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Decision, Inbox, RunState, current_agent, read_events};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, decide};
use backstop_store_postgres::{Database, QueueFilter, QueueLimit, QueueState};
use backstop_worker::{Worker, WorkerBuildError};
use layer0::Operator;
use layer0::message::Message;

use crate::place::{Place, direct_and_pooled_checks};
use crate::support::{
    AtWork, Gate, answering, asking, caller, calling, is_in, open, put, summary, until,
};

direct_and_pooled_checks![
    runs_of_a_session_keep_their_order,
    waiting_run_holds_back_its_session,
    limits_of_queue_and_process_hold,
    limit_holds_for_runs_that_were_approved,
    another_definition_is_adopted_if_asked,
    worker_needs_what_keeps_a_record,
];

/// Spec: J2w
async fn runs_of_a_session_keep_their_order(place: Place) {
    let (database, url) = place.fresh().await;
    let mut runs = Vec::new();
    for number in 0..12 {
        let session = format!("s{}", number % 3);
        runs.push(put(&database, &asking("agent").session(session)).await);
    }
    let others = [open(&url).await, open(&url).await, open(&url).await];
    let workers: Vec<_> = others
        .iter()
        .map(|it| AtWork::start(Worker::builder(it).operator(answering(it, "agent"))))
        .collect();
    let mut ended = Vec::new();
    for run in &runs {
        ended.push(is_in(&database, run, RunState::Finished).await);
    }
    for (earlier, later) in ended.iter().zip(&ended[3..]) {
        assert_eq!(earlier.session, later.session);
        assert!(earlier.finished_at.unwrap() <= later.started_at, "{earlier:?} {later:?}");
        assert_eq!(later.follows.as_ref(), Some(&earlier.run));
    }
    for worker in workers {
        assert!(worker.stop().await.at_rest);
    }
}

/// Spec: J2w. One that waits holds back its session, not the queue; what comes to it is heard by any worker.
async fn waiting_run_holds_back_its_session(place: Place) {
    let (database, url) = place.fresh().await;
    let gate = Gate::new();
    gate.open.add_permits(100);
    let waiting = put(&database, &asking("agent").session("s")).await;
    let behind = put(&database, &asking("plain").session("s")).await;
    let beside = put(&database, &asking("plain")).await;
    let other = open(&url).await;
    let builder = Worker::builder(&other).operator(answering(&other, "plain"));
    let agent = waiting_for_approval(&other, &gate);
    let worker = AtWork::start(builder.operator(agent).concurrency(1));
    is_in(&database, &waiting, RunState::WaitingApproval).await;
    is_in(&database, &beside, RunState::Finished).await;
    let listed = database.queue().list(&QueueFilter::new()).await.unwrap();
    let states: Vec<_> = listed.iter().map(|entry| (&entry.run, entry.state)).collect();
    let expected = [(&waiting, QueueState::WaitingApproval), (&behind, QueueState::Queued)];
    assert_eq!(states, expected);
    let approval = database.log().open_approvals().await.unwrap().remove(0);
    let now = SystemClock.now();
    decide(&database.log(), &approval.id, Decision::approve("ops"), now).await.unwrap();
    is_in(&database, &waiting, RunState::Finished).await;
    is_in(&database, &behind, RunState::Finished).await;
    worker.stop().await;
}

/// Spec: J2w. The limit of a queue counts the runs of all workers together.
async fn limits_of_queue_and_process_hold(place: Place) {
    let (database, url) = place.fresh().await;
    for _ in 0..9 {
        put(&database, &asking("agent")).await;
    }
    let gate = Gate::new();
    let others = [open(&url).await, open(&url).await];
    let workers: Vec<_> = others
        .iter()
        .map(|it| {
            let builder = Worker::builder(it).operator(calling(it, gate.again())).concurrency(2);
            AtWork::start(builder.queue(QueueLimit::new("default").limit(3)))
        })
        .collect();
    gate.has_begun(3).await;
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    assert_eq!(gate.begun.available_permits(), 0, "no fourth one is started");
    gate.open.add_permits(9);
    gate.has_begun(6).await;
    until(async || {
        database.queue().list(&QueueFilter::new()).await.unwrap().is_empty().then_some(())
    })
    .await;
    for worker in workers {
        worker.stop().await;
    }
}

/// Returns an agent that calls its tool once a person has approved it.
fn waiting_for_approval(database: &Database, gate: &Gate) -> Agent {
    caller(database, gate.again()).require_approval("gate").build().unwrap()
}

/// Spec: J2w. Those that wait for a person are not at work; once they are, they count in all workers together.
async fn limit_holds_for_runs_that_were_approved(place: Place) {
    let (database, url) = place.fresh().await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(put(&database, &asking("agent")).await);
    }
    let gate = Gate::new();
    let others = [open(&url).await, open(&url).await];
    let workers: Vec<_> = others
        .iter()
        .map(|it| {
            let builder = Worker::builder(it).operator(waiting_for_approval(it, &gate));
            AtWork::start(builder.queue(QueueLimit::new("default").limit(1)))
        })
        .collect();
    for run in &runs {
        is_in(&database, run, RunState::WaitingApproval).await;
    }
    for approval in database.log().open_approvals().await.unwrap() {
        let now = SystemClock.now();
        decide(&database.log(), &approval.id, Decision::approve("ops"), now).await.unwrap();
    }
    gate.has_begun(1).await;
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    assert_eq!(gate.begun.available_permits(), 0, "no second one is gone on with");
    gate.open.add_permits(4);
    for run in &runs {
        is_in(&database, run, RunState::Finished).await;
    }
    for worker in workers {
        worker.stop().await;
    }
}

/// Spec: J2w. A run that its process left goes on with the agent that it began with, and is stranded where no worker
/// has that.
async fn another_definition_is_adopted_if_asked(place: Place) {
    let (database, url) = place.fresh().await;
    let run = put(&database, &asking("agent")).await;
    let gate = Gate::new();
    let first = open(&url).await;
    let worker = AtWork::start(
        Worker::builder(&first).operator(calling(&first, gate.again())).drain(Duration::ZERO),
    );
    gate.has_begun(1).await;
    let end = worker.stop().await;
    assert!(!end.at_rest, "a tool was open");
    gate.open.add_permits(9);

    let changed = open(&url).await;
    let agent = |instructions: &str| {
        let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
        let agent = Agent::builder(model).name("agent").instructions(instructions);
        agent.tool(gate.again()).log(changed.log()).build().unwrap()
    };
    let worker = AtWork::start(Worker::builder(&changed).operator(agent("Otherwise.")));
    let stranded = until(async || {
        let stranded = database.queue().list_stranded().await.unwrap();
        (!stranded.is_empty()).then_some(stranded)
    })
    .await;
    assert_eq!(stranded[0].run, run);
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    assert_eq!(summary(&database, &run).await.unwrap().state, RunState::Running);
    worker.stop().await;

    let adopting = open(&url).await;
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
    let asked = model.requests();
    let agent = Agent::builder(model).name("agent").instructions("Otherwise.");
    let agent = agent.tool(gate.again()).log(adopting.log()).build().unwrap();
    let digest = Operator::digest(&agent).unwrap();
    let worker = AtWork::start(Worker::builder(&adopting).operator(agent).adopt(true));
    is_in(&database, &run, RunState::Finished).await;
    let (_, events) = read_events(&database.log(), &run).await.unwrap();
    assert_eq!(
        *current_agent(&events).unwrap().digest,
        *digest,
        "the record has the new definition"
    );
    let told = asked.all().remove(0).messages.messages()[0].clone();
    assert_eq!(*told, Message::system("Otherwise."));
    assert!(database.queue().list_stranded().await.unwrap().is_empty());
    worker.stop().await;
}

async fn worker_needs_what_keeps_a_record(place: Place) {
    let (database, _) = place.fresh().await;
    let agent = Agent::builder(ScriptedProvider::saying(["x"])).name("agent").build().unwrap();
    let error = Worker::builder(&database).operator(agent).build().unwrap_err();
    assert!(matches!(error, WorkerBuildError::NoAgent), "{error}");
    let twice = Worker::builder(&database)
        .operator(answering(&database, "a"))
        .operator(answering(&database, "a"));
    assert!(matches!(twice.build().unwrap_err(), WorkerBuildError::Operators(_)));
}
