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

use super::answer::{answer, attempted};
use super::call::{admitted, context_of, limit_of};
use super::effects::Effects;
use super::large_result::ShownResult;
use super::stop::Stop;
use crate::effect::guarded;
use crate::journal::{End, Execution, ExecutionEnd, Notes};

/// Probes a call that was running when the process died.
pub(super) async fn of_interrupted(
    effects: Arc<Effects>,
    mut execution: Box<Execution>,
    stop: Stop,
) -> End {
    let admitted = match admitted(&effects, &execution) {
        Ok(admitted) => admitted,
        // A tool that no longer exists or is no longer granted cannot report anything.
        Err(_) => {
            let facts = vec![probed(&execution, Verdict::Unknown), interrupted(&execution)];
            let facts = Notes(facts);
            return End::Execution(ExecutionEnd { facts, ..ExecutionEnd::default() });
        }
    };
    execution.tried = execution.tried.saturating_add(1);
    let error = ToolError::Interrupted;
    End::Execution(settle(&effects, execution, &admitted, error, &stop).await)
}

/// Probes a call that has its answer, of a finished run.
pub(super) async fn of_answered(effects: &Effects, execution: &Execution) -> End {
    // A tool that no longer exists or is no longer granted cannot report anything.
    let Ok(admitted) = admitted(effects, execution) else {
        return End::Execution(ExecutionEnd::default());
    };
    let (verdict, output) = match ask(effects, execution, &admitted).await {
        Probe::Happened(output) => {
            let output = output.filter(|output| admitted.check_output(output).is_ok());
            let redacted = |output| effects.agent.redactor.redact_held_json(output);
            // Nothing can be stored for a finished run.
            let shown = |output| ShownResult::of(output, &effects.agent).cut(&effects.agent);
            (Verdict::Happened, output.map(redacted).map(shown))
        }
        Probe::DidNot => (Verdict::DidNot, None),
        _ => (Verdict::Unknown, None),
    };
    let probed = ToolProbed::new(execution.run.call_id.clone(), verdict, output);
    End::Execution(ExecutionEnd { facts: Notes(vec![probed.into()]), ..ExecutionEnd::default() })
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
    stop: &Stop,
) -> ExecutionEnd {
    let mut end = ExecutionEnd::default();
    let said = match stop.is_stopped() {
        true => None,
        false => {
            let mut asking = pin!(ask(effects, &execution, admitted));
            tokio::select! {
                biased;
                said = &mut asking => Some(said),
                () = stop.stopped() => None,
            }
        }
    };
    let Some(said) = said else {
        if !matches!(error, ToolError::Interrupted) {
            end.facts = Notes(failed(effects, &execution, admitted, error, stop).await);
        }
        return end;
    };
    end.facts = Notes(match said {
        Probe::Happened(output) => happened(effects, &execution, admitted, output, stop).await,
        Probe::DidNot
            if admitted.spec().probe_is_final && execution.may_repeat && !stop.is_stopped() =>
        {
            let again = attempted(effects, &execution, &error, Duration::ZERO);
            let facts = vec![probed(&execution, Verdict::DidNot), again.into()];
            end.again = Some((Duration::ZERO, execution));
            facts
        }
        Probe::DidNot => did_not(effects, &execution, admitted, error, stop).await,
        _ => {
            let mut facts = failed(effects, &execution, admitted, error, stop).await;
            facts.insert(0, probed(&execution, Verdict::Unknown));
            facts
        }
    });
    end
}

/// Probes the tool, whose code may panic, hang or fail.
async fn ask(effects: &Effects, execution: &Execution, admitted: &Admitted) -> Probe {
    let agent = &effects.agent;
    let run = &execution.run;
    let mut context = context_of(effects, &run.call_id, &execution.sessions, admitted);
    context.approval_data.clone_from(&run.approval_data);
    let tool = admitted.tool();
    let asked = AssertUnwindSafe(async { tool.probe(&admitted.arguments, &context).await });
    let said = guarded::ask(asked, limit_of(agent, admitted), &agent.clock).await;
    said.unwrap_or_else(|error| {
        let why = Chain(&error).to_string();
        let why = agent.redactor.redact(&why);
        tracing::warn!(tool = %execution.run.tool, %why, "a tool cannot say what became of a call");
        Probe::Unknown
    })
}

async fn happened(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    output: Option<JsonText>,
    stop: &Stop,
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
    stop: &Stop,
) -> Vec<EventKind> {
    let probed = probed(execution, Verdict::DidNot);
    if matches!(error, ToolError::Interrupted) {
        return vec![probed, settled(execution, Verdict::DidNot)];
    }
    let mut facts = failed(effects, execution, admitted, error, stop).await;
    facts.insert(0, probed);
    for fact in &mut facts {
        if let EventKind::ToolResponded(responded) = fact {
            say_may_be_called_again(responded);
        }
    }
    facts
}

/// Answers a call as if no probe had been made.
async fn failed(
    effects: &Effects,
    execution: &Execution,
    admitted: &Admitted,
    error: ToolError,
    stop: &Stop,
) -> Vec<EventKind> {
    match error {
        ToolError::Interrupted => vec![interrupted(execution)],
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

fn interrupted(execution: &Execution) -> EventKind {
    settled(execution, Verdict::Unknown)
}

fn settled(execution: &Execution, verdict: Verdict) -> EventKind {
    let (call, tool) = (execution.run.call_id.clone(), Arc::clone(&execution.run.tool));
    ToolResponded::settled(call, tool, verdict, None).into()
}

fn probed(execution: &Execution, verdict: Verdict) -> EventKind {
    ToolProbed::new(execution.run.call_id.clone(), verdict, None).into()
}
