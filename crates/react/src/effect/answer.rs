//! From what a tool came to, to what the record says of it.

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
use super::hooks::{Hooks, Kind};
use super::large_result::ShownResult;
use super::stop::Stop;
use crate::agent::inner::Inner;
use crate::effect::stoppable::unless_stopped;
use crate::hook::Moment;
use crate::journal::{Execution, StopFact};

/// What a tool that did its work gives.
pub(super) struct Output {
    pub(super) text: JsonText,
    /// What it shows beside it.
    pub(super) images: Arc<[Image]>,
    /// What it wrote to standard error.
    pub(super) stderr: Option<Arc<str>>,
    /// The call whose output it is, where that is another one.
    pub(super) done_before: Option<DoneBefore>,
}

/// The output alone.
impl From<JsonText> for Output {
    fn from(text: JsonText) -> Self {
        Self { text, images: Arc::default(), stderr: None, done_before: None }
    }
}

/// Says that a tool is tried again.
pub(super) fn attempted(
    effects: &Effects,
    execution: &Execution,
    error: &ToolError,
    delay: Duration,
) -> ToolAttempted {
    let text = error.kind().to_string();
    // Cut first, a secret would be cut in half.
    let message = Summary::of(&effects.agent.redactor.redact(&text), None).text;
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let call_id = execution.run.call_id.clone();
    ToolAttempted::new(call_id, execution.run.execution, error.code(), message, delay_ms)
}

/// Stores what is long, and calls the hooks of a tool that ran. Once it is stopped, what is known is stored to its
/// end, and hooks are dropped.
pub(super) async fn answer(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    result: Result<Output, ToolError>,
    stop: &Stop,
) -> Vec<EventKind> {
    let Effects { agent, context, .. } = effects;
    let Execution { run, elapsed, .. } = execution;
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let failing = Failing::new(agent, context, &run.call_id, &run.tool, duration_ms);
    let failing = failing.may_have_acted(!admitted.spec().idempotent);
    let stores = admitted.stores_errors();
    let mut facts = match result {
        Ok(Output { text: output, images, stderr, done_before }) => {
            let output = agent.redactor.redact_held_json(output);
            // What the detail tools give out is bounded by itself.
            let shown =
                if stores { ShownResult::of(output, agent) } else { ShownResult::Whole(output) };
            let (note, output) = shown.keep(agent, &failing).await;
            let (stderr_note, stderr) = keep_stderr(stderr, agent, &failing).await;
            let (call_id, tool) = (run.call_id.clone(), Arc::clone(&run.tool));
            let responded = ToolResponded::succeeded(call_id, tool, output, duration_ms);
            let responded = responded.images(images).stderr(stderr).done_before(done_before);
            note.into_iter().chain(stderr_note).chain([responded.into()]).collect()
        }
        Err(error) if stores && is_stored(&error) => {
            failing.store_and_respond(&error, agent.stores.errors.as_deref()).await
        }
        Err(error) => {
            let answer = failing.respond(&error, &failed_text(&run.tool, &error));
            // A detail tool that cannot read its store says so in its cause.
            match sources(error.kind()).find_map(|cause| cause.downcast_ref::<StoreError>()) {
                Some(store) if !stores => {
                    let why = Chain(store).to_string();
                    vec![failing.degraded("get", store.code(), &why), answer]
                }
                _ => vec![answer],
            }
        }
    };
    call_hooks(effects, execution, &mut facts, stop).await;
    facts
}

/// Answers a call with facts of a record, and calls the hooks of a tool that ran.
pub(super) async fn answer_recorded(
    effects: &Effects,
    execution: &Execution,
    mut facts: Vec<EventKind>,
    stop: &Stop,
) -> Vec<EventKind> {
    call_hooks(effects, execution, &mut facts, stop).await;
    facts
}

/// Keeps standard error whole; what is large is stored, and shown in part.
async fn keep_stderr(
    stderr: Option<Arc<str>>,
    agent: &Inner,
    failing: &Failing<'_>,
) -> (Option<EventKind>, Option<Arc<str>>) {
    let Some(stderr) = stderr else { return (None, None) };
    let text = JsonText::string(&agent.redactor.redact_held(&stderr));
    let (note, shown) = ShownResult::of(text, agent).keep(agent, failing).await;
    (note, Some(shown.shown().trim_end().into()))
}

/// Calls the hooks of a tool that ran. What they leave in the record stands before the answer.
async fn call_hooks(
    effects: &Effects,
    execution: &Execution,
    facts: &mut Vec<EventKind>,
    stop: &Stop,
) {
    let hooks = Hooks::of(&effects.agent);
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
    // The step of a dispatch does not act by itself: what acts behind it looks whether it may.
    let lease = effects.lease().filter(|_| execution.child.is_some());
    let calling = async {
        let _at_work = match lease {
            Some(lease) => begin_work(&**lease).await,
            None => None,
        };
        hooks.call(moment, &effects.context, Kind::All).await
    };
    let Some(called) = unless_stopped(stop, calling).await else { return };
    let stop = called.stop.map(|stop| stop.into_fact(moment, effects));
    let before_answer = facts.len() - 1;
    let stop = stop.map(|StopFact(fact)| fact.0);
    facts.splice(before_answer..before_answer, called.notes.into_iter().chain(stop));
}
