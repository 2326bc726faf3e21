//! Answers of runs that ended in another process.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError};
use backstop_redact::Redactor;
use layer0::Code;
use layer0::code;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{Event, EventKind, OperatorRefused, OperatorReturned, RunFailed};
use layer0::failure::{Effect, ErrorText, Facts, Failure, RetryFacts};
use layer0::id::RunId;
use layer0::operator::Answer;
use layer0::stop::{Outcome, Stop};
use layer0::usage::Usage;
use serde_json::Value;
use thiserror::Error;

use super::text::parse_value;

/// The failure of a run, read from its record.
///
/// Retry: as the record says. Effect: as it says.
#[derive(Debug, Error)]
#[error("{text}")]
pub(super) struct RecordedStepFailure {
    facts: Facts,
    text: String,
    source: Option<ErrorText>,
}

impl Failure for RecordedStepFailure {
    fn facts(&self) -> Facts {
        self.facts
    }
}

impl RecordedStepFailure {
    fn new(reason: Option<&Code>, texts: Vec<String>, retry: Option<RetryFacts>) -> Self {
        let code = reason.and_then(|reason| code::intern(reason.as_str()));
        let code = code.unwrap_or(code::OPERATOR_OTHER);
        let mut facts = Facts::never(code, Effect::Unknown);
        if let Some(retry) = retry {
            facts = facts.with_retry_facts(retry);
        }
        let mut texts = texts.into_iter();
        let text = texts.next().unwrap_or_else(|| "it failed".to_owned());
        let rest: Vec<String> = texts.collect();
        Self { facts, text, source: ErrorText::from_chain(rest) }
    }

    fn operator_error(failed: &RunFailed) -> OperatorError {
        let (reason, chain) = (Some(&failed.reason), failed.chain.clone());
        OperatorError::from_failure(Self::new(reason, chain, failed.retry))
    }
}

/// Returns the answer of an operator without a record, from the recorded end of its step.
pub(super) fn read_returned_answer(returned: OperatorReturned) -> Result<Answer, OrchError> {
    if returned.outcome == Outcome::Failed {
        return Err(noted_failure(&returned));
    }
    let output = returned.output.map(|output| output.read()).transpose();
    let output: Value = output.ok().flatten().unwrap_or_default();
    Ok(answer(None, to_stop(returned.outcome, returned.reason), output, returned.usage))
}

/// Returns the failure in the recorded end of a step.
pub(super) fn noted_failure(returned: &OperatorReturned) -> OrchError {
    let mut texts: Vec<String> = returned.messages.iter().map(ToString::to_string).collect();
    if let (true, Some(output)) = (texts.is_empty(), &returned.output) {
        // Records of the first layout have the messages here.
        texts = output.read().unwrap_or_default();
    }
    let mut failure = RecordedStepFailure::new(returned.reason.as_ref(), texts, returned.retry);
    failure.facts = failure.facts.with_effect(returned.effect.unwrap_or(Effect::Unknown));
    OperatorError::from_failure(failure).into()
}

/// Returns the failure of a step that was refused before a run began.
pub(super) fn refusal_error(refused: &OperatorRefused) -> OrchError {
    let texts = refused.messages.iter().map(ToString::to_string).collect();
    let mut failure = RecordedStepFailure::new(Some(&refused.reason), texts, None);
    failure.facts = failure.facts.with_effect(Effect::None);
    OperatorError::from_failure(failure).into()
}

/// Returns the messages of a failure, without secrets.
pub(super) fn messages(error: &OrchError, redactor: &Redactor) -> Vec<Arc<str>> {
    error.messages().iter().map(|text| redactor.redact_held(text).into()).collect()
}

/// Returns the failure of a step: from its recorded end, otherwise from the record of its run.
pub(super) async fn failure(log: &dyn EventLog, returned: &OperatorReturned) -> OrchError {
    if !returned.messages.is_empty() {
        return noted_failure(returned);
    }
    match read_last_event(log, &returned.run).await {
        Ok(Some(EventKind::RunFailed(failed))) => {
            RecordedStepFailure::operator_error(&failed).into()
        }
        Err(error) => OperatorError::from_failure(error).into(),
        Ok(_) => noted_failure(returned),
    }
}

/// Reads the last event of a run.
async fn read_last_event(log: &dyn EventLog, run: &RunId) -> Result<Option<EventKind>, LogError> {
    let Some(summary) = log.summary(run).await? else { return Ok(None) };
    let records = log.records(run, summary.last_seq).await?;
    let last = records.iter().find(|record| record.seq == summary.last_seq);
    last.map(|record| record.decode(run).map(|event| event.kind)).transpose()
}

/// Returns the end of a workflow's run; `None` while it is open.
pub(super) fn find_result(events: &[Event]) -> Option<Result<Answer, OperatorError>> {
    let mut ends = events.iter().rev().map(|event| (&event.run, &event.kind));
    ends.find_map(|(run, kind)| match kind {
        EventKind::RunFinished(finished) => {
            let stop = to_stop(finished.outcome, finished.reason.clone());
            Some(Ok(answer(Some(run), stop, parse_value(&finished.output), finished.usage)))
        }
        EventKind::RunFailed(failed) => Some(Err(RecordedStepFailure::operator_error(failed))),
        _ => None,
    })
}

pub(super) fn answer(run: Option<&RunId>, stop: Stop, output: Value, usage: Usage) -> Answer {
    let mut answer = Answer::from_output(output);
    (answer.stop, answer.run, answer.usage) = (stop, run.cloned(), usage);
    answer
}

fn to_stop(outcome: Outcome, reason: Option<Code>) -> Stop {
    let reason = || reason.clone().unwrap_or(Code::new(code::OPERATOR_OTHER));
    match outcome {
        Outcome::Completed | Outcome::Failed => Stop::Completed,
        Outcome::Incomplete => Stop::Incomplete { reason: reason() },
        Outcome::BudgetExhausted => Stop::BudgetExhausted { reason: reason() },
        Outcome::Cancelled => Stop::Cancelled,
        Outcome::WaitingApproval => Stop::WaitingApproval,
        _ => Stop::Completed,
    }
}
