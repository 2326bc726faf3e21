//! Probes: a tool's report on a call of unknown outcome.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backstop_tool::{Admitted, Probe, ToolError};
use layer0::event::{EventKind, ToolProbed, ToolResponded, Verdict};
use layer0::failure::{Chain, Effect, Failure};
use layer0::{JsonText, text};
use serde_json::json;

use super::answer::{answer, build_tool_attempted};
use super::call::{admit_execution, build_tool_context, resolve_time_limit};
use super::effects::Effects;
use super::large_result::ShownResult;
use super::stop::StopFlag;
use crate::effect::guarded;
use crate::journal::{Execution, ExecutionEnd, PendingEvents, StepEnd};

/// Probes a call that was running when the process died.
pub(super) async fn of_interrupted(
    effects: Arc<Effects>,
    mut execution: Box<Execution>,
    stop: StopFlag,
) -> StepEnd {
    let admitted = match admit_execution(&effects, &execution) {
        Ok(admitted) => admitted,
        // A tool that no longer exists or is no longer granted cannot report anything.
        Err(_) => {
            let facts = vec![
                build_tool_probed(&execution, Verdict::Unknown),
                build_interrupted(&execution),
            ];
            let facts = PendingEvents(facts);
            return StepEnd::Execution(ExecutionEnd { facts, ..ExecutionEnd::default() });
        }
    };
    execution.tried = execution.tried.saturating_add(1);
    let error = ToolError::Interrupted;
    StepEnd::Execution(settle(&effects, execution, &admitted, error, &stop).await)
}

/// Probes a call that has its answer, of a finished run.
pub(super) async fn of_answered(effects: &Effects, execution: &Execution) -> StepEnd {
    // A tool that no longer exists or is no longer granted cannot report anything.
    let Ok(admitted) = admit_execution(effects, execution) else {
        return StepEnd::Execution(ExecutionEnd::default());
    };
    let (verdict, output) = match ask(effects, execution, &admitted).await {
        Probe::Happened(output) => {
            let output = output.filter(|output| admitted.check_output(output).is_ok());
            let redacted = |output| effects.agent.redactor.redact_held_json(output);
            // Nothing can be stored for a finished run.
            let shown = |output| ShownResult::measure(output, &effects.agent).cut(&effects.agent);
            (Verdict::Happened, output.map(redacted).map(shown))
        }
        Probe::DidNot => (Verdict::DidNot, None),
        _ => (Verdict::Unknown, None),
    };
    let probed = ToolProbed::new(execution.run.call_id.clone(), verdict, output);
    StepEnd::Execution(ExecutionEnd {
        facts: PendingEvents(vec![probed.into()]),
        ..ExecutionEnd::default()
    })
}

/// Returns whether the tool is probed after this failure of a call.
pub(super) fn is_asked(admitted: &Admitted, error: &ToolError) -> bool {
    let spec = admitted.spec();
    spec.probe && !spec.idempotent && error.effect() == Effect::Unknown
}

/// Probes the tool, and returns what follows: the answer of the call, or another execution. Once the step is stopped, a
/// known failure is the answer.
pub(super) async fn settle(
    effects: &Effects,
    execution: Box<Execution>,
    admitted: &Admitted,
    error: ToolError,
    stop: &StopFlag,
) -> ExecutionEnd {
    let mut end = ExecutionEnd::default();
    let said = match stop.is_stopped() {
        true => None,
        false => {
            let mut asking = pin!(ask(effects, &execution, admitted));
            tokio::select! {
                biased;
                said = &mut asking => Some(said),
                () = stop.wait() => None,
            }
        }
    };
    let Some(said) = said else {
        if !matches!(error, ToolError::Interrupted) {
            end.facts = PendingEvents(
                answer_without_probe(effects, &execution, admitted, error, stop).await,
            );
        }
        return end;
    };
    end.facts = PendingEvents(match said {
        Probe::Happened(output) => {
            answer_happened(effects, &execution, admitted, output, stop).await
        }
        Probe::DidNot
            if admitted.spec().probe_is_final && execution.may_repeat && !stop.is_stopped() =>
        {
            let again = build_tool_attempted(effects, &execution, &error, Duration::ZERO);
            let facts = vec![build_tool_probed(&execution, Verdict::DidNot), again.into()];
            end.again = Some((Duration::ZERO, execution));
            facts
        }
        Probe::DidNot => did_not(effects, &execution, admitted, error, stop).await,
        _ => {
            let mut facts = answer_without_probe(effects, &execution, admitted, error, stop).await;
            facts.insert(0, build_tool_probed(&execution, Verdict::Unknown));
            facts
        }
    });
    end
}

/// Probes the tool, whose code may panic, hang or fail.
async fn ask(effects: &Effects, execution: &Execution, admitted: &Admitted) -> Probe {
    let agent = &effects.agent;
    let run = &execution.run;
    let mut context = build_tool_context(effects, &run.call_id, &execution.sessions, admitted);
    context.approval_data.clone_from(&run.approval_data);
    let tool = admitted.tool();
    let asked = AssertUnwindSafe(async { tool.probe(&admitted.arguments, &context).await });
    let said = guarded::ask(asked, resolve_time_limit(agent, admitted), &agent.clock).await;
    said.unwrap_or_else(|error| {
        let why = Chain(&error).to_string();
        let why = agent.redactor.redact(&why);
        tracing::warn!(tool = %execution.run.tool, %why, "a tool cannot say what became of a call");
        Probe::Unknown
    })
}

async fn answer_happened(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    output: Option<JsonText>,
    stop: &StopFlag,
) -> Vec<EventKind> {
    let result = match output {
        Some(output) => admitted.check_output(&output).map(|()| output),
        None => Ok(JsonText::string(text::HAPPENED)),
    };
    let mut facts = answer(effects, execution, admitted, result.map(Into::into), stop).await;
    // In the form that the model reads: large output is stored, and secrets are redacted.
    let shown = facts.iter().find_map(|fact| match fact {
        EventKind::ToolResponded(responded) if responded.ok => Some(responded.output.clone()),
        _ => None,
    });
    let call = execution.run.call_id.clone();
    facts.insert(0, ToolProbed::new(call, Verdict::Happened, shown).into());
    facts
}

async fn did_not(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    error: ToolError,
    stop: &StopFlag,
) -> Vec<EventKind> {
    let probed = build_tool_probed(execution, Verdict::DidNot);
    if matches!(error, ToolError::Interrupted) {
        return vec![probed, build_settled(execution, Verdict::DidNot)];
    }
    let mut facts = answer_without_probe(effects, execution, admitted, error, stop).await;
    facts.insert(0, probed);
    for fact in &mut facts {
        if let EventKind::ToolResponded(responded) = fact {
            say_may_be_called_again(responded);
        }
    }
    facts
}

/// Answers a call as if no probe had been made.
async fn answer_without_probe(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    error: ToolError,
    stop: &StopFlag,
) -> Vec<EventKind> {
    match error {
        ToolError::Interrupted => vec![build_interrupted(execution)],
        error => answer(effects, execution, admitted, Err(error), stop).await,
    }
}

fn say_may_be_called_again(responded: &mut ToolResponded) {
    let said = responded.output.value();
    if let Some(said) = said["error"].as_str() {
        let text = format!("{said}\n{}", text::MAY_BE_CALLED_AGAIN);
        responded.output = json!({ "error": text }).into();
    }
}

fn build_interrupted(execution: &Execution) -> EventKind {
    build_settled(execution, Verdict::Unknown)
}

fn build_settled(execution: &Execution, verdict: Verdict) -> EventKind {
    let (call, tool) = (execution.run.call_id.clone(), Arc::clone(&execution.run.tool));
    ToolResponded::from_verdict(call, tool, verdict, None).into()
}

fn build_tool_probed(execution: &Execution, verdict: Verdict) -> EventKind {
    ToolProbed::new(execution.run.call_id.clone(), verdict, None).into()
}
