//! One line per event for people, the same live and from disk.

use std::fmt;

use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::failure::Seconds;
use serde_json::Value;

/// How many characters of a text stand in a line.
const MAX_TEXT: usize = 100;

/// Prints an event as one aligned line: seq, time since the start, type, what happened.
#[derive(Debug, Clone, Copy)]
pub struct TraceLine<'a> {
    /// The event.
    pub event: &'a Event,
    /// When the run began.
    pub started: Timestamp,
}

impl fmt::Display for TraceLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, started } = self;
        let elapsed = event.at.since(*started).as_secs_f64();
        let kind = event.kind.event_type();
        let line =
            format!("{:>4}  {elapsed:>9.3}s  {kind:<21} {}", event.seq, describe(&event.kind));
        f.write_str(line.trim_end())
    }
}

/// Says in one line what an event is about.
#[must_use]
pub fn describe(kind: &EventKind) -> String {
    match kind {
        EventKind::RunStarted(e) => format!("{}: {}", one_line(&e.agent.name), one_line(&e.input)),
        EventKind::RunForked(e) => format!("from {} at {}", e.parent, e.at),
        EventKind::RunResumed(e) => format!("by {}", e.by),
        EventKind::RunRecovered(e) => {
            format!("{} run again, {} interrupted", e.rerun.len(), e.interrupted.len())
        }
        EventKind::RunWaiting(e) => format!("for {} decisions", e.approvals.len()),
        EventKind::RunFinished(e) => {
            let reason = e.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{}{reason}: {}", e.outcome.as_str(), one_line(&e.output))
        }
        EventKind::RunFailed(e) => format!("{}: {}", e.reason, one_line(&e.chain.join(": "))),
        EventKind::ModelRequested(e) => format!("call {}, {} messages", e.call, e.messages),
        EventKind::ModelAttempted(e) => {
            let result = e.code.as_ref().map_or("ok", |code| code.as_str());
            let status = e.status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
            let wait = e.delay_ms.map(|ms| format!(", waits {}", millis(ms))).unwrap_or_default();
            format!(
                "call {} attempt {} at {}: {result}{status}{wait}",
                e.call, e.attempt, e.provider
            )
        }
        EventKind::ModelResponded(e) => {
            let calls: Vec<String> = e
                .tool_calls
                .iter()
                .map(|call| {
                    format!("{}({})", one_line(&call.name), one_line(&call.arguments.to_string()))
                })
                .collect();
            match (e.text.is_empty(), calls.is_empty()) {
                (_, true) => one_line(&e.text),
                (true, false) => calls.join(", "),
                (false, false) => format!("{} → {}", one_line(&e.text), calls.join(", ")),
            }
        }
        EventKind::ModelFailed(e) => format!("{} after {} attempts", e.reason, e.attempts),
        EventKind::ToolRequested(e) => {
            format!("{}({})", one_line(&e.tool), one_line(&e.arguments.to_string()))
        }
        EventKind::ToolAttempted(e) => {
            format!("{} {}, waits {}", e.call_id, e.reason, millis(e.delay_ms))
        }
        EventKind::ToolResponded(e) => {
            let took = millis(e.duration_ms);
            match &e.error {
                None => {
                    format!("{} ok in {took}: {}", one_line(&e.tool), one_line(&text_of(&e.output)))
                }
                Some(error) => {
                    format!(
                        "{} {} in {took}: {}",
                        one_line(&e.tool),
                        error.reason,
                        one_line(&error.message)
                    )
                }
            }
        }
        EventKind::ToolLate(e) => format!("{} answered too late", e.call_id),
        EventKind::ApprovalRequested(e) => format!("{} {}", e.approval_id, one_line(&e.tool)),
        EventKind::ApprovalGranted(e) => format!("{} by {}", e.approval_id, e.by),
        EventKind::ApprovalDenied(e) => format!("{} by {}", e.approval_id, e.by),
        EventKind::HookFailed(e) => {
            format!("{} at {}: {} {}", e.hook, e.point, e.reason, one_line(&e.message))
        }
        EventKind::HookAborted(e) => format!("{} at {}: {}", e.hook, e.point, one_line(&e.message)),
        EventKind::MemoryRead(e) => format!("{} entries", e.entries.len()),
        EventKind::MemoryWrote(e) => format!("{} entries", e.count),
        EventKind::MemoryDegraded(e) => {
            format!("{}: {} {}", e.operation, e.reason, one_line(&e.message))
        }
        EventKind::BudgetExhausted(e) => format!("{}: {} of {}", e.reason, e.used, e.limit),
        EventKind::GuardTripped(e) => format!("{}: {}", e.reason, one_line(&e.message)),
        EventKind::ErrorStored(e) => {
            format!(
                "{} from {}, {} characters kept from the model",
                e.error_id,
                one_line(&e.tool),
                e.chars_kept
            )
        }
        EventKind::ErrorStoreDegraded(e) => {
            format!("{}: {} {}", e.operation, e.reason, one_line(&e.message))
        }
        EventKind::ResultStored(e) => format!("{}, {} bytes", e.result_id, e.bytes),
        EventKind::ContextCompacted(e) => {
            format!(
                "messages {} to {}: {} → {} tokens",
                e.from, e.to, e.tokens_before, e.tokens_after
            )
        }
        EventKind::Warning(e) => one_line(&e.message),
        EventKind::BehaviorStarted(e) => e.behavior.to_string(),
        EventKind::BehaviorFailed(e) => {
            format!("{}: {} {}", e.behavior, e.reason, one_line(&e.message))
        }
        EventKind::OperatorDispatched(e) => e.operator.to_string(),
        EventKind::OperatorReturned(e) => e.operator.to_string(),
        EventKind::SignalReceived(e) => e.name.to_string(),
        _ => String::new(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Folds white space and control characters, and cuts.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty())
    {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > MAX_TEXT * 4 {
            break;
        }
    }
    if line.chars().count() <= MAX_TEXT {
        return line;
    }
    let cut: String = line.chars().take(MAX_TEXT - 1).collect();
    format!("{}…", cut.trim_end())
}

fn millis(ms: u64) -> Seconds {
    Seconds(std::time::Duration::from_millis(ms))
}
