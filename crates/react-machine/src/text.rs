//! What is said of a run that failed. The record and the live error take their words from here, so
//! that both say the same.

use std::fmt::Display;

use layer0::event::{ToolProbed, Verdict};

/// Says why the context of a model is too long.
pub const CONTEXT_EXCEEDED: &str = "the context was used up while the model answered";

/// Says that a hook reported an error.
pub const HOOK_FAILED: &str = "hook failed";

/// Says that a gate stopped the run.
#[must_use]
pub fn aborted(hook: &str, reason: &str) -> String {
    format!("hook `{hook}` aborted the run: {reason}")
}

/// Says that the process died again and again while the same was open.
#[must_use]
pub fn crash_loop(open: impl Display) -> String {
    format!("the process died three times in a row while this was open: {open}")
}

/// Says that a hook stopped the run by failing.
#[must_use]
pub fn hook_rejected(hook: &str) -> String {
    format!("hook `{hook}` must not fail")
}

/// Says that the input cannot be answered.
#[must_use]
pub fn input_invalid(why: &str) -> String {
    format!("invalid input: {why}")
}

/// Says that the model asked for the same tools too often.
#[must_use]
pub fn loop_detected(count: impl Display, limit: impl Display) -> String {
    format!("the model asked for the same tools {count} times, {limit} are allowed")
}

/// Says that the last allowed model call asked for tools.
#[must_use]
pub fn max_iterations(max: impl Display) -> String {
    format!("the model still asked for tools after {max} model calls")
}

/// Says that the final answer is of no use.
#[must_use]
pub fn output_invalid(why: &str) -> String {
    format!("the answer cannot be used: {why}")
}

/// Says that the model asked for too many tools at once.
#[must_use]
pub fn parallel_tool_limit(count: impl Display, limit: impl Display) -> String {
    format!("the model asked for {count} tools at once, {limit} are allowed")
}

/// Says that the model said the same text too often, the last time beside nothing new.
#[must_use]
pub fn stagnation(count: impl Display, limit: impl Display) -> String {
    format!("the model said the same text {count} times in the run, {limit} are allowed")
}

/// Says to the model that it repeats itself.
pub(crate) fn repeated(times: u32, ends_after: u32) -> String {
    format!(
        "Note: this call was made {times} times with the same result; the run ends after \
         {ends_after}."
    )
}

/// Says what the tool of a call that was answered without its outcome says of it now. `None` when it cannot say.
pub(crate) fn late_verdict(tool: &str, probed: &ToolProbed) -> Option<String> {
    let ToolProbed { call_id, verdict, output, .. } = probed;
    let says = format!("`{tool}` says that its call `{call_id}`");
    match (verdict, output) {
        (Verdict::Happened, Some(output)) => {
            Some(format!("{says} happened. It answered: {}", output.shown()))
        }
        (Verdict::Happened, None) => Some(format!("{says} happened.")),
        (Verdict::DidNot, _) => Some(format!("{says} did not happen; it may be called again.")),
        _ => None,
    }
}
