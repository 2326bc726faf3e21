//! Parts of an answer that chat completions want back.

use super::chat::messages;
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::find_first;
use crate::strict::rule::{Asked, Found, Rule, found};

/// Replacements, by its documentation, for the signature of a call that Gemini did not make.
pub(super) const UNSIGNED: [&str; 2] =
    ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "deepseek.reasoning_returned",
        &[Dialect::DeepSeek],
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "https://github.com/earendil-works/pi/issues/3636",
        reasoning_returned,
    )
    .code("invalid_request_error"),
    Rule::new(
        "openrouter.details_returned",
        &[Dialect::OpenRouter],
        "Provider returned error: the `reasoning_details` of messages.{} are not those of the answer, which \
         must be passed back unmodified.",
        "https://openrouter.ai/docs/use-cases/reasoning-tokens",
        |asked| {
            find_first(messages(asked), |at, message| {
                let details = message.get("reasoning_details");
                let turn = find_call(message).and_then(|id| asked.said.find_turn(id));
                let is_due = turn.is_some_and(|turn| turn.details.is_array());
                let is_own = turn.is_some_and(|turn| turn.details == details.to_value());
                ((is_due || details.is_given()) && !is_own).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "gemini_compatible.signatures_returned",
        &[Dialect::GeminiCompatible],
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
         work correctly, and missing thought_signature may lead to degraded model performance. Additional \
         data, function call `default_api:{}` , position {}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
        "https://ai.google.dev/gemini-api/docs/thought-signatures",
        signatures_returned,
    ),
    Rule::new(
        "gemini_compatible.signatures_own",
        &[Dialect::GeminiCompatible],
        "Thought signature is not valid.",
        "https://ai.google.dev/gemini-api/docs/thought-signatures",
        |asked| {
            let calls = messages(asked).flat_map(|it| it.get("tool_calls").items());
            let mut signatures = calls.filter_map(|call| signature(call).text());
            let is_own = |it: &str| UNSIGNED.contains(&it) || asked.said.has_signature(it);
            signatures.find(|it| !is_own(it)).map(|_| Vec::new())
        },
    ),
];

/// Returns the id of the first call of a message.
fn find_call(message: Node<'_>) -> Option<&str> {
    message.get("tool_calls").item(0).get("id").text()
}

/// Once a tool was called, each answer of the history has its reasoning; an answer of another model may have any.
fn reasoning_returned(asked: Asked<'_>) -> Found {
    let mut answers = messages(asked).filter(|message| message.get("role").is("assistant"));
    let has_calls = messages(asked).any(|message| find_call(message).is_some());
    let is_missing = |message: Node<'_>| {
        let reasoning = message.get("reasoning_content").text();
        let said = find_call(message).and_then(|id| asked.said.find_turn(id));
        match (reasoning, said) {
            (None, _) => true,
            (Some(reasoning), Some(turn)) => turn.thinking != reasoning,
            (Some(_), None) => false,
        }
    };
    (has_calls && answers.any(is_missing)).then(Vec::new)
}

/// In the current turn, each answer that calls has a signature with its first call.
fn signatures_returned(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = messages(asked).collect();
    let turn = all.iter().rposition(|message| message.get("role").is("user")).unwrap_or(0);
    all.iter().enumerate().skip(turn).find_map(|(at, message)| {
        let call = message.get("tool_calls").item(0);
        let is_missing = call.exists() && !signature(call).is_given();
        is_missing.then(|| found![call.path("function/name").text_or_empty(), at])
    })
}

fn signature(call: Node<'_>) -> Node<'_> {
    call.path("extra_content/google/thought_signature")
}
