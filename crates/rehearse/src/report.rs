//! A run as one JSON object.

use std::sync::Arc;

use backstop_error_store::{ErrorRecord, ErrorStore, StoreError};
use backstop_event_log::readable_sessions;
use backstop_react::{RunFailure, RunOutcome};
use layer0::error::OrchError;
use layer0::event::{Event, EventKind};
use layer0::failure::{Failure, chain};
use layer0::id::{CallId, ErrorId, RunId, SessionId};
use layer0::operator::Answer;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, JsonText};
use serde::Serialize;
use serde_json::Value;

use crate::model::SentRequest;

/// The result of a run, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// Code of the failure or stop; null exactly if the run completed.
    pub reason: Option<Code>,
    /// The failure, if the run failed.
    pub error: Option<ReportedFailure>,
    /// Output of the model.
    pub output: Arc<str>,
    /// Usage of the run.
    pub usage: Usage,
    /// Time from the first to the last event, in milliseconds.
    pub elapsed_ms: u64,
    /// Events of the run.
    pub events: Vec<Event>,
    /// Errors that the run stored.
    pub errors: Vec<ReportedError>,
    /// The run and its child runs, if it dispatched any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<ReportedRun>,
}

/// One run of a tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReportedRun {
    /// The run.
    pub run: RunId,
    /// Name of the run's operator.
    pub operator: Arc<str>,
    /// Caller of the run; null for the root.
    pub parent: Option<RunId>,
    /// Outcome; null if the run has not ended.
    pub outcome: Option<Outcome>,
    /// Code of the failure or stop.
    pub reason: Option<Code>,
    /// Usage, including all child runs.
    pub usage: Usage,
    /// Events, in a rehearsal; those of the root are in its report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Model requests, in a rehearsal; those of the root are in its report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<SentRequest>,
}

/// A failure with its causes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReportedFailure {
    /// Its code.
    pub code: Code,
    /// The failure and its causes, outermost first.
    pub chain: Vec<String>,
}

/// A stored error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportedError {
    id: ErrorId,
    tool: Arc<str>,
    call_id: CallId,
    reason: Code,
    code: Option<Arc<str>>,
    summary: String,
    raw: JsonText,
    occurrences: u64,
}

impl ReportedError {
    /// Returns its id.
    #[must_use]
    pub const fn id(&self) -> &ErrorId {
        &self.id
    }
}

impl From<ErrorRecord> for ReportedError {
    fn from(record: ErrorRecord) -> Self {
        let raw = JsonText::parse(record.raw());
        Self {
            id: record.id().clone(),
            tool: Arc::clone(record.tool()),
            call_id: record.call_id().clone(),
            reason: record.reason().clone(),
            code: record.code().cloned(),
            summary: record.summary().to_owned(),
            raw: raw.unwrap_or_else(|_| JsonText::string(record.raw())),
            occurrences: record.occurrences(),
        }
    }
}

impl RunReport {
    /// Builds the report of a run from its result, its events and its stored errors.
    #[must_use]
    pub fn new(
        result: &Result<RunOutcome, RunFailure>,
        events: Vec<Event>,
        errors: Vec<ErrorRecord>,
    ) -> Self {
        let elapsed_ms = elapsed_ms(&events);
        let errors = errors.into_iter().map(Into::into).collect();
        match result {
            Ok(outcome) => Self {
                run: outcome.run_id.clone(),
                session: outcome.session.clone(),
                outcome: outcome.stop.outcome(),
                reason: outcome.stop.reason(),
                error: None,
                output: Arc::clone(&outcome.output),
                usage: outcome.usage,
                elapsed_ms,
                events,
                errors,
                runs: Vec::new(),
            },
            Err(failure) => {
                let code = Code::new(failure.code());
                let chain =
                    recorded_chain(&events).unwrap_or_else(|| chain(failure.error.as_cause()));
                Self {
                    run: failure.run_id.clone(),
                    session: failure.session.clone(),
                    outcome: Outcome::Failed,
                    reason: Some(code.clone()),
                    error: Some(ReportedFailure { code, chain }),
                    output: Arc::clone(&failure.partial),
                    usage: failure.usage,
                    elapsed_ms,
                    events,
                    errors,
                    runs: Vec::new(),
                }
            }
        }
    }
}

impl RunReport {
    /// Builds the report of a workflow's run from its answer and its events.
    #[must_use]
    pub fn of_workflow(
        run: &RunId,
        result: &Result<Answer, OrchError>,
        events: Vec<Event>,
    ) -> Self {
        let session = events.iter().find_map(|event| match &event.kind {
            EventKind::RunStarted(started) => Some(started.session.clone()),
            _ => None,
        });
        let (outcome, reason) = match result {
            Ok(answer) => (answer.stop.outcome(), answer.stop.reason()),
            Err(error) => (Outcome::Failed, Some(Code::new(error.code()))),
        };
        let error = result.as_ref().err().map(|error| ReportedFailure {
            code: Code::new(error.code()),
            chain: recorded_chain(&events).unwrap_or_else(|| chain(error)),
        });
        let recorded_usage = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::RunFailed(failed) => Some(failed.usage),
            _ => None,
        });
        let (output, usage) = match result {
            Ok(Answer { output: Value::String(text), usage, .. }) => (text.clone(), *usage),
            Ok(Answer { output: Value::Null, usage, .. }) => (String::new(), *usage),
            Ok(answer) => (JsonText::from(&answer.output).get().to_owned(), answer.usage),
            Err(_) => (String::new(), recorded_usage.unwrap_or_default()),
        };
        Self {
            run: run.clone(),
            session: session.unwrap_or_else(|| "".into()),
            outcome,
            reason,
            error,
            output: output.into(),
            usage,
            elapsed_ms: elapsed_ms(&events),
            events,
            errors: Vec::new(),
            runs: Vec::new(),
        }
    }
}

/// Returns the milliseconds from the first to the last event.
fn elapsed_ms(events: &[Event]) -> u64 {
    match (events.first(), events.last()) {
        (Some(first), Some(last)) => {
            u64::try_from(last.at.since(first.at).as_millis()).unwrap_or(u64::MAX)
        }
        _ => 0,
    }
}

/// Reads the errors that a run stored, in the order of its events, including those that an earlier run of the session
/// had already stored.
///
/// # Errors
///
/// Any variant of [`StoreError`].
pub async fn stored_errors(
    store: &dyn ErrorStore,
    events: &[Event],
) -> Result<Vec<ErrorRecord>, StoreError> {
    let sessions = readable_sessions(events);
    let mut errors: Vec<ErrorRecord> = Vec::new();
    for event in events {
        let EventKind::ErrorStored(stored) = &event.kind else { continue };
        // Errors that a fork stored itself are in its own session, the others in the sessions of its origins.
        for session in &sessions {
            if errors.iter().any(|error| *error.id() == stored.error_id) {
                break;
            }
            // Retention may have removed it in the meantime.
            errors.extend(store.get(session, &stored.error_id).await?.into_item());
        }
    }
    Ok(errors)
}

/// Returns the chain recorded in the log; `None` for a run whose log failed.
fn recorded_chain(events: &[Event]) -> Option<Vec<String>> {
    match &events.last()?.kind {
        EventKind::RunFailed(failed) => Some(failed.chain.clone()),
        _ => None,
    }
}
