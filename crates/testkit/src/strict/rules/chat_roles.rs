//! Order of messages in chat completions.

use super::chat::{CHAT, messages};
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::find_first;
use crate::strict::rule::{Asked, Found, Rule, found};

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "chat.results_called",
        CHAT,
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with \
         'tool_calls'.",
        "https://github.com/simonw/llm/issues/937",
        |asked| {
            find_first(messages(asked), |at, message| {
                let id = message.get("tool_call_id").text_or_empty();
                let is_called = || calls_before(asked, at).contains(&id);
                (message.get("role").is("tool") && !is_called()).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "mistral.calls_answered",
        &[Dialect::Mistral],
        "Not the same number of function calls and responses",
        "https://github.com/mistralai/client-ts/issues/106",
        |asked| unanswered(asked).map(|_| Vec::new()),
    )
    .code("3230"),
    Rule::new(
        "chat.calls_answered",
        CHAT,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        "https://github.com/evalstate/fast-agent/issues/314",
        unanswered,
    ),
    Rule::new(
        "mistral.order",
        &[Dialect::Mistral],
        "Unexpected role '{}' after role '{}'",
        "https://github.com/BerriAI/litellm/issues/17761",
        mistral_order,
    )
    .kind("invalid_request_message_order")
    .code("3230"),
    Rule::new(
        "mistral.last_role",
        &[Dialect::Mistral],
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got {}",
        "https://github.com/0xPlaygrounds/rig/pull/1130",
        |asked| {
            let last = messages(asked).next_back()?;
            let role = last.get("role").text_or_empty();
            let is_fine = ["user", "tool"].contains(&role) || last.get("prefix").is_true();
            (!is_fine).then(|| found![role])
        },
    )
    .kind("invalid_request_message_order")
    .code("3230"),
    Rule::new(
        "deepseek.roles_alternate",
        &[Dialect::DeepSeek],
        "deepseek-reasoner does not support successive user or assistant messages (messages[{}] and \
         messages[{}] in your input). You should interleave the user/assistant messages in the message \
         sequence.",
        "https://github.com/deepseek-ai/DeepSeek-R1/issues/21",
        |asked| {
            let roles: Vec<&str> = messages(asked).map(role).collect();
            let is_twice =
                |pair: &[&str]| pair[0] == pair[1] && ["user", "assistant"].contains(&pair[0]);
            let at = roles.windows(2).position(is_twice)?;
            Some(found![at, at + 1])
        },
    ),
    Rule::new(
        "template.system_first",
        &[Dialect::ChatTemplate],
        "System message must be at the beginning.",
        "https://github.com/ggml-org/llama.cpp/issues/19851",
        |asked| messages(asked).skip(1).any(|it| role(it) == "system").then(Vec::new),
    ),
    Rule::new(
        "template.roles_alternate",
        &[Dialect::ChatTemplate],
        "After the optional system message, conversation roles must alternate user and assistant roles except \
         for tool calls and results.",
        "https://github.com/ggml-org/llama.cpp/issues/19851",
        template_order,
    ),
];

fn role(message: Node<'_>) -> &str {
    message.get("role").text_or_empty()
}

/// Returns the ids of the calls that a tool message at this index may answer.
fn calls_before(asked: Asked<'_>, at: usize) -> Vec<&str> {
    let before = messages(asked).take(at).collect::<Vec<_>>();
    let caller = before.iter().rev().find(|message| role(**message) != "tool");
    let calls = caller.map(|message| message.get("tool_calls").items());
    calls.into_iter().flatten().map(|call| call.get("id").text_or_empty()).collect()
}

/// Returns the ids of the calls that the tool messages right after them leave unanswered.
fn unanswered(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = messages(asked).collect();
    all.iter().enumerate().find_map(|(at, message)| {
        let results = all[at + 1..].iter().take_while(|message| role(**message) == "tool");
        let answered: Vec<&str> =
            results.map(|result| result.get("tool_call_id").text_or_empty()).collect();
        let calls = message.get("tool_calls").items().map(|call| call.get("id").text_or_empty());
        let open: Vec<&str> = calls.filter(|id| !answered.contains(id)).collect();
        (!open.is_empty()).then(|| found![open.join(", ")])
    })
}

fn mistral_order(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = messages(asked).collect();
    all.windows(2).find_map(|pair| {
        let calls = pair[0].get("tool_calls").items().len() > 0;
        let is_fine = match (role(pair[0]), role(pair[1])) {
            (_, "system") => role(pair[0]) == "system",
            ("tool", next) => ["tool", "assistant"].contains(&next),
            ("assistant", "tool") => calls,
            // The API accepts two consecutive users; the templates of its open models do not.
            ("user", "user") | (_, "tool") => false,
            _ => true,
        };
        (!is_fine).then(|| found![role(pair[1]), role(pair[0])])
    })
}

/// Checks the order like the templates of Mistral's models: users, and assistants without calls, alternate.
fn template_order(asked: Asked<'_>) -> Found {
    let calls = |message: &Node<'_>| message.get("tool_calls").items().len() > 0;
    let speaks = |message: &Node<'_>| match role(*message) {
        "user" => true,
        "assistant" => !calls(message),
        _ => false,
    };
    let mut speakers = messages(asked).filter(speaks).enumerate();
    let is_wrong = |(at, message): (usize, Node<'_>)| (role(message) == "user") != (at % 2 == 0);
    speakers.any(is_wrong).then(Vec::new)
}
