//! Results of runs for clients.

use backstop_event_log::LogError;
use backstop_redact::Redactor;
use layer0::error::OrchError;
use layer0::failure::{Chain, Effect, Failure, Retry};
use layer0::id::RunId;
use layer0::operator::Answer;
use layer0::stop::{Outcome, Stop};
use layer0::text;
use layer0::{Code, JsonText};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::ended::{RecordState, WorkEnd};

/// Returns the result of a run whose work in this process has ended.
pub(crate) fn render_end(ended: &WorkEnd, run: &RunId, redactor: &Redactor) -> CallToolResult {
    match ended.result() {
        Ok(answer) => render_answer(answer, run, redactor),
        Err(_) if ended.is_elsewhere() => elsewhere(run),
        Err(error) => render_failure(error, ended.standing(), run, redactor),
    }
}

/// Returns the result of a run that answered.
fn render_answer(answer: &Answer, run: &RunId, redactor: &Redactor) -> CallToolResult {
    let run = answer.run.as_ref().unwrap_or(run);
    let output = text::plain(&answer.output);
    let output = redactor.redact_held(&output);
    let outcome = answer.stop.outcome().as_str();
    let said = json!({ "outcome": outcome, "run": run, "output": answer.output });
    let mut said = redactor.redact_held_json(JsonText::from(said)).value();
    match &answer.stop {
        Stop::Completed => result(&output, said, false),
        Stop::WaitingApproval => {
            let why = match answer.parked_until {
                Some(until) => format!("is parked until {until}"),
                None => "waits for a person's approval".to_owned(),
            };
            let text = format!("Run {run} {why}. {}", ask_again(run));
            result(&text, said, false)
        }
        stop => {
            let code = stop.reason().unwrap_or_else(|| Code::new(layer0::code::INTERNAL));
            let text = format!("Stopped before the work was done: {code}. So far:\n{output}");
            said["error"] = facts(
                code.as_str(),
                "stopped before the work was done",
                Retry::Never,
                Effect::Unknown,
            );
            result(&text, said, true)
        }
    }
}

/// Returns the failure of a run, or the reason that it was not resumed.
fn render_failure(
    error: &OrchError,
    standing: RecordState,
    run: &RunId,
    redactor: &Redactor,
) -> CallToolResult {
    let message = Chain(error).to_string();
    let message = redactor.redact(&message);
    // For an open run, the error is that of this attempt to resume it, and the run may have acted before.
    let (mut said, effect) = match (standing, error.effect()) {
        (RecordState::Open, Effect::None) => (json!({ "run": run }), Effect::Unknown),
        (RecordState::Open, effect) => (json!({ "run": run }), effect),
        (RecordState::Final | RecordState::Unrecorded, effect) => {
            (json!({ "outcome": Outcome::Failed.as_str(), "run": run }), effect)
        }
    };
    said["error"] = facts(error.code(), &message, error.retry(), effect);
    result(&format!("{}: {message}", error.code()), said, true)
}

/// Returns the result for a run that continues.
pub(crate) fn underway(run: &RunId) -> CallToolResult {
    running("is still at work", run)
}

/// Returns the result for a run that has the key of the call and waits for a worker.
pub(crate) fn render_queued(run: &RunId) -> CallToolResult {
    let text = format!(
        "Run {run} waits in the queue for a worker. Make the same call again, with the same key, to be told what \
         became of it."
    );
    result(&text, json!({ "outcome": "queued", "run": run }), false)
}

/// Returns the result for a run that continues in another process.
fn elsewhere(run: &RunId) -> CallToolResult {
    running("is at work in another process", run)
}

fn running(how: &str, run: &RunId) -> CallToolResult {
    let text = format!("Run {run} {how}. {}", ask_again(run));
    result(&text, json!({ "outcome": "running", "run": run }), false)
}

/// Refuses a call before anything is started.
pub(crate) fn render_refusal(code: &str, message: &str) -> CallToolResult {
    refused_with(code, message, Retry::Never)
}

/// Refuses a call whose key could not be recorded; nothing was started.
pub(crate) fn not_noted(error: &LogError, redactor: &Redactor) -> CallToolResult {
    let message = Chain(error).to_string();
    refused_with(error.code(), &redactor.redact(&message), error.retry())
}

fn refused_with(code: &str, message: &str, retry: Retry) -> CallToolResult {
    let said = json!({ "error": facts(code, message, retry, Effect::None) });
    result(&format!("{code}: {message}"), said, true)
}

fn ask_again(run: &RunId) -> String {
    format!("Call the tool again with {} to be told what became of it.", json!({ "run": run }))
}

fn facts(code: &str, message: &str, retry: Retry, effect: Effect) -> Value {
    let (retry, after) = match retry {
        Retry::Never => ("never", None),
        Retry::Backoff => ("backoff", None),
        Retry::After(wait) => ("after", Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))),
    };
    let effect = match effect {
        Effect::None => "none",
        Effect::Unknown => "unknown",
        Effect::Happened => "happened",
    };
    let mut facts = json!({ "code": code, "message": message, "retry": retry, "effect": effect });
    if let Some(after) = after {
        facts["retry_after_ms"] = after.into();
    }
    facts
}

fn result(text: &str, structured: Value, is_error: bool) -> CallToolResult {
    let content = vec![ContentBlock::text(text)];
    let mut result = match is_error {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    };
    result.structured_content = Some(structured);
    result
}
