//! Generated workflows whose process dies behind each append: the resumed one answers as the undisturbed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use backstop::clock::{Clock, VirtualClock};
use backstop::event_log::{Batch, verify_run};
use backstop::layer0::error::{OperatorError, OrchError};
use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::failure::{Effect, Facts, Failure};
use backstop::layer0::message::Message;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::layer0::usage::Allowance;
use backstop::layer0::{Timestamp, code};
use backstop::orchestrator::{is_workflow, replay_workflow};
use backstop::provider::ScriptedToolCall;
use backstop::{
    Agent, Database, EventLog, LocalOrchestrator, MemoryLog, Operator, Orchestrator, Redactor,
    RunFilter, ScriptedAnswer, ScriptedProvider, ToolContext, ToolError, Workflow, read_events,
    tool,
};
use backstop_testkit::{Tape, append_all};
use futures_util::future::{BoxFuture, join_all, try_join_all};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const ROOT: &str = "run_root";
const SECRET: &str = "sk-4716203958aa";

/// The code of a workflow.
#[derive(Debug, Clone)]
enum Plan {
    Step(Leaf),
    /// One after the other, each asked with the answer of the one before it.
    Sequence(Vec<Plan>),
    /// Side by side, until the first failure.
    Together(Vec<Plan>),
    /// Side by side; failures are a part of the answer.
    Collected(Vec<Plan>),
    /// A workflow of its own.
    Nested(Box<Plan>),
}

/// The operator of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    /// An agent whose tool acts.
    Payer,
    /// An agent without tools.
    Talker,
    /// Keeps no record, and acts.
    Plain,
    /// Keeps no record, and answers with a secret of the process.
    Secret,
    /// Takes no text.
    Picky,
    /// Fails, and may have acted.
    Lost,
    /// Fails at first, and did nothing.
    Away,
    /// No such operator exists.
    Missing,
}

impl Leaf {
    const ALL: [Self; 8] = [
        Self::Payer,
        Self::Talker,
        Self::Plain,
        Self::Secret,
        Self::Picky,
        Self::Lost,
        Self::Away,
        Self::Missing,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Payer => "payer",
            Self::Talker => "talker",
            Self::Plain => "plain",
            Self::Secret => "secret",
            Self::Picky => "picky",
            Self::Lost => "lost",
            Self::Away => "away",
            Self::Missing => "missing",
        }
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let leaf = prop::sample::select(Leaf::ALL.to_vec()).prop_map(Plan::Step);
    leaf.prop_recursive(3, 10, 3, |plan| {
        let some = || prop::collection::vec(plan.clone(), 1..4);
        prop_oneof![
            some().prop_map(Plan::Sequence),
            some().prop_map(Plan::Together),
            some().prop_map(Plan::Collected),
            plan.clone().prop_map(|plan| Plan::Nested(Box::new(plan))),
        ]
    })
}

/// A workflow, and what it may use.
#[derive(Debug, Clone)]
struct Case {
    plan: Plan,
    model_calls: Option<u32>,
}

fn cases() -> impl Strategy<Value = Case> {
    (plans(), prop::option::weighted(0.4, 1..6_u32))
        .prop_map(|(plan, model_calls)| Case { plan, model_calls })
}

/// The acts of a process, each by what it belongs to: a call of a tool, or a run without a record.
#[derive(Debug, Clone, Default)]
struct Acts(Arc<Mutex<BTreeMap<String, u32>>>);

impl Acts {
    fn note(&self, of: String) {
        *self.0.lock().unwrap().entry(of).or_default() += 1;
    }

    fn times(&self, of: &str) -> u32 {
        self.0.lock().unwrap().get(of).copied().unwrap_or(0)
    }
}

/// Pays a bill.
#[tool]
async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    let acts: &Acts = context.state().expect("the agent has its acts");
    acts.note(format!("{}/{}", context.run, context.call_id));
    Ok("paid".into())
}

/// The answer of a request was lost, or its server was away.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer(Effect);

impl Failure for NoAnswer {
    fn facts(&self) -> Facts {
        match self.0 {
            Effect::None => Facts::backoff(code::OPERATOR_RETRYABLE, Effect::None),
            effect => Facts::never(code::TOOL_TIMEOUT, effect),
        }
    }
}

/// An operator that keeps no record.
struct Unrecorded(Leaf, Acts);

#[async_trait::async_trait]
impl Operator for Unrecorded {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn input_schema(&self) -> Option<&Value> {
        static OBJECT: std::sync::LazyLock<Value> =
            std::sync::LazyLock::new(|| json!({"type": "object"}));
        (self.0 == Leaf::Picky).then_some(&*OBJECT)
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let run = context.run.as_ref().map(ToString::to_string).unwrap_or_default();
        let is_first = context.attempt <= 1;
        match self.0 {
            Leaf::Away if is_first => {
                return Err(OperatorError::from_failure(NoAnswer(Effect::None)));
            }
            _ => self.1.note(run),
        }
        match self.0 {
            Leaf::Lost => Err(OperatorError::from_failure(NoAnswer(Effect::Unknown))),
            Leaf::Secret => Ok(Answer::from_output(format!("the key is {SECRET}").into())),
            leaf => Ok(Answer::from_output(said(leaf.name(), &task.input).into())),
        }
    }
}

/// Returns a short answer to an input.
fn said(name: &str, input: &Value) -> String {
    let input = input.as_str().map_or_else(|| input.to_string(), ToOwned::to_owned);
    format!("{name}({})", input.len())
}

/// The operator that does what a plan says.
struct Code {
    name: String,
    plan: Plan,
}

#[async_trait::async_trait]
impl Operator for Code {
    fn name(&self) -> &str {
        &self.name
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let input = task.input;
        play(&self.plan, self.name.clone(), context, input).await.map(Answer::from_output)
    }
}

/// Performs a plan; `at` is its place in the whole.
fn play<'a>(
    plan: &'a Plan,
    at: String,
    context: &'a Context,
    input: Value,
) -> BoxFuture<'a, Result<Value, OperatorError>> {
    Box::pin(async move {
        let place = |index: usize| format!("{at}-{index}");
        match plan {
            Plan::Step(leaf) => step(leaf.name(), &at, context, input).await,
            Plan::Nested(_) => {
                let name = format!("{at}-n");
                step(&name, &name, context, input).await
            }
            Plan::Sequence(plans) => {
                let mut input = input;
                for (index, plan) in plans.iter().enumerate() {
                    input = play(plan, place(index), context, input).await?;
                }
                Ok(input)
            }
            Plan::Together(plans) => {
                let all = plans.iter().enumerate();
                let all = all.map(|(index, plan)| play(plan, place(index), context, input.clone()));
                try_join_all(all).await.map(Value::from)
            }
            Plan::Collected(plans) => {
                let all = plans.iter().enumerate();
                let all = all.map(|(index, plan)| play(plan, place(index), context, input.clone()));
                let ends = join_all(all).await.into_iter();
                Ok(ends.map(|end| end.unwrap_or_else(|error| error.code().into())).collect())
            }
        }
    })
}

async fn step(
    operator: &str,
    name: &str,
    context: &Context,
    input: Value,
) -> Result<Value, OperatorError> {
    let text = input.as_str().map_or_else(|| input.to_string(), ToOwned::to_owned);
    Ok(context.step(name).dispatch(operator, Task::text(text)).await?.output)
}

/// Returns the workflows of a plan, each with its name.
fn nested(plan: &Plan, at: String, found: &mut Vec<(String, Plan)>) {
    match plan {
        Plan::Step(_) => {}
        Plan::Nested(plan) => {
            let name = format!("{at}-n");
            found.push((name.clone(), (**plan).clone()));
            nested(plan, name, found);
        }
        Plan::Sequence(plans) | Plan::Together(plans) | Plan::Collected(plans) => {
            for (index, plan) in plans.iter().enumerate() {
                nested(plan, format!("{at}-{index}"), found);
            }
        }
    }
}

/// Returns the operators of a process.
fn process(
    case: &Case,
    clock: &VirtualClock,
    log: &Arc<dyn EventLog>,
    acts: &Acts,
) -> LocalOrchestrator {
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let agent = |name: &'static str, model: ScriptedProvider| {
        Agent::builder(model)
            .name(name)
            .clock(Arc::clone(&shared))
            .state(acts.clone())
            .shared_log(Arc::clone(log))
    };
    let payer = ScriptedProvider::from_fn(|request| {
        let messages = request.messages.messages();
        match messages.iter().rev().find(|it| matches!(***it, Message::Tool { .. })).map(|it| &**it)
        {
            Some(Message::Tool { content, .. }) => {
                ScriptedAnswer::saying(said("payer", &Value::from(&**content)))
            }
            _ => ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(
                "c1",
                "pay",
                json!({}),
            )]),
        }
    });
    let talker = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("talker"));
    let mut orchestrator = LocalOrchestrator::builder()
        .clock(Arc::clone(&shared))
        .jitter(backstop::retry::Jitter::from_seed(1))
        .operator(agent("payer", payer).tool(pay).build().unwrap())
        .operator(agent("talker", talker).build().unwrap());
    for leaf in [Leaf::Plain, Leaf::Secret, Leaf::Picky, Leaf::Lost, Leaf::Away] {
        orchestrator = orchestrator.operator(Unrecorded(leaf, acts.clone()));
    }
    let mut workflows = vec![("root".to_owned(), case.plan.clone())];
    nested(&case.plan, "root".to_owned(), &mut workflows);
    for (name, plan) in workflows {
        let code = Workflow::new(Code { name, plan }, Arc::clone(log))
            .clock(Arc::clone(&shared))
            .redactor(Redactor::new().with_secret(SECRET));
        orchestrator = orchestrator.operator(code);
    }
    orchestrator.build().unwrap()
}

/// Runs a case in a process of its own, from the beginning or where the log says.
fn run(case: &Case, log: &Arc<dyn EventLog>, acts: &Acts) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (case, log, acts) = (case.clone(), Arc::clone(log), acts.clone());
    runtime.block_on(async move {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let orchestrator = process(&case, &clock, &log, &acts);
        let is_begun = log.summary(&ROOT.into()).await.unwrap().is_some();
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(clock.track(Box::pin(async move {
            let answer = match is_begun {
                true => orchestrator.resume("root", ROOT.into()).await,
                false => {
                    let mut context = Context::root();
                    context.run = Some(ROOT.into());
                    let mut allowance = Allowance::without_bounds();
                    allowance.model_calls = case.model_calls;
                    context.allowance = case.model_calls.map(|_| allowance);
                    orchestrator.dispatch("root", Task::text("go"), context).await
                }
            };
            let _ = done.send(answer);
        })));
        let answer: Result<Answer, OrchError> = result.await.unwrap();
        answer.map(|it| it.output).map_err(|error| error.code().to_owned())
    })
}

/// Returns the acts of which a record says that they began, and not how they ended.
fn open_acts(batches: &[Batch]) -> BTreeSet<String> {
    let mut open = BTreeSet::new();
    for (batch, record) in batches.iter().flat_map(|it| it.records.iter().map(move |r| (it, r))) {
        match record.decode(&batch.run).unwrap().kind {
            EventKind::ToolRequested(it) => {
                open.insert(format!("{}/{}", batch.run, it.call_id));
            }
            EventKind::ToolResponded(it) => {
                open.remove(&format!("{}/{}", batch.run, it.call_id));
            }
            EventKind::OperatorDispatched(it) if it.unrecorded => {
                open.insert(it.run.to_string());
            }
            EventKind::OperatorReturned(it) => {
                open.remove(it.run.as_str());
            }
            _ => {}
        }
    }
    open
}

/// Returns whether a model is asked in a record, and has not answered.
fn has_open_attempt(batches: &[Batch]) -> bool {
    let mut open = BTreeSet::new();
    for (batch, record) in batches.iter().flat_map(|it| it.records.iter().map(move |r| (it, r))) {
        match &*record.event_type {
            "model.requested" => drop(open.insert(&batch.run)),
            "model.attempted" => drop(open.remove(&batch.run)),
            _ => {}
        }
    }
    !open.is_empty()
}

/// Returns the ends of a workflow's steps by name: operator, outcome and reason.
fn ends(events: &[Event]) -> BTreeMap<String, String> {
    let mut steps = BTreeMap::new();
    let mut ends = BTreeMap::new();
    for event in events {
        match &event.kind {
            EventKind::OperatorDispatched(it) => {
                let step = it.step.as_ref().map(ToString::to_string).unwrap_or_default();
                steps.insert(it.run.clone(), format!("{step} {}", it.operator));
            }
            EventKind::OperatorReturned(it) => {
                let end = format!("{:?} {:?} {}", it.outcome, it.reason, it.superseded);
                ends.insert(steps.get(&it.run).cloned().unwrap_or_default(), end);
            }
            _ => {}
        }
    }
    ends
}

/// Holds the records of a log against what each has to be, and returns the ends of the root's steps.
async fn check_records(log: &dyn EventLog, place: &str) -> BTreeMap<String, String> {
    let mut root = BTreeMap::new();
    for summary in log.runs(RunFilter::new()).await.unwrap() {
        let (_, events) = read_events(log, &summary.run).await.unwrap();
        assert!(!summary.is_open(), "{place}: {} is {:?}", summary.agent, summary.state);
        verify_run(log, &summary.run).await.unwrap();
        let count = |of: &str| events.iter().filter(|e| e.kind.event_type() == of).count();
        let ended = count("run.finished") + count("run.failed");
        assert_eq!(ended, 1 + count("run.reopened"), "{place}: {} ends once", summary.agent);
        if is_workflow(&events[0]) {
            let replayed = replay_workflow(log, &summary.run).await;
            replayed.unwrap_or_else(|error| panic!("{place}: {}: {error}", summary.agent));
        } else {
            let replayed = backstop::replay(log, &summary.run).await;
            assert!(replayed.is_ok(), "{place}: {}", summary.agent);
        }
        if summary.run.as_str() == ROOT {
            root = ends(&events);
        }
    }
    root
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Holds a case whose process dies behind each append against one that is not disturbed. Returns how often it died.
fn check(case: &Case, new_log: impl Fn() -> Arc<dyn EventLog>) -> usize {
    let (tape, acts) = (Arc::new(Tape::new(new_log())), Acts::default());
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let whole = run(case, &log, &acts);
    let ends = block_on(check_records(&*log, "undisturbed"));
    let batches = tape.batches();
    for count in 0..=batches.len() {
        let place = format!("{case:?} dies behind append {count} of {}", batches.len());
        let (log, acts) = (new_log(), Acts::default());
        block_on(append_all(&batches[..count], &*log));
        let open = open_acts(&batches[..count]);
        let resumed = run(case, &log, &acts);
        for act in open.iter().filter(|_| count > 0) {
            let is_harmless = acts.times(act) <= 1 && is_away(&batches[..count], act);
            assert!(acts.times(act) == 0 || is_harmless, "{place}: {act} is repeated");
        }
        let seen = block_on(check_records(&*log, &place));
        // A lost attempt counts, so that less is left of a budget.
        let has_lost_attempt = case.model_calls.is_some() && has_open_attempt(&batches[..count]);
        let is_raced_for = case.model_calls.is_some() && forks(&case.plan);
        if open.is_empty() && !has_lost_attempt && !is_raced_for {
            assert_eq!(resumed, whole, "{place}");
            assert_eq!(seen, ends, "{place}");
        }
    }
    batches.len()
}

/// Returns whether steps of a plan run at the same time: which of them gets the last of a budget is up to their threads.
fn forks(plan: &Plan) -> bool {
    match plan {
        Plan::Step(_) => false,
        Plan::Nested(plan) => forks(plan),
        Plan::Sequence(plans) => plans.iter().any(forks),
        Plan::Together(plans) | Plan::Collected(plans) => {
            plans.len() > 1 || plans.iter().any(forks)
        }
    }
}

/// Returns whether the run of an open act is of an operator whose first attempt did nothing.
fn is_away(batches: &[Batch], act: &str) -> bool {
    let records = batches.iter().flat_map(|it| it.records.iter().map(move |r| (it, r)));
    let mut events = records.map(|(batch, record)| record.decode(&batch.run).unwrap().kind);
    events.any(|kind| {
        matches!(kind, EventKind::OperatorDispatched(it)
            if it.run.as_str() == act && &*it.operator == Leaf::Away.name())
    })
}

/// Returns generated cases, the same ones each time, with the events that they write: those of the root first, then those
/// of each run in the order of the dispatches.
pub(crate) fn generated_records(count: usize) -> Vec<(String, Vec<Value>)> {
    let mut runner = TestRunner::deterministic();
    let mut records = Vec::new();
    while records.len() < count {
        let case = cases().new_tree(&mut runner).unwrap().current();
        if case.model_calls.is_some() && forks(&case.plan) {
            continue;
        }
        let log = Arc::new(MemoryLog::new()) as Arc<dyn EventLog>;
        let _answer = run(&case, &log, &Acts::default());
        records.push((format!("{case:?}"), block_on(events_of_tree(&*log))));
    }
    records
}

async fn events_of_tree(log: &dyn EventLog) -> Vec<Value> {
    let (mut runs, mut found) = (vec![ROOT.into()], Vec::new());
    while let Some(run) = runs.pop() {
        if log.summary(&run).await.unwrap().is_none() {
            continue;
        }
        let (_, events) = read_events(log, &run).await.unwrap();
        for event in &events {
            if let EventKind::OperatorDispatched(dispatched) = &event.kind {
                runs.push(dispatched.run.clone());
            }
        }
        found.extend(events.iter().map(|event| serde_json::to_value(event).unwrap()));
    }
    found
}

/// Spec: O6, D5
#[test]
fn resumed_workflows_answer_as_undisturbed_ones() {
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(100) });
    let deaths = std::cell::Cell::new(0);
    let checked = runner.run(&cases(), |case| {
        deaths.set(deaths.get() + check(&case, || Arc::new(MemoryLog::new())));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    assert!(deaths.get() > 100, "{}", deaths.get());
}

/// Steps run at the same time, and the first failure ends the others.
///
/// Spec: O6, D5
#[test]
fn failures_end_the_same_steps_after_a_crash() {
    use Leaf::{Lost, Missing, Payer, Picky};
    let step = Plan::Step;
    let nested = |leaf| Plan::Nested(Box::new(Plan::Step(leaf)));
    for plans in [
        vec![step(Picky), nested(Payer)],
        vec![nested(Missing), nested(Payer)],
        vec![step(Missing), step(Payer)],
        vec![step(Lost), step(Picky), Plan::Sequence(vec![step(Payer)])],
    ] {
        let case = Case { plan: Plan::Together(plans), model_calls: None };
        assert!(check(&case, || Arc::new(MemoryLog::new())) > 2);
    }
}

/// Spec: O6, D5
#[test]
fn resumed_workflows_answer_alike_on_sqlite() {
    let steps = Leaf::ALL.map(Plan::Step).to_vec();
    let plan = Plan::Sequence(vec![Plan::Collected(steps), Plan::Step(Leaf::Talker)]);
    let case = Case { plan: Plan::Nested(Box::new(plan)), model_calls: Some(9) };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let new_log = || {
        let database = runtime.block_on(Database::in_memory()).unwrap();
        Arc::new(database.log()) as Arc<dyn EventLog>
    };
    assert!(check(&case, new_log) > 20);
}
