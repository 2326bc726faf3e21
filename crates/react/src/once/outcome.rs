//! The outcome of a call, from the record of its run.

use backstop_event_log::{EventLog, LogError, read_events};
use layer0::event::{Event, EventKind, ToolResponded, Verdict};
use layer0::id::{CallId, RunId};
use layer0::{JsonText, text};

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallOutcome {
    DidNot,
    /// It happened; with its answer, if that is known.
    Happened(Option<JsonText>),
    /// Its run may still end it.
    Running,
    /// It is unknown whether it happened, and stays so without a settlement; with the reason.
    Unknown(&'static str),
}

/// The reason for an unknown outcome: the process is gone.
const DIED: &str = "has begun before, and its process is gone";
/// The reason for an unknown outcome: the call was answered without it.
const FAILED: &str = "failed before, and may have acted";
/// The reason for an unknown outcome: the record is gone.
const GONE: &str = "has begun before, and its record is gone";

/// Reads the outcome of a call from the record of its run. A call without an answer is running while a process has its
/// run; with `own`, this process has it.
pub(super) async fn outcome_in(
    log: &dyn EventLog,
    run: &RunId,
    call: &CallId,
    own: bool,
) -> Result<CallOutcome, LogError> {
    if let Some(outcome) = read_outcome(log, run, call).await? {
        return Ok(outcome);
    }
    if own {
        return Ok(CallOutcome::Running);
    }
    // A claim succeeds only if no live process has the run.
    let Ok(_claim) = log.claim(run).await else { return Ok(CallOutcome::Running) };
    // The process may have recorded the answer and ended since the record was read. While the claim is held, nothing is
    // appended to the record.
    Ok(read_outcome(log, run, call).await?.unwrap_or(CallOutcome::Unknown(DIED)))
}

/// Reads the outcome of a call from the record of its run; `None` if the call has no answer.
async fn read_outcome(
    log: &dyn EventLog,
    run: &RunId,
    call: &CallId,
) -> Result<Option<CallOutcome>, LogError> {
    match read_events(log, run).await {
        Ok((_, events)) => Ok(recorded_outcome(&events, call)),
        Err(LogError::NotFound(_)) => Ok(Some(CallOutcome::Unknown(GONE))),
        Err(error) => Err(error),
    }
}

/// Returns the outcome of a call from the events of a run; the last event counts. `None` if the call has no answer.
fn recorded_outcome(events: &[Event], call: &CallId) -> Option<CallOutcome> {
    let mut outcome = None;
    for event in events {
        let said = match &event.kind {
            EventKind::ToolRequested(requested) if requested.call_id == *call => None,
            EventKind::ToolResponded(answer) if answer.call_id == *call => match outcome.take() {
                // The answer may say more: older records have no verdict whose output is `null`.
                Some(CallOutcome::Happened(None)) if answer.ok => Some(read_unknown_output(answer)),
                // The result of a probe just before the answer.
                Some(settled @ (CallOutcome::DidNot | CallOutcome::Happened(_))) => Some(settled),
                _ => Some(read_answer(answer)),
            },
            EventKind::ToolProbed(probed) if probed.call_id == *call => {
                read_verdict(probed.verdict, probed.output.as_ref())
            }
            EventKind::ToolResolved(resolved) if resolved.call_id == *call => {
                read_verdict(resolved.verdict, resolved.output.as_ref())
            }
            _ => continue,
        };
        outcome = said;
    }
    outcome
}

fn read_answer(answer: &ToolResponded) -> CallOutcome {
    match answer.ok {
        true => CallOutcome::Happened(Some(answer.output.clone())),
        false => CallOutcome::Unknown(FAILED),
    }
}

/// Reads the answer of a call that happened with an unknown output: its text may only say so.
fn read_unknown_output(answer: &ToolResponded) -> CallOutcome {
    let says_unknown = answer.output == JsonText::string(text::HAPPENED);
    CallOutcome::Happened((!says_unknown).then(|| answer.output.clone()))
}

fn read_verdict(verdict: Verdict, output: Option<&JsonText>) -> Option<CallOutcome> {
    match verdict {
        Verdict::Happened => Some(CallOutcome::Happened(output.cloned())),
        Verdict::DidNot => Some(CallOutcome::DidNot),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use layer0::Timestamp;
    use layer0::event::{Actor, ToolProbed};

    use super::*;

    /// Returns the outcome of a call that happened by its probe, and was answered after it.
    fn outcome_after(probed: Option<JsonText>, answered: Option<JsonText>) -> Option<CallOutcome> {
        let (call, happened) = (CallId::from("c1"), Verdict::Happened);
        let probed = ToolProbed::new(call.clone(), happened, probed);
        let answer =
            ToolResponded::from_verdict(call.clone(), Arc::from("pay"), happened, answered);
        let events: Vec<Event> = [EventKind::from(probed), answer.into()]
            .into_iter()
            .zip(1..)
            .map(|(kind, seq)| Event::new("run_1", seq, Timestamp::default(), Actor::Runtime, kind))
            .collect();
        recorded_outcome(&events, &call)
    }

    /// Spec: T16. `null` is an answer, also in records from before verdicts kept it.
    #[test]
    fn null_of_a_probe_is_the_outcome() {
        let null = Some(JsonText::default());
        for probed in [null.clone(), None] {
            let outcome = outcome_after(probed, null.clone());
            assert_eq!(outcome, Some(CallOutcome::Happened(null.clone())));
        }
    }

    /// Spec: T16. The text for the model is not the output of the call.
    #[test]
    fn unknown_output_stays_unknown() {
        assert_eq!(outcome_after(None, None), Some(CallOutcome::Happened(None)));
    }
}
