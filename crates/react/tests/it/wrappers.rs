//! Wrappers around a tool, each with everything that is done with a tool's answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_error_store::MemoryResultStore;
use backstop_event_log::{EventLog, Settlement};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::ScriptedAnswer;
use backstop_react::{
    Agent, AgentBuilder, ForkRequest, OperatorTool, RecordedTools, RunOutcome, resolve,
};
use backstop_redact::Redactor;
use backstop_state::MemoryStateStore;
use backstop_tool::{FnTool, Probe, ToolContext, ToolError};
use layer0::error::OperatorError;
use layer0::event::EventKind;
use layer0::failure::Effect;
use layer0::operator::{Answer, Context, Task};
use layer0::{Operator, Orchestrator, StateStore, ToolSpec};
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, on, says, tool_texts};

const SECRET: &str = "sk-4716203958aa";

/// The behaviour of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Answers with a secret of the process.
    TellsSecret,
    /// Answers something that does not fit its schema.
    Misfits,
    /// Fails, and may have acted.
    IsLost,
    /// Fails, and did nothing.
    IsRefused,
    /// Takes longer than it may.
    IsSlow,
    /// Answers more than a model reads at once.
    TellsMuch,
    /// Fails, and its probe knows the call.
    IsProbed,
}

impl Act {
    const ALL: [Self; 7] = [
        Self::TellsSecret,
        Self::Misfits,
        Self::IsLost,
        Self::IsRefused,
        Self::IsSlow,
        Self::TellsMuch,
        Self::IsProbed,
    ];

    async fn perform(self, clock: VirtualClock) -> Result<Value, ToolError> {
        let lost = || ToolError::ExecutionFailed("connection lost".into());
        match self {
            Self::TellsSecret => Ok(json!({ "paid": 1, "key": SECRET })),
            Self::Misfits => Ok(json!({ "paid": "yes" })),
            Self::IsLost | Self::IsProbed => Err(lost()),
            Self::IsRefused => Err(lost().with_effect(Effect::None)),
            Self::IsSlow => {
                clock.sleep(Duration::from_secs(600)).await;
                Ok(json!({ "paid": 1 }))
            }
            Self::TellsMuch => Ok(json!({ "paid": 1, "rows": vec!["x".repeat(40); 1_000] })),
        }
    }
}

/// The answers of the tool itself.
const PLAIN: [&str; 7] = [
    "TellsSecret: ok: {\"key\":\"[redacted]\",\"paid\":1}",
    "Misfits: tool.invalid_output: Tool 'work' failed: invalid outp, can be settled",
    "IsLost: tool.execution_failed: Tool 'work' failed: connection l, can be settled",
    "IsRefused: tool.execution_failed: Tool 'work' failed: connection l, can be settled",
    "IsSlow: tool.timeout: Tool 'work' timed out after 30s, can be settled",
    "TellsMuch: ok: {\"paid\":1,\"rows\":[\"xxxxxxxxxxxxx, by reference",
    "IsProbed: ok: {\"paid\":7}",
];

/// The answers of a second call with the key of the first.
const ONCE: [&str; 7] = [
    "TellsSecret: ok: {\"key\":\"[redacted]\",\"paid\":1}",
    "Misfits: ok: It happened; what it answered is",
    "IsLost: tool.done_elsewhere: Not run: it failed before, and m, can be settled",
    "IsRefused: tool.execution_failed: Tool 'work' failed: connection l, can be settled",
    "IsSlow: tool.done_elsewhere: Not run: it failed before, and m, can be settled",
    "TellsMuch: ok: {\"paid\":1,\"rows\":[\"xxxxxxxxxxxxx, by reference",
    "IsProbed: ok: {\"paid\":7}",
];

/// The answers of an operator, with the codes of its failures.
const OPERATOR: [&str; 7] = [
    "TellsSecret: ok: {\"key\":\"[redacted]\",\"paid\":1}",
    "Misfits: tool.execution_failed: Tool 'work' failed: Code output.",
    "IsLost: tool.execution_failed: Tool 'work' failed: Code tool.ex",
    "IsRefused: tool.execution_failed: Tool 'work' failed: Code tool.ex",
    "IsSlow: tool.timeout: Tool 'work' timed out after 30s",
    "TellsMuch: ok: {\"paid\":1,\"rows\":[\"xxxxxxxxxxxxx, by reference",
    "IsProbed: tool.execution_failed: Tool 'work' failed: Code tool.ex",
];

fn schema() -> Value {
    json!({ "type": "object", "properties": { "paid": { "type": "number" } } })
}

fn work(act: Act, bench: &Bench) -> FnTool {
    let clock = bench.clock.clone();
    let tool = FnTool::new("work", "Works.", move |_: Value| act.perform(clock.clone()));
    let tool = match act {
        Act::IsProbed => tool.probe(|_: Value, _: ToolContext| async {
            Ok::<_, ToolError>(Probe::Happened(Some(json!({ "paid": 7 }).into())))
        }),
        _ => tool,
    };
    tool.map_spec(|mut spec| {
        spec.schema = json!({ "type": "object" }).into();
        spec.output_schema = Some(schema().into());
        spec
    })
}

/// An operator that does the same and keeps no record.
struct Working(Act, VirtualClock, Value);

#[async_trait]
impl Operator for Working {
    fn name(&self) -> &str {
        "work"
    }
    fn output_schema(&self) -> Option<&Value> {
        Some(&self.2)
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        let done = self.0.perform(self.1.clone()).await;
        done.map(Answer::from_output).map_err(OperatorError::from_failure)
    }
}

fn agent(bench: &Bench) -> AgentBuilder {
    let asks = calls([call("c1", "work", json!({ "n": 7 }))]);
    let answers: Vec<ScriptedAnswer> = vec![asks, says("done")];
    bench.agent(answers).result_store(MemoryResultStore::new()).redactor(redactor())
}

fn redactor() -> Redactor {
    Redactor::new().with_secret(SECRET)
}

async fn run(bench: &Bench, agent: AgentBuilder) -> RunOutcome {
    bench.run(agent).await.unwrap()
}

async fn plain(act: Act, bench: &Bench) -> RunOutcome {
    run(bench, agent(bench).tool(work(act, bench))).await
}

/// The second call of two with the same key.
async fn once(act: Act, bench: &Bench) -> RunOutcome {
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let state: Arc<dyn StateStore> = Arc::new(MemoryStateStore::new().clock(clock));
    let agent = || {
        let tool = work(act, bench).map_spec(|spec: ToolSpec| spec.once("/n"));
        agent(bench).tool(tool).shared_state_store(Arc::clone(&state))
    };
    run(bench, agent()).await;
    run(bench, agent()).await
}

async fn recorded(act: Act, bench: &Bench) -> RunOutcome {
    let original = plain(act, bench).await;
    let tools = RecordedTools::from_events(&bench.events(&original.run_id).await);
    let copy: Agent = agent(bench).recorded_tools(tools).build().unwrap();
    let fork = ForkRequest::new(original.run_id, 1);
    on(bench, async move { copy.fork(fork).await }).await.unwrap()
}

async fn operator(act: Act, bench: &Bench) -> RunOutcome {
    let tool = OperatorTool::new("work", "Works.")
        .input_schema(&json!({ "type": "object" }))
        .timeout(Duration::from_secs(30));
    let lead = agent(bench).name("lead").tool(tool).build().unwrap();
    let orchestrator = LocalOrchestrator::builder()
        .clock(Arc::new(bench.clock.clone()))
        .operator(Working(act, bench.clock.clone(), schema()))
        .operator(lead.clone())
        .build()
        .unwrap();
    let run = on(bench, async move {
        orchestrator.dispatch("lead", Task::text("input"), Context::root()).await.unwrap().run
    });
    let run = run.await.unwrap();
    on(bench, async move { lead.resume(run).await }).await.unwrap()
}

/// Describes an answer: its code, the beginning of the text for the model, and whether a person can settle the call.
async fn describe(bench: &Bench, outcome: &RunOutcome) -> String {
    let events = bench.events(&outcome.run_id).await;
    let record = format!("{events:?}");
    assert!(!record.contains(SECRET), "{record}");
    let answered = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer.clone()),
        _ => None,
    });
    let answered = answered.unwrap();
    let code = answered.error.as_ref().map_or("ok", |error| error.reason.as_str()).to_owned();
    let text = tool_texts(outcome)[0].0.clone();
    let is_referred = text.contains("res_");
    let text = text.lines().next().unwrap_or_default().chars().take(32).collect::<String>();
    let settlement = Settlement::call_happened("ops");
    let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
    let can_settle = resolve(log, &outcome.run_id, &"c1".into(), settlement).await.is_ok();
    let more = [(is_referred, ", by reference"), (can_settle, ", can be settled")];
    let more: String = more.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
    format!("{code}: {text}{more}")
}

async fn rows(wrapper: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for act in Act::ALL {
        let bench = Bench::new();
        let outcome = match wrapper {
            "once" => once(act, &bench).await,
            "recorded" => recorded(act, &bench).await,
            "operator" => operator(act, &bench).await,
            _ => plain(act, &bench).await,
        };
        rows.push(format!("{act:?}: {}", describe(&bench, &outcome).await));
    }
    rows
}

/// Spec: T7, T10, T13, T14, S9, D7
#[tokio::test]
async fn answers_are_treated_alike_when_recorded() {
    let rows_of_plain = rows("plain").await;
    assert_eq!(rows_of_plain, PLAIN);
    assert_eq!(rows("recorded").await, rows_of_plain);
}

/// Spec: T7, T10, T13, T14, T16, S9
#[tokio::test]
async fn second_call_made_once_keeps_every_rule() {
    assert_eq!(rows("once").await, ONCE);
}

/// Spec: T7, T10, T13, T14, S9, O1
#[tokio::test]
async fn answer_of_an_operator_keeps_every_rule() {
    assert_eq!(rows("operator").await, OPERATOR);
}
