//! An agent whose tools, model, hooks and approvals count as acts.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::error_store::Store;
use backstop::layer0::error::BoxError;
use backstop::layer0::message::Message;
use backstop::provider::ScriptedToolCall;
use backstop::{
    Agent, AgentBuilder, ApprovalRequest, Approver, Decision, EventLog, HookContext, HookPoint,
    Moment, Observer, ScriptedAnswer, ScriptedProvider, ToolContext, ToolError, tool,
};
use backstop_testkit::contract::Ledger;
use serde_json::json;

/// The beginning of the answer of a model that cannot read a result by its reference.
pub(super) const UNREADABLE: &str = "unreadable";

/// The state of the tools.
pub(super) struct Acting {
    pub(super) ledger: Ledger,
    pub(super) log: Arc<dyn EventLog>,
}

/// Returns the state of the tools.
pub(super) fn acting(context: &ToolContext) -> &Acting {
    context.state().expect("the agent has a ledger")
}

pub(super) fn note(context: &ToolContext, act: &str) -> Result<String, ToolError> {
    acting(context).ledger.act(act);
    Ok(format!("{act}: done"))
}

/// Pays a bill.
#[tool]
pub(super) async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "pay")
}

/// Signs a contract.
#[tool(approval)]
pub(super) async fn sign(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "sign")
}

/// Wipes a disk.
#[tool]
pub(super) async fn wipe(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "wipe")
}

/// Looks something up.
#[tool(idempotent)]
pub(super) async fn look(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "look")
}

/// Returns an agent that calls tools in turns, each turn's tools at once.
pub(super) fn agent(
    name: &'static str,
    turns: &'static [&'static [&'static str]],
    stores: &Arc<dyn Store>,
    ledger: &Ledger,
) -> AgentBuilder {
    let asked = ledger.clone();
    let model = ScriptedProvider::from_fn(move |request| {
        asked.act(format!("{name} asks its model"));
        answer(request.messages.messages(), turns)
    });
    let acting = Acting { ledger: ledger.clone(), log: stores.log() };
    Agent::builder(model).name(name).state(acting).store(&**stores).observer(Meter(ledger.clone()))
}

fn answer(messages: &[Arc<Message>], turns: &[&[&'static str]]) -> ScriptedAnswer {
    let turn = messages.iter().filter(|it| matches!(***it, Message::Assistant { .. })).count();
    let mut results = messages.iter().filter_map(|message| match &**message {
        Message::Tool { content, .. } => Some(&**content),
        _ => None,
    });
    let last = results.next_back().unwrap_or_default();
    let Some(tools) = turns.get(turn) else {
        let reads = turns.last().is_some_and(|tools| tools.contains(&"get_tool_result"));
        return match !reads || last.contains("line line") {
            true => ScriptedAnswer::saying("done"),
            false => ScriptedAnswer::saying(format!("{UNREADABLE}: {last}")),
        };
    };
    let calls = tools.iter().map(|tool| {
        let arguments = match *tool {
            "get_tool_result" => json!({ "result_id": reference(last) }),
            "clerk" | "ship" => json!({ "input": "x" }),
            _ => json!({}),
        };
        ScriptedToolCall::new(format!("{tool}-{turn}"), *tool, arguments)
    });
    ScriptedAnswer::default().tool_calls(calls)
}

/// Returns the id of a stored result that a text names.
fn reference(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
    words.find(|word| word.starts_with("res_"))
}

/// An observer whose calls count as acts.
struct Meter(Ledger);

#[async_trait]
impl Observer for Meter {
    fn name(&self) -> &str {
        "meter"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeModel, HookPoint::BeforeTool, HookPoint::AfterTool]
    }
    async fn observe(&self, _: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        self.0.act("observe");
        Ok(())
    }
}

/// An approver whose decisions count as acts.
pub(super) struct Agrees(pub(super) Ledger);

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.act("approve");
        Some(Decision::approve("ops"))
    }
}
