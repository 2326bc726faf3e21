//! Events for the result of a tool call.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{StoreError, Summary};
use backstop_event_log::begin_work;
use backstop_react_machine::HookPoint;
use backstop_tool::{Admitted, ToolError, failed_text};
use layer0::JsonText;
use layer0::event::{DoneBefore, EventKind, ToolAttempted, ToolResponded};
use layer0::failure::{Chain, Failure, sources};
use layer0::message::Image;

use super::effects::Effects;
use super::failure::{Failing, is_stored};
use super::hooks::{HookKind, Hooks};
use super::large_result::ShownResult;
use super::stop::StopFlag;
use crate::agent::inner::AgentInner;
use crate::effect::stoppable::unless_stopped;
use crate::hook::Moment;
use crate::journal::{Execution, StopFact};

/// The result of a tool that succeeded.
pub(super) struct ToolOutput {
    pub(super) text: JsonText,
    /// Images of the result.
    pub(super) images: Arc<[Image]>,
    /// Standard error of the tool.
    pub(super) stderr: Option<Arc<str>>,
    /// The earlier call that produced the output, if this one did not run.
    pub(super) done_before: Option<DoneBefore>,
}

/// An output without images or standard error.
impl From<JsonText> for ToolOutput {
    fn from(text: JsonText) -> Self {
        Self { text, images: Arc::default(), stderr: None, done_before: None }
    }
}

/// Returns the event of a tool call's retry.
pub(super) fn build_tool_attempted(
    effects: &Effects,
    execution: &Execution,
    error: &ToolError,
    delay: Duration,
) -> ToolAttempted {
    let text = error.kind().to_string();
    // Redacted before it is cut: a secret could otherwise be cut in half.
    let message = Summary::from_error(&effects.agent.redactor.redact(&text), None).text;
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let call_id = execution.run.call_id.clone();
    ToolAttempted::new(call_id, execution.run.execution, error.code(), message, delay_ms)
}

/// Stores large outputs and calls the hooks of a tool that ran. Once the step is stopped, pending stores are completed,
/// and hooks are dropped.
pub(super) async fn answer(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    result: Result<ToolOutput, ToolError>,
    stop: &StopFlag,
) -> Vec<EventKind> {
    let Effects { agent, context, .. } = effects;
    let Execution { run, elapsed, .. } = execution;
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let failing = Failing::new(agent, context, &run.call_id, &run.tool, duration_ms);
    let failing = failing.may_have_acted(!admitted.spec().idempotent);
    let stores = admitted.stores_errors();
    let mut facts = match result {
        Ok(ToolOutput { text: output, images, stderr, done_before }) => {
            let output = agent.redactor.redact_held_json(output);
            // The output of a detail tool is bounded already.
            let shown = if stores {
                ShownResult::measure(output, agent)
            } else {
                ShownResult::Whole(output)
            };
            let (note, output) = shown.keep(agent, &failing).await;
            let (stderr_note, stderr) = keep_stderr(stderr, agent, &failing).await;
            let (call_id, tool) = (run.call_id.clone(), Arc::clone(&run.tool));
            let responded = ToolResponded::success(call_id, tool, output, duration_ms);
            let responded = responded.images(images).stderr(stderr).done_before(done_before);
            note.into_iter().chain(stderr_note).chain([responded.into()]).collect()
        }
        Err(error) if stores && is_stored(&error) => {
            failing.store_and_respond(&error, agent.stores.errors.as_deref()).await
        }
        Err(error) => {
            let answer = failing.respond(&error, &failed_text(&run.tool, &error));
            // The cause of a detail tool's error shows whether its store failed.
            match sources(error.kind()).find_map(|cause| cause.downcast_ref::<StoreError>()) {
                Some(store) if !stores => {
                    let why = Chain(store).to_string();
                    vec![failing.build_degraded("get", store.code(), &why), answer]
                }
                _ => vec![answer],
            }
        }
    };
    call_hooks(effects, execution, &mut facts, stop).await;
    facts
}

/// Answers a call with recorded events, and calls the hooks of a tool that ran.
pub(super) async fn answer_recorded(
    effects: &Effects,
    execution: &Execution,
    mut facts: Vec<EventKind>,
    stop: &StopFlag,
) -> Vec<EventKind> {
    call_hooks(effects, execution, &mut facts, stop).await;
    facts
}

/// Redacts standard error; large text is stored, and its beginning is returned.
async fn keep_stderr(
    stderr: Option<Arc<str>>,
    agent: &AgentInner,
    failing: &Failing<'_>,
) -> (Option<EventKind>, Option<Arc<str>>) {
    let Some(stderr) = stderr else { return (None, None) };
    let text = JsonText::string(&agent.redactor.redact_held(&stderr));
    let (note, shown) = ShownResult::measure(text, agent).keep(agent, failing).await;
    (note, Some(shown.display_text().trim_end().into()))
}

/// Calls the hooks of a tool that ran. Their entries come before the answer in the record.
async fn call_hooks(
    effects: &Effects,
    execution: &Execution,
    facts: &mut Vec<EventKind>,
    stop: &StopFlag,
) {
    let hooks = Hooks::new(&effects.agent);
    let Some(EventKind::ToolResponded(answer)) = facts.last() else { return };
    if !hooks.has(HookPoint::AfterTool) || stop.is_stopped() {
        return;
    }
    let moment = Moment::AfterTool {
        call_id: &answer.call_id,
        tool: &answer.tool,
        ok: answer.ok,
        output: &answer.output,
    };
    // The step of a dispatch does not act itself, so its lease is checked before its hooks act.
    let lease = effects.lease().filter(|_| execution.child.is_some());
    let calling = async {
        let _at_work = match lease {
            Some(lease) => begin_work(&**lease).await,
            None => None,
        };
        hooks.call(moment, &effects.context, HookKind::All).await
    };
    let Some(called) = unless_stopped(stop, calling).await else { return };
    let stop = called.stop.map(|stop| stop.into_fact(moment, effects));
    let before_answer = facts.len() - 1;
    let stop = stop.map(|StopFact(fact)| fact.0);
    facts.splice(before_answer..before_answer, called.notes.into_iter().chain(stop));
}
