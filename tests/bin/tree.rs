//! A tree of agents three levels deep in an orchestrator: `lead` asks `fixer` by name and `clerk` as a tool, side
//! by side, and `clerk` asks `payer` by name. `fixer` charges, then its model fails once; `payer` wipes, if a person
//! agrees. Both act, so that neither is to be done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop::event_log::RunFilter;
use backstop::layer0::event::EventKind;
use backstop::layer0::id::RunId;
use backstop::layer0::operator::{Context, Task};
use backstop::layer0::stop::Stop;
use backstop::provider::{ErrorKind, ModelRequest, ScriptedError, ScriptedToolCall};
use backstop::react::{AgentBuilder, OperatorTool, Price};
use backstop::{
    Agent, EventLog, LocalOrchestrator, Message, Orchestrator, RetryConfig, ScriptedAnswer,
    ScriptedProvider, TokenUsage, read_events,
};
use serde_json::json;

use crate::kept::Kept;
use crate::{Deadly, Effects, Failed};

/// How long the model of `fixer` asks to be left alone.
const AWAY: u64 = 20;

/// Calls these tools in one answer, then says what they answered; before that, it fails while it is `away`.
pub(crate) fn calling(
    calls: &'static [(&'static str, &'static str)],
    is_away: Arc<AtomicBool>,
) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request: &ModelRequest| {
        let messages = request.messages.messages().iter();
        let answers: Vec<String> = messages
            .filter_map(|message| match &**message {
                Message::Tool { content, .. } => Some(content.to_string()),
                _ => None,
            })
            .collect();
        let usage = TokenUsage::new(10, 3);
        if answers.is_empty() {
            let asked = calls.iter().map(|(name, input)| {
                let arguments = match *input {
                    "" => json!({}),
                    input => json!({ "input": input }),
                };
                ScriptedToolCall::new(format!("{name}-call"), *name, arguments)
            });
            return ScriptedAnswer::default().tool_calls(asked).usage(usage);
        }
        if is_away.swap(false, Ordering::SeqCst) {
            let mut error = ScriptedError::new(ErrorKind::RateLimited);
            error.retry_after_ms = Some(AWAY);
            return ScriptedAnswer::default().error(error);
        }
        ScriptedAnswer::saying(format!("[{}]", answers.join(", "))).usage(usage)
    })
}

pub(crate) fn agent(
    name: &'static str,
    model: ScriptedProvider,
    log: &Arc<Deadly>,
    effects: &Effects,
) -> AgentBuilder {
    // What the model asks to be left alone for is longer than its agent waits.
    let retry = RetryConfig::new().max_retry_after(Duration::from_millis(AWAY / 2));
    Agent::builder(model)
        .name(name)
        .price(Price::new(1.0, 2.0))
        .retry(retry)
        .state(effects.clone())
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Has the model of `fixer` failed, as its record says?
async fn has_failed(log: &dyn EventLog) -> Result<bool, Failed> {
    for run in log.runs(RunFilter::new().agent("fixer")).await? {
        let (_, events) = read_events(log, &run.run).await?;
        if events.iter().any(|event| matches!(event.kind, EventKind::ModelFailed(_))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs the tree, or resumes it.
pub(crate) async fn act(
    database: Kept,
    log: Deadly,
    effects: Effects,
    run: RunId,
    resumes: bool,
) -> Result<Stop, Failed> {
    let is_away = Arc::new(AtomicBool::new(!has_failed(&*log.log).await?));
    let (log, here) = (Arc::new(log), Arc::<AtomicBool>::default);
    let payer = agent("payer", calling(&[("wipe", "")], here()), &log, &effects);
    let payer = payer.tool(crate::wipe).build()?;
    let fixer = agent("fixer", calling(&[("charge_blindly", "")], is_away), &log, &effects);
    let fixer = fixer.tool(crate::charge_blindly).build()?;
    let clerk = agent("clerk", calling(&[("payer", "wipe it")], here()), &log, &effects);
    let clerk = clerk.tool(OperatorTool::new("payer", "Wipes.")).build()?;
    let calls = &[("fixer", "fix it"), ("clerk", "see to it")];
    let lead = agent("lead", calling(calls, here()), &log, &effects)
        .tool(OperatorTool::new("fixer", "Fixes."))
        .tool(clerk.as_tool("Sees to it."))
        .build()?;
    let orchestrator =
        LocalOrchestrator::builder().operator(payer).operator(fixer).operator(lead).build()?;
    let answer = match resumes {
        true => orchestrator.resume("lead", run).await?,
        false => {
            let mut context = Context::root();
            context.run = Some(run);
            orchestrator.dispatch("lead", Task::text("go"), context).await?
        }
    };
    database.close().await;
    Ok(answer.stop)
}
