//! Dispatches that a tool does not wait for, or repeats differently after a resume.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Inbox, RunFilter, Runs};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, OperatorTool};
use backstop_tool::{State, ToolContext, ToolError, tool};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::{OperatorError, OrchError};
use layer0::event::{Event, EventKind, OperatorReturned};
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::{Outcome, Stop};
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::bench::*;
use crate::intercepted::{Access, InterceptedLog};

/// Answers after a while.
struct Slow(VirtualClock);

#[async_trait]
impl Operator for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.0.sleep(Duration::from_secs(30)).await;
        Ok(Answer::from_output(json!("slow answer")))
    }
}

/// An operator that answers that it waits, without reporting the wait to its caller.
struct Ticket;

#[async_trait]
impl Operator for Ticket {
    fn name(&self) -> &str {
        "ticket"
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        let mut answer = Answer::from_output(json!("not yet"));
        answer.stop = Stop::WaitingApproval;
        Ok(answer)
    }
}

/// Gives up a dispatch, and answers at once.
#[tool(idempotent)]
async fn hedge(context: &ToolContext) -> Result<String, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    // As `select!` does that looks at the dispatch first, and whose other branch is ready.
    let asked = operators.dispatch("slow", Task::text("x"), Context::root()).now_or_never();
    assert!(asked.is_none());
    Ok("from the cache".into())
}

/// Notifies the tool that its dispatch is being recorded, and the log that it was given up.
#[derive(Clone, Default)]
struct GivesUp(Arc<Notify>, Arc<Notify>);

/// Gives up a dispatch while it is being recorded, and is at work for a while.
#[tool(idempotent)]
async fn impatient(context: &ToolContext, gives_up: State<GivesUp>) -> Result<String, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    tokio::select! {
        answer = operators.dispatch("slow", Task::text("x"), Context::root()) => panic!("{answer:?}"),
        () = gives_up.0.notified() => {}
    }
    gives_up.1.notify_one();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    Ok("gave up".into())
}

/// The ends of dispatches by a task that was left behind, and the clock of its waits.
#[derive(Clone)]
struct LeftBehind {
    outcomes: Arc<Mutex<Vec<&'static str>>>,
    clock: VirtualClock,
}

/// Leaves a task behind that dispatches once the call is over.
#[tool(idempotent)]
async fn leaves_behind(
    context: &ToolContext,
    left: State<LeftBehind>,
) -> Result<String, ToolError> {
    let operators = context.operators.clone().unwrap();
    let LeftBehind { outcomes, clock } = LeftBehind::clone(&left);
    let time = clock.clone();
    tokio::spawn(clock.track(Box::pin(async move {
        time.sleep(Duration::from_secs(1)).await;
        let late = operators.dispatch("slow", Task::text("x"), Context::root()).await;
        outcomes.lock().unwrap().push(late.map_or_else(|error| error.code(), |_| "answered"));
    })));
    Ok("answered".into())
}

/// Leaves a task behind that makes requests of its caller once it has returned, and once the caller's run is over.
struct Leaver {
    clock: VirtualClock,
    answers: Mutex<Option<oneshot::Sender<Vec<String>>>>,
}

#[async_trait]
impl Operator for Leaver {
    fn name(&self) -> &str {
        "leaver"
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        let (caller, time) = (context.caller.clone().unwrap(), self.clock.clone());
        let done = self.answers.lock().unwrap().take().unwrap();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let mut answers = Vec::new();
            for wait in [1, 120] {
                time.sleep(Duration::from_secs(wait)).await;
                let asks = Box::pin(async {
                    (caller.more(0).await, caller.retry(9).await.map_err(|error| error.code()))
                });
                answers.push(match select(asks, time.sleep(Duration::from_secs(3_600))).await {
                    Either::Left((answers, _)) => format!("{answers:?}"),
                    Either::Right(_) => "no answer in an hour".to_owned(),
                });
            }
            done.send(answers).unwrap();
        })));
        Ok(Answer::from_output(json!("left")))
    }
}

fn lead(bench: &Bench, tool: &str, arguments: Value) -> AgentBuilder {
    let lead =
        bench.agent(vec![ScriptedAnswer::calling(tool, arguments), says("done").delay_ms(60_000)]);
    lead.name("lead")
}

async fn dispatch(bench: &Bench, agent: AgentBuilder) -> Result<Answer, OrchError> {
    let clock = bench.clock.clone();
    let orchestrator = LocalOrchestrator::builder()
        .clock(Arc::new(clock.clone()))
        .operator(agent.build().unwrap())
        .operator(Slow(clock))
        .operator(Ticket)
        .build()
        .unwrap();
    on(bench, async move { orchestrator.dispatch("lead", Task::text("go"), Context::root()).await })
        .await
}

async fn events_of(bench: &Bench, agent: &str) -> Vec<Event> {
    let runs = bench.log.runs(RunFilter::new()).await.unwrap();
    let run = runs.into_iter().find(|run| &*run.agent == agent).unwrap();
    bench.events(&run.run).await
}

async fn returned(bench: &Bench) -> Vec<OperatorReturned> {
    let events = events_of(bench, "lead").await.into_iter();
    let returned = events.filter_map(|event| match event.kind {
        EventKind::OperatorReturned(returned) => Some(returned),
        _ => None,
    });
    returned.collect()
}

/// Spec: O3. It was given up before the run had taken it.
#[tokio::test]
async fn dispatch_given_up_at_once_starts_nothing() {
    let bench = Bench::new();
    let answer = dispatch(&bench, lead(&bench, "hedge", json!({})).tool(hedge)).await.unwrap();
    assert_eq!(answer.stop, Stop::Completed);
    let events = events_of(&bench, "lead").await;
    assert!(!types(&events).contains(&"operator.dispatched"), "{:?}", types(&events));
}

/// Spec: O3, B2. It was recorded, and nobody was there to start it.
#[tokio::test]
async fn dispatch_given_up_while_recorded_returns_cancelled() {
    let (bench, gives_up) = (Bench::new(), GivesUp::default());
    let GivesUp(recording, given_up) = gives_up.clone();
    let log = InterceptedLog::new(&bench.log, move |access| {
        let (recording, given_up) = (Arc::clone(&recording), Arc::clone(&given_up));
        Box::pin(async move {
            if let Access::Append(batch) = access
                && batch.records.iter().any(|it| it.event_type == "operator.dispatched")
            {
                recording.notify_one();
                given_up.notified().await;
            }
            Ok(())
        })
    });
    let agent = lead(&bench, "impatient", json!({})).tool(impatient).state(gives_up);
    let agent = agent.shared_log(Arc::new(log) as Arc<dyn EventLog>);
    let answer = dispatch(&bench, agent).await.unwrap();
    assert_eq!(answer.stop, Stop::Completed);
    let [returned] = &returned(&bench).await[..] else { panic!("one was dispatched") };
    assert_eq!(returned.outcome, Outcome::Cancelled);
    assert_eq!(returned.usage.model_attempts, 0);
}

/// Spec: O3
#[tokio::test]
async fn dispatch_behind_its_call_is_refused() {
    let bench = Bench::new();
    let left = LeftBehind { outcomes: Arc::default(), clock: bench.clock.clone() };
    let outcomes = Arc::clone(&left.outcomes);
    let agent = lead(&bench, "leaves_behind", json!({})).tool(leaves_behind);
    let answer = dispatch(&bench, agent.state(left)).await.unwrap();
    assert_eq!(answer.stop, Stop::Completed);
    assert_eq!(*outcomes.lock().unwrap(), ["orch.dispatch_failed"]);
}

/// Spec: O2. Nor does it wait for ever.
#[tokio::test]
async fn requests_behind_a_return_are_answered() {
    let bench = Bench::new();
    let (sender, answers) = oneshot::channel();
    let leaver = Leaver { clock: bench.clock.clone(), answers: Mutex::new(Some(sender)) };
    let lead = lead(&bench, "leaver", json!({ "input": "x" }));
    let orchestrator = LocalOrchestrator::builder()
        .clock(Arc::new(bench.clock.clone()))
        .operator(lead.tool(OperatorTool::new("leaver", "Leaves.")).build().unwrap())
        .operator(leaver)
        .build()
        .unwrap();
    let (answer, answers) = on(&bench, async move {
        let dispatch = orchestrator.dispatch("lead", Task::text("go"), Context::root());
        (dispatch.await, answers.await.unwrap())
    })
    .await;
    assert_eq!(answer.unwrap().stop, Stop::Completed);
    assert_eq!(answers, ["(None, Ok(()))", "(None, Err(\"orch.dispatch_failed\"))"]);
    let attempts = events_of(&bench, "lead").await.into_iter();
    let attempts = attempts.filter(|event| event.kind.event_type() == "operator.dispatched");
    assert_eq!(attempts.count(), 1);
}

/// Spec: O3. Nothing would resume it.
#[tokio::test]
async fn operator_that_waits_untold_fails_its_call() {
    let bench = Bench::new();
    let agent = lead(&bench, "ticket", json!({ "input": "x" }));
    let agent = agent.tool(OperatorTool::new("ticket", "Opens a ticket."));
    let answer = dispatch(&bench, agent).await.unwrap();
    assert_eq!(answer.stop, Stop::Completed);
    let [returned] = &returned(&bench).await[..] else { panic!("one was dispatched") };
    assert_eq!(returned.outcome, Outcome::Failed);
    assert_eq!(returned.reason, Some("run.waiting_approval".into()));
}

/// Pays.
#[tool]
async fn pay() -> Result<String, ToolError> {
    Ok("paid".into())
}

/// Asks about each of these, in the order of its process.
#[tool(idempotent)]
async fn ask_each(
    context: &ToolContext,
    order: State<Vec<&'static str>>,
) -> Result<Value, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    let tasks = order.iter().map(|city| ("payer".to_owned(), Task::text(*city))).collect();
    let answers = operators.dispatch_many(tasks, Context::root()).await;
    let answers = order.iter().zip(answers).map(|(city, answer)| {
        let answer = answer.map_or_else(|error| error.code().into(), |answer| answer.output);
        ((*city).to_owned(), answer)
    });
    Ok(Value::Object(answers.collect()))
}

/// Returns the last text that the model reads: the input while no tool has answered, then the answer.
fn last_words(request: &ModelRequest) -> (String, bool) {
    match &**request.messages.messages().last().unwrap() {
        Message::Tool { content, .. } => (content.to_string(), true),
        Message::User { content, .. } => (content.to_string(), false),
        other => panic!("{other:?}"),
    }
}

/// Returns a lead whose tool asks a payer about these cities; each payment has to be approved.
fn paying_lead(bench: &Bench, order: Vec<&'static str>) -> (LocalOrchestrator, Agent) {
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let agent = |model: ScriptedProvider| {
        let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
        Agent::builder(model.with_clock(Arc::clone(&clock)))
            .clock(Arc::clone(&clock))
            .shared_log(log)
    };
    let payer = agent(ScriptedProvider::from_fn(|request: &ModelRequest| {
        let messages = request.messages.messages();
        let city = messages.iter().find_map(|message| match &**message {
            Message::User { content, .. } => Some(content.to_string()),
            _ => None,
        });
        match last_words(request).1 {
            true => says(&format!("paid {}", city.unwrap())),
            false => ScriptedAnswer::calling("pay", json!({})),
        }
    }));
    let payer = payer.name("payer").tool(pay).require_approval("pay").build().unwrap();
    let lead =
        agent(ScriptedProvider::from_fn(|request: &ModelRequest| match last_words(request) {
            (answer, true) => says(&answer),
            _ => ScriptedAnswer::calling("ask_each", json!({})),
        }));
    let lead = lead.name("lead").tool(ask_each).state(order).build().unwrap();
    let orchestrator = LocalOrchestrator::builder().clock(clock).operator(payer);
    (orchestrator.build().unwrap(), lead)
}

async fn run_until_it_waits(bench: &Bench, order: Vec<&'static str>) -> layer0::id::RunId {
    let (orchestrator, lead) = paying_lead(bench, order);
    let request = backstop_react::RunRequest::new("go").orchestrator(Arc::new(orchestrator));
    let left = on(bench, async move { lead.run(request).await }).await.unwrap();
    assert_eq!(left.stop, Stop::WaitingApproval);
    left.run_id
}

async fn resume_approved(
    bench: &Bench,
    order: Vec<&'static str>,
    run: &layer0::id::RunId,
) -> Value {
    for open in bench.log.open_approvals().await.unwrap() {
        let decision = backstop_event_log::Decision::approve("ops");
        assert!(bench.log.decide(&open.id, decision, bench.clock.now()).await.unwrap());
    }
    let (orchestrator, lead) = paying_lead(bench, order);
    let request = backstop_react::ResumeRequest::new(run.clone());
    let request = request.orchestrator(Arc::new(orchestrator));
    let outcome = on(bench, async move { lead.resume(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    backstop_react::replay(&*bench.log, run).await.unwrap();
    serde_json::from_str(&outcome.output).unwrap()
}

/// Spec: O3, D5. They are asked for in another order.
#[tokio::test]
async fn resumed_dispatches_are_matched_by_input() {
    let bench = Bench::new();
    let run = run_until_it_waits(&bench, vec!["Bonn", "Rome"]).await;
    let answers = resume_approved(&bench, vec!["Rome", "Bonn"], &run).await;
    assert_eq!(answers, json!({ "Bonn": "paid Bonn", "Rome": "paid Rome" }));
}

/// Spec: O3, D5. What is not asked for again ends with the call, and its answer is nobody else's.
#[tokio::test]
async fn dispatch_not_asked_for_again_is_cancelled() {
    let bench = Bench::new();
    let run = run_until_it_waits(&bench, vec!["Bonn", "Rome"]).await;
    for open in bench.log.open_approvals().await.unwrap() {
        let asked = bench.events(&open.run).await;
        let EventKind::RunStarted(started) = &asked[0].kind else { panic!() };
        if format!("{started:?}").contains("Rome") {
            let decision = backstop_event_log::Decision::approve("ops");
            assert!(bench.log.decide(&open.id, decision, bench.clock.now()).await.unwrap());
        }
    }
    let (orchestrator, lead) = paying_lead(&bench, vec!["Rome"]);
    let request = backstop_react::ResumeRequest::new(run.clone());
    let request = request.orchestrator(Arc::new(orchestrator));
    let outcome = on(&bench, async move { lead.resume(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    let answers: Value = serde_json::from_str(&outcome.output).unwrap();
    assert_eq!(answers, json!({ "Rome": "paid Rome" }));
    let mut outcomes: Vec<_> = returned(&bench).await.iter().map(|it| it.outcome).collect();
    outcomes.sort_by_key(|outcome| outcome.as_str());
    assert_eq!(outcomes, [Outcome::Cancelled, Outcome::Completed]);
    assert!(bench.log.open_approvals().await.unwrap().is_empty(), "nobody is asked about Bonn");
    backstop_react::replay(&*bench.log, &run).await.unwrap();
}
