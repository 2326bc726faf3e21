//! The processes that perform generated workflows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop::clock::{Clock, VirtualClock};
use backstop::layer0::code;
use backstop::layer0::error::OperatorError;
use backstop::layer0::failure::{Effect, Facts, Failure};
use backstop::layer0::id::RunId;
use backstop::layer0::message::Message;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::provider::{ErrorKind, ScriptedError, ScriptedToolCall};
use backstop::{
    Agent, AgentBuilder, EventLog, LocalOrchestrator, Map, Operator, Redactor, Restart, Route,
    ScriptedAnswer, ScriptedProvider, Supervise, ToolContext, ToolError, Workflow, tool,
};
use backstop_testkit::contract::{Acts, ResumableRun};
use futures_util::future::{BoxFuture, join_all, try_join_all};
use serde_json::{Value, json};

use super::plan::{Case, Leaf, Plan};
use super::process::{Process, ROOT};

const SECRET: &str = "sk-4716203958aa";

/// Pays a bill.
#[tool]
async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    let acts: &Acts = context.state().expect("the agent has its acts");
    acts.call(&context.run, &context.call_id);
    Ok("paid".into())
}

/// Signs a contract.
#[tool(approval)]
async fn sign(context: &ToolContext) -> Result<String, ToolError> {
    let acts: &Acts = context.state().expect("the agent has its acts");
    acts.call(&context.run, &context.call_id);
    Ok("signed".into())
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

#[async_trait]
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
        let is_first = context.attempt <= 1;
        if self.0 == Leaf::Away && is_first {
            return Err(OperatorError::from_failure(NoAnswer(Effect::None)));
        }
        self.1.run(context.run.as_ref().unwrap());
        match self.0 {
            Leaf::Lost => Err(OperatorError::from_failure(NoAnswer(Effect::Unknown))),
            Leaf::Secret => Ok(Answer::from_output(format!("the key is {SECRET}").into())),
            leaf => Ok(Answer::from_output(said(leaf.name(), &task.input).into())),
        }
    }
}

/// An operator without a record that chooses the route to another one.
struct Chooser(&'static str, String, Acts);

#[async_trait]
impl Operator for Chooser {
    fn name(&self) -> &str {
        &self.1
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        self.2.run(context.run.as_ref().unwrap());
        Ok(Answer::from_output(self.0.into()))
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

#[async_trait]
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
            Plan::Step(leaf) => step(leaf.name(), &context.step(&*at), input).await,
            Plan::Map(_) => {
                let name = format!("{at}-n");
                let list = json!([input, "next", "last"]);
                step(&name, &context.step(&*name), list.to_string().into()).await
            }
            Plan::Nested(_) | Plan::Route { .. } | Plan::Supervise(_) => {
                let name = format!("{at}-n");
                step(&name, &context.step(&*name), input).await
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
                Ok(join_all(all).await.into_iter().map(ended).collect())
            }
            Plan::Lines(lines) => {
                let lines = lines.iter().enumerate().map(|(index, line)| {
                    let (context, input) = (context.scope(place(index)), input.clone());
                    async move { steps(line, &context, input).await }
                });
                Ok(join_all(lines).await.into_iter().map(ended).collect())
            }
            Plan::Unnamed(leaves) => {
                let context = context.scope(at);
                let all = leaves.iter().map(|leaf| step(leaf.name(), &context, input.clone()));
                Ok(join_all(all).await.into_iter().map(ended).collect())
            }
        }
    })
}

/// Dispatches operators one after the other.
async fn steps(
    leaves: &[Leaf],
    context: &Context,
    mut input: Value,
) -> Result<Value, OperatorError> {
    for leaf in leaves {
        input = step(leaf.name(), context, input).await?;
    }
    Ok(input)
}

async fn step(operator: &str, context: &Context, input: Value) -> Result<Value, OperatorError> {
    let text = input.as_str().map_or_else(|| input.to_string(), ToOwned::to_owned);
    Ok(context.dispatch(operator, Task::text(text)).await?.output)
}

/// Returns the answer of a branch, or the code of its failure.
fn ended(end: Result<Value, OperatorError>) -> Value {
    end.unwrap_or_else(|error| error.code().into())
}

/// Returns a model that calls a tool, and answers with the length of what the tool said.
fn calling(name: &'static str, tool: &'static str) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request| {
        let messages = request.messages.messages();
        match messages.iter().rev().find(|it| matches!(***it, Message::Tool { .. })).map(|it| &**it)
        {
            Some(Message::Tool { content, .. }) => {
                ScriptedAnswer::saying(said(name, &Value::from(&**content)))
            }
            _ => {
                ScriptedAnswer::default().tool_calls([ScriptedToolCall::new("c1", tool, json!({}))])
            }
        }
    })
}

/// Returns a failure of a model that is to be asked later.
pub(super) fn delayed(kind: ErrorKind, after: Duration) -> ScriptedAnswer {
    let mut error = ScriptedError::new(kind);
    error.retry_after_ms = u64::try_from(after.as_millis()).ok();
    ScriptedAnswer::default().error(error)
}

/// Returns the operators of a process.
fn operators(
    case: &Case,
    clock: &VirtualClock,
    log: &Arc<dyn EventLog>,
    acts: &Acts,
) -> LocalOrchestrator {
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let agent = |name: &'static str, model: ScriptedProvider| -> AgentBuilder {
        Agent::builder(model)
            .name(name)
            .clock(Arc::clone(&shared))
            .state(acts.clone())
            .shared_log(Arc::clone(log))
    };
    let talker = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("talker"));
    let was_asked = AtomicBool::new(false);
    let parker = ScriptedProvider::from_fn(move |_| match was_asked.swap(true, Ordering::SeqCst) {
        true => ScriptedAnswer::saying("parker"),
        false => delayed(ErrorKind::RateLimited, Duration::from_secs(600)),
    });
    let mut orchestrator = LocalOrchestrator::builder()
        .clock(Arc::clone(&shared))
        .max_park(Duration::from_secs(3_600))
        .jitter(backstop::retry::Jitter::from_seed(1))
        .operator(agent("payer", calling("payer", "pay")).tool(pay).build().unwrap())
        .operator(agent("signer", calling("signer", "sign")).tool(sign).build().unwrap())
        .operator(agent("parker", parker).build().unwrap())
        .operator(agent("talker", talker).build().unwrap());
    for leaf in Leaf::UNRECORDED {
        orchestrator = orchestrator.operator(Unrecorded(leaf, acts.clone()));
    }
    let mut workflows = vec![("root".to_owned(), case.plan.clone())];
    case.plan.workflows("root", &mut workflows);
    for (place, (name, plan)) in workflows.into_iter().enumerate() {
        let operator: Arc<dyn Operator> = match plan {
            // The root is code, whatever its plan is.
            plan if place == 0 => Arc::new(Code { name, plan }),
            Plan::Map(leaf) => Arc::new(Map::new(name, leaf.name())),
            Plan::Supervise(leaf) => {
                let supervise = Supervise::new(name, leaf.name(), Restart::Transient).limit(1);
                Arc::new(supervise.clock(Arc::clone(&shared)))
            }
            Plan::Route { by_operator: true, steps: [first, second] } => {
                let chooser = format!("{name}-c");
                let chooses = Chooser(second.name(), chooser.clone(), acts.clone());
                orchestrator = orchestrator.operator(chooses);
                Arc::new(Route::with(name, chooser, [first.name(), second.name()]))
            }
            Plan::Route { by_operator: false, steps: [first, second] } => {
                let names = [first.name(), second.name()];
                Arc::new(Route::by(name, names, move |input| {
                    names[input.to_string().len() % 2].to_owned()
                }))
            }
            plan => Arc::new(Code { name, plan }),
        };
        let workflow = Workflow::from_arc(operator, Arc::clone(log))
            .clock(Arc::clone(&shared))
            .redactor(Redactor::new().with_secret(SECRET));
        orchestrator = orchestrator.operator(workflow);
    }
    orchestrator.build().unwrap()
}

#[async_trait]
impl ResumableRun for Case {
    fn root(&self) -> RunId {
        ROOT.into()
    }
    async fn perform(&self, log: Arc<dyn EventLog>, acts: Acts) -> Result<Value, String> {
        let process = Process::new(log);
        let orchestrator = operators(self, &process.clock, &process.log, &acts);
        process.perform(orchestrator, self.model_calls).await
    }
    fn acts_late(&self, operator: &str) -> bool {
        operator == Leaf::Away.name()
    }
    fn has_budget(&self) -> bool {
        self.model_calls.is_some()
    }
    fn is_used_alike(&self) -> bool {
        !self.plan.is_parallel() && !self.plan.parks()
    }
}
