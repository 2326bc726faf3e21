//! Descriptions of events in one line.

use std::time::Duration;

use layer0::event::{EventKind, WaitFor};
use layer0::failure::Seconds;
use layer0::id::ApprovalId;
use layer0::usage::{Allowance, Usage};
use layer0::{JsonText, code};

use super::line::{brief, cut};

/// Maximum characters of a line.
const MAX_LINE: usize = 1_000;

/// Describes an event in one line of at most 1,000 characters. Text from outside cannot break the line, change its
/// direction, hide in it or fill it.
#[must_use]
pub fn describe(kind: &EventKind) -> String {
    cut(&details(kind), MAX_LINE)
}

fn with_images(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (with 1 image)".to_owned(),
        many => format!(" (with {many} images)"),
    }
}

fn details(kind: &EventKind) -> String {
    match kind {
        EventKind::RunStarted(e) => {
            let images = with_images(e.images.len());
            let branch = e.branch_of.as_ref().map(|first| format!(" (branch beside {first})"));
            let branch = branch.unwrap_or_default();
            let labels: String =
                e.labels.iter().map(|(key, value)| format!(" [{key}={}]", brief(value))).collect();
            format!("{}: {}{images}{branch}{labels}", brief(&e.agent.name), brief(&e.input))
        }
        EventKind::RunForked(e) => format!("from {} at {}", e.parent, e.at),
        EventKind::RunResumed(e) => {
            let other = e.agent.as_ref().map(|agent| format!(", defined anew: {}", agent.digest));
            let lost =
                e.lost_tail.map(|lost| format!(", without its lost events up to {}", lost.seq));
            let by = brief(&e.by);
            format!("by {by}{}{}", other.unwrap_or_default(), lost.unwrap_or_default())
        }
        EventKind::RunReopened(e) => match &e.message {
            Some(message) => format!("by {}: {}", brief(&e.by), brief(message)),
            None => format!("by {}", brief(&e.by)),
        },
        EventKind::RunParked(e) => format!("until {}: {} {}", e.until, e.reason, brief(&e.message)),
        EventKind::RunRecovered(e) => {
            let probing = match e.probing.len() {
                0 => String::new(),
                asked => format!(", {asked} asked about"),
            };
            format!("{} run again, {} interrupted{probing}", e.rerun.len(), e.interrupted.len())
        }
        EventKind::RunWaiting(e) => waits(e.r#for, &e.approvals),
        EventKind::RunFinished(e) => {
            let reason = e.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{}{reason}: {}", e.outcome.as_str(), brief(&e.output))
        }
        EventKind::RunFailed(e) => format!("{}: {}", e.reason, brief(&e.chain.join(": "))),
        EventKind::ModelRequested(e) => {
            format!("call {}, {}", e.call, format_count(e.messages.into(), "message"))
        }
        EventKind::ModelAttempted(e) => {
            let result = e.code.as_ref().map_or("ok", |code| code.as_str());
            let status = e.status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
            let id = e.request_id.as_ref().map(|id| format!(", request {}", brief(id)));
            let id = id.filter(|_| e.code.is_some()).unwrap_or_default();
            let next = e.next_provider.as_ref().map(|next| format!(", then {}", brief(next)));
            let next = next.unwrap_or_default();
            let wait = e
                .delay_ms
                .filter(|_| e.next_provider.is_none())
                .map(|ms| format!(", waits {}", millis(ms)))
                .unwrap_or_default();
            format!(
                "call {} attempt {} at {}: {result}{status}{id}{wait}{next}",
                e.call,
                e.attempt,
                brief(&e.provider)
            )
        }
        EventKind::ModelResponded(e) => {
            let calls: Vec<String> = e
                .tool_calls
                .iter()
                .map(|call| format!("{}({})", brief(&call.name), brief(call.arguments.get())))
                .collect();
            match (e.text.is_empty(), calls.is_empty()) {
                (_, true) => brief(&e.text),
                (true, false) => calls.join(", "),
                (false, false) => format!("{} → {}", brief(&e.text), calls.join(", ")),
            }
        }
        EventKind::ModelFailed(e) => {
            format!("{} after {}", e.reason, format_count(e.attempts.into(), "attempt"))
        }
        EventKind::ToolRequested(e) => {
            format!("{}({})", brief(&e.tool), brief(e.arguments.get()))
        }
        EventKind::ToolAttempted(e) => {
            format!("{} {}, waits {}", brief(e.call_id.as_str()), e.reason, millis(e.delay_ms))
        }
        EventKind::ToolResponded(e) => {
            let took = millis(e.duration_ms);
            match &e.error {
                None => {
                    let images = with_images(e.images.len());
                    let shown = brief(&e.output.display_text());
                    let stderr = e.stderr.as_deref().map(brief);
                    let stderr = stderr.map(|text| format!(" (standard error: {text})"));
                    let stderr = stderr.unwrap_or_default();
                    format!("{} ok in {took}: {shown}{images}{stderr}", brief(&e.tool))
                }
                Some(error) => {
                    format!(
                        "{} {} in {took}: {}",
                        brief(&e.tool),
                        error.reason,
                        brief(&error.message)
                    )
                }
            }
        }
        EventKind::ToolLate(e) => format!("{} answered too late", brief(e.call_id.as_str())),
        EventKind::ToolProbed(e) => {
            format!("{} {}", brief(e.call_id.as_str()), e.verdict.as_str())
        }
        EventKind::ToolResolved(e) => {
            format!("{} {} by {}", brief(e.call_id.as_str()), e.verdict.as_str(), brief(&e.by))
        }
        EventKind::ApprovalRequested(e) => {
            let until = e.expires_at.map(|over| format!(", until {over}")).unwrap_or_default();
            let by = match e.approvers.is_empty() {
                true => String::new(),
                false => format!(", by {}", brief(&e.approvers.to_string())),
            };
            let asks = match (&e.message, &e.schema) {
                (Some(message), _) => format!(" asks: {}", brief(message)),
                (None, Some(_)) => ", asks for data".to_owned(),
                (None, None) => String::new(),
            };
            format!("{} {}{until}{by}{asks}", e.approval_id, brief(&e.tool))
        }
        EventKind::ApprovalGranted(e) => {
            let changed =
                e.arguments.as_ref().map(|given| format!(", with {}", brief(given.get())));
            let given = e.data.as_ref().map(|given| format!(", gives {}", brief(given.get())));
            let (changed, given) = (changed.unwrap_or_default(), given.unwrap_or_default());
            format!("{} by {}{changed}{given}", e.approval_id, brief(&e.by))
        }
        EventKind::ApprovalDenied(e) if e.reason == code::APPROVAL_EXPIRED => {
            format!("{} {}", e.approval_id, e.reason)
        }
        EventKind::ApprovalDenied(e) => format!("{} by {}", e.approval_id, brief(&e.by)),
        EventKind::HookFailed(e) => {
            format!("{} at {}: {} {}", e.hook, e.point, e.reason, brief(&e.message))
        }
        EventKind::HookPassed(e) => e.point.to_string(),
        EventKind::HookAborted(e) => format!("{} at {}: {}", e.hook, e.point, brief(&e.message)),
        EventKind::MemoryRead(e) => counted_len(e.entries.len(), "entry"),
        EventKind::MemoryWrote(e) => format_count(e.count.into(), "entry"),
        EventKind::MemoryDegraded(e) => {
            format!("{}: {} {}", e.operation, e.reason, brief(&e.message))
        }
        EventKind::BudgetExhausted(e) => {
            // The message of a spend limit names the limit.
            let limit = e.message.split_once(": ").map(|(limit, _)| brief(limit));
            let limit = limit.map(|limit| format!("{limit}, ")).unwrap_or_default();
            format!("{}: {limit}{} of {}", e.reason, e.used, e.limit)
        }
        EventKind::GuardTripped(e) => format!("{}: {}", e.reason, brief(&e.message)),
        EventKind::ErrorStored(e) => {
            format!(
                "{} from {}, {} kept from the model",
                e.error_id,
                brief(&e.tool),
                format_count(e.chars_kept, "character")
            )
        }
        EventKind::ErrorStoreDegraded(e) => {
            format!("{}: {} {}", e.operation, e.reason, brief(&e.message))
        }
        EventKind::ResultStored(e) => format!("{}, {}", e.result_id, format_count(e.bytes, "byte")),
        EventKind::ContextCompacted(e) => {
            format!(
                "messages {} to {}: {} → {} tokens",
                e.from, e.to, e.tokens_before, e.tokens_after
            )
        }
        EventKind::Warning(e) => brief(&e.message),
        EventKind::McpToolsChanged(e) => {
            let lists = [("added", &e.added), ("removed", &e.removed), ("changed", &e.changed)];
            let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
            let lists: Vec<String> =
                lists.map(|(what, names)| format!("{what} {}", brief(&names.join(", ")))).collect();
            format!("{}: {}", brief(&e.server), lists.join("; "))
        }
        EventKind::SubscriptionOpened(e) => {
            let after = e.follows.as_ref().map(|before| format!(" (after {before})"));
            format!("{}: {}{}", brief(&e.name), brief(&e.pattern), after.unwrap_or_default())
        }
        EventKind::BehaviorDelivered(e) => {
            let died = match e.deaths {
                0 => String::new(),
                1 => " (a process died at it)".to_owned(),
                deaths => format!(" ({deaths} processes died at it)"),
            };
            format!("{} gets {} {} of {}{died}", brief(&e.behavior), e.event, e.seq, e.run)
        }
        EventKind::BehaviorCompleted(e) => {
            let after = describe_attempts(e.attempts);
            format!("{} done with {} of {}{after}", brief(&e.behavior), e.seq, e.run)
        }
        EventKind::BehaviorFailed(e) => {
            let after = describe_attempts(e.attempts);
            format!(
                "{} at {} of {}{after}: {} {}",
                brief(&e.behavior),
                e.seq,
                e.run,
                e.reason,
                brief(&e.message)
            )
        }
        EventKind::OperatorDispatched(e) => {
            let attempt = match e.attempt {
                1 => String::new(),
                more => format!(", attempt {more}"),
            };
            let step = e.step.as_ref().map(|step| format!(" at {}", brief(step)));
            let bounds =
                describe_allowance(&e.allowance).map(|bounds| format!(", may use {bounds}"));
            let (step, bounds) = (step.unwrap_or_default(), bounds.unwrap_or_default());
            format!("{} as {}{step}{attempt}{bounds}", brief(&e.operator), e.run)
        }
        EventKind::OperatorWaiting(e) => {
            format!("{} {}", brief(&e.operator), waits(e.r#for, &e.approvals))
        }
        EventKind::OperatorRefused(e) => {
            format!("{} at {} ({})", brief(&e.operator), brief(&e.step), e.reason)
        }
        EventKind::OperatorReturned(e) => {
            let reason = e.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!(
                "{} {}{reason}{}",
                brief(&e.operator),
                e.outcome.as_str(),
                describe_usage(&e.usage)
            )
        }
        EventKind::BudgetGranted(e) => match e.allowance.as_deref() {
            Some(more) => {
                let more = describe_allowance(more).unwrap_or_else(|| "all it wants".to_owned());
                format!("{more} to {}", e.run)
            }
            None => format!("nothing to {}", e.run),
        },
        EventKind::WorkflowRouted(e) => format!("{} → {}", brief(&e.step), brief(&e.to)),
        EventKind::SignalReceived(e) if e.data.is_null() => brief(&e.name),
        EventKind::SignalReceived(e) => {
            format!("{}: {}", brief(&e.name), brief(&JsonText::from(&e.data).display_text()))
        }
        _ => String::new(),
    }
}

/// Describes what the run waits for, with the open approvals.
fn waits(what: WaitFor, approvals: &[ApprovalId]) -> String {
    let what = match what {
        WaitFor::Approval if approvals.is_empty() => "approval",
        WaitFor::Approval => "",
        WaitFor::Budget => "budget",
        WaitFor::Parked => "the end of a pause",
        other => other.as_str(),
    };
    let open = approvals.iter().map(|id| format!(" {id}")).collect::<String>();
    let open = match approvals.len() {
        0 => open,
        many => format!("{}:{open}", counted_len(many, "decision")),
    };
    let and = if what.is_empty() || open.is_empty() { "" } else { ", and for " };
    format!("waits for {what}{and}{open}")
}

/// Describes the number of attempts if there was more than one.
fn describe_attempts(attempts: u32) -> String {
    match attempts {
        0 | 1 => String::new(),
        more => format!(" after {more} attempts"),
    }
}

/// Describes the bounds of an allowance; `None` if there are none.
fn describe_allowance(allowance: &Allowance) -> Option<String> {
    let Allowance { model_calls, tool_calls, input_tokens, output_tokens, total_tokens, .. } =
        *allowance;
    let number = |number: Option<u64>, what| number.map(|number| format_count(number, what));
    let bounds = [
        number(model_calls.map(u64::from), "model call"),
        number(tool_calls.map(u64::from), "tool call"),
        number(input_tokens, "token in").map(|text| text.replace("token ins", "tokens in")),
        number(output_tokens, "token out").map(|text| text.replace("token outs", "tokens out")),
        number(total_tokens, "token"),
        allowance.cost_nanousd.map(dollars),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    (!bounds.is_empty()).then(|| bounds.join(", "))
}

fn describe_usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let calls = format_count(usage.model_attempts.into(), "model call");
    format!(": {calls}, {}{cost}", format_count(usage.total_tokens, "token"))
}

fn dollars(nanousd: u64) -> String {
    let (whole, rest) = (nanousd / 1_000_000_000, nanousd % 1_000_000_000);
    format!("${whole}.{:04}", rest / 100_000)
}

/// Formats a count with its noun: `1 entry`, `2 entries`.
#[must_use]
pub fn format_count(number: u64, what: &str) -> String {
    let stem = what.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        _ => format!("{number} {what}s"),
    }
}

fn counted_len(number: usize, what: &str) -> String {
    format_count(u64::try_from(number).unwrap_or(u64::MAX), what)
}

fn millis(ms: u64) -> Seconds {
    Seconds(Duration::from_millis(ms))
}
