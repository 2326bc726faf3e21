//! Texts about failed runs. The record and the live error use the same texts.

use std::fmt::Display;

use layer0::event::{ToolProbed, Verdict};

/// Text for a context that is too long.
pub const CONTEXT_EXCEEDED: &str = "the context was used up while the model answered";

/// Text for a hook that reported an error.
pub const HOOK_FAILED: &str = "hook failed";

/// Returns the text for a gate that stopped the run.
#[must_use]
pub fn describe_abort(hook: &str, reason: &str) -> String {
    format!("hook `{hook}` aborted the run: {reason}")
}

/// Returns the text for a process that died again and again at the same open steps.
#[must_use]
pub fn crash_loop(open: impl Display) -> String {
    format!("the process died three times in a row while this was open: {open}")
}

/// Returns the text for a hook that stopped the run by failing.
#[must_use]
pub fn hook_rejected(hook: &str) -> String {
    format!("hook `{hook}` must not fail")
}

/// Returns the text for an input that cannot be answered.
#[must_use]
pub fn input_invalid(why: &str) -> String {
    format!("invalid input: {why}")
}

/// Returns the text for a model that requested the same tools too often.
#[must_use]
pub fn loop_detected(count: impl Display, limit: impl Display) -> String {
    format!("the model asked for the same tools {count} times, {limit} are allowed")
}

/// Returns the text for a last allowed model call that requested tools.
#[must_use]
pub fn max_iterations(max: impl Display) -> String {
    format!("the model still asked for tools after {max} model calls")
}

/// Returns the text for an unusable final answer.
#[must_use]
pub fn output_invalid(why: &str) -> String {
    format!("the answer cannot be used: {why}")
}

/// Returns the text for a model that requested too many tools at once.
#[must_use]
pub fn parallel_tool_limit(count: impl Display, limit: impl Display) -> String {
    format!("the model asked for {count} tools at once, {limit} are allowed")
}

/// Returns the text for a model that repeated a text too often, the last time without anything new.
#[must_use]
pub fn stagnation(count: impl Display, limit: impl Display) -> String {
    format!("the model said the same text {count} times in the run, {limit} are allowed")
}

/// Returns the warning for a model that repeats itself.
pub(crate) fn describe_repetition(times: u32, ends_after: u32) -> String {
    format!(
        "Note: this call was made {times} times with the same result; the run ends after \
         {ends_after}."
    )
}

/// Returns the text with which a tool settles a call that was answered without its outcome; `None` if the outcome is
/// still unknown.
pub(crate) fn late_verdict(tool: &str, probed: &ToolProbed) -> Option<String> {
    let ToolProbed { call_id, verdict, output, .. } = probed;
    let says = format!("`{tool}` says that its call `{call_id}`");
    match (verdict, output) {
        (Verdict::Happened, Some(output)) => {
            Some(format!("{says} happened. It answered: {}", output.display_text()))
        }
        (Verdict::Happened, None) => Some(format!("{says} happened.")),
        (Verdict::DidNot, _) => Some(format!("{says} did not happen; it may be called again.")),
        _ => None,
    }
}
