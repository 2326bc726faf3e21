//! Token counts that an endpoint did not report, estimated from the length of the texts.

use std::sync::Arc;

use backstop_provider::ModelResponse;
use layer0::message::{Message, ToolCall};
use layer0::usage::TokenUsage;

use crate::endpoint::{AttemptRecord, CountedUsage, ModelEndpoint};
use crate::journal::ModelAttempt;

/// Estimated number of bytes of text per token.
const BYTES_PER_TOKEN: usize = 4;

/// Estimated tokens of one image, the most that Claude is billed for one:
/// <https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs>.
const TOKENS_PER_IMAGE: u64 = 1_600;

/// Counts the tokens of an answer.
pub(super) fn count_answer(
    endpoint: &ModelEndpoint,
    attempt: &ModelAttempt,
    response: &ModelResponse,
) -> CountedUsage {
    match response.usage {
        // For example an answer from a cache.
        Some(free) if free == TokenUsage::default() => free.into(),
        Some(reported) if endpoint.reports_all_usage => reported.into(),
        reported => {
            let thinking = response.thinking.as_deref().unwrap_or_default();
            let bytes = response.text.len() + thinking.len() + call_bytes(&response.tool_calls);
            fill_in(reported.unwrap_or_default(), attempt, bytes)
        }
    }
}

/// Counts the tokens of an attempt without an answer: those that the endpoint reported, and those of the part of an
/// answer that was received. `None` if neither is known.
pub(super) fn count_lost(
    endpoint: &ModelEndpoint,
    attempt: &ModelAttempt,
    record: &AttemptRecord,
) -> Option<CountedUsage> {
    let reported = record.billed_usage();
    match record.piece_bytes() {
        bytes if bytes > 0 && !endpoint.reports_all_usage => {
            Some(fill_in(reported.unwrap_or_default(), attempt, bytes))
        }
        _ => reported.map(CountedUsage::from),
    }
}

/// Estimates counts that are zero and cannot be: the prompt, and the answer if there is one.
fn fill_in(reported: TokenUsage, attempt: &ModelAttempt, answer_bytes: usize) -> CountedUsage {
    let mut counted = CountedUsage::from(reported);
    if reported.input_tokens == 0 {
        counted.usage.input_tokens = prompt_tokens(attempt).max(1);
        counted.is_estimated = true;
    }
    if reported.output_tokens == 0 && answer_bytes > 0 {
        counted.usage.output_tokens = tokens(answer_bytes).max(1);
        counted.is_estimated = true;
    }
    counted
}

/// Returns the estimated number of tokens of an attempt's prompt.
pub(super) fn prompt_tokens(attempt: &ModelAttempt) -> u64 {
    let messages: usize = attempt.messages.iter().map(message_bytes).sum();
    let tools = attempt.tools.iter().map(|tool| tool.description.len() + tool.schema.get().len());
    let images = attempt.messages.iter().map(|message| image_count(message)).sum::<usize>();
    let images = u64::try_from(images).unwrap_or(u64::MAX).saturating_mul(TOKENS_PER_IMAGE);
    tokens(messages + tools.sum::<usize>()).saturating_add(images)
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / BYTES_PER_TOKEN).unwrap_or(u64::MAX)
}

fn image_count(message: &Message) -> usize {
    match message {
        Message::User { images, .. } | Message::Tool { images, .. } => images.len(),
        _ => 0,
    }
}

/// Returns the number of bytes of text in a message.
fn message_bytes(message: &Arc<Message>) -> usize {
    match &**message {
        Message::System { content } | Message::User { content, .. } => content.len(),
        Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, tool_calls, .. } => content.len() + call_bytes(tool_calls),
        _ => 0,
    }
}

fn call_bytes(calls: &[ToolCall]) -> usize {
    calls.iter().map(|call| call.name.len() + call.arguments.get().len()).sum()
}
