//! Fields and messages of chat completions.

use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};

const OPENAI: &[Dialect] = &[Dialect::OpenAiChat];

/// All endpoints with chat completions.
pub(super) const CHAT: &[Dialect] = &[
    Dialect::OpenAiChat,
    Dialect::ChatTemplate,
    Dialect::DeepSeek,
    Dialect::GeminiCompatible,
    Dialect::Mistral,
    Dialect::OpenRouter,
];

const FIELDS: [&str; 37] = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

const MISTRAL_FIELDS: [&str; 22] = [
    "frequency_penalty",
    "guardrails",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_mode",
    "random_seed",
    "reasoning_effort",
    "response_format",
    "safe_prompt",
    "stop",
    "stream",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "chat.messages_given",
        CHAT,
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array \
         instead.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| (messages(asked).count() == 0).then(Vec::new),
    ),
    Rule::new(
        "chat.fields_known",
        OPENAI,
        "Unrecognized request argument supplied: {}",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| Some(found![unknown_field(asked.body, &FIELDS)?]),
    ),
    Rule::new(
        "mistral.fields_known",
        &[Dialect::Mistral],
        "body.{}: Extra inputs are not permitted",
        "https://github.com/editor-code-assistant/eca/issues/231",
        |asked| Some(found![unknown_field(asked.body, &MISTRAL_FIELDS)?]),
    )
    .status(422),
    Rule::new(
        "mistral.message_fields_known",
        &[Dialect::Mistral],
        "body.messages.{}.{}.{}: Extra inputs are not permitted",
        "https://github.com/charmbracelet/crush/issues/1590",
        mistral_message_fields,
    )
    .status(422),
    Rule::new(
        "chat.message_fields_known",
        &[Dialect::OpenAiChat, Dialect::ChatTemplate],
        "Additional properties are not allowed ('{}' was unexpected) - 'messages.{}'",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            let known = [
                "role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio",
                "function_call", "reasoning_content",
            ];
            // A template may accept the reasoning of its own model.
            let count = known.len() - usize::from(asked.dialect == Dialect::OpenAiChat);
            find_first(messages(asked), |at, message| {
                Some(found![unknown_field(message, &known[..count])?, at])
            })
        },
    ),
    Rule::new(
        "gemini_compatible.message_fields_known",
        &[Dialect::GeminiCompatible],
        "Invalid JSON payload received. Unknown name \"{}\" at 'messages[{}]': Cannot find field.",
        "https://github.com/zed-industries/zed/issues/44875",
        |asked| {
            let known =
                ["role", "content", "name", "tool_calls", "tool_call_id", "extra_content", "refusal"];
            find_first(messages(asked), |at, message| Some(found![unknown_field(message, &known)?, at]))
        },
    ),
    Rule::new(
        "chat.roles_known",
        CHAT,
        "Invalid value: '{}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and \
         'developer'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            let only_openai = asked.dialect == Dialect::OpenAiChat;
            let known = |role: &str| match role {
                "system" | "user" | "assistant" | "tool" => true,
                "developer" => only_openai,
                _ => false,
            };
            let mut roles = messages(asked).map(|it| it.get("role").text_or_empty());
            Some(found![roles.find(|role| !known(role))?])
        },
    ),
    Rule::new(
        "chat.content_given",
        &[
            Dialect::OpenAiChat,
            Dialect::ChatTemplate,
            Dialect::DeepSeek,
            Dialect::GeminiCompatible,
            Dialect::OpenRouter,
        ],
        "Invalid value for 'content': expected a string, got null.",
        "https://github.com/docker/docker-agent/issues/63",
        |asked| {
            let mut bare = messages(asked).filter(|message| {
                let calls = message.get("tool_calls").items().len() > 0;
                !message.get("content").is_given() && !calls
            });
            bare.next().map(|_| Vec::new())
        },
    ),
    Rule::new(
        "mistral.assistant_says",
        &[Dialect::Mistral],
        "Assistant message must have either content or tool_calls, but not none.",
        "https://docs.mistral.ai/api/endpoint/chat",
        |asked| {
            let mut silent = messages(asked).filter(|message| {
                let content = message.get("content");
                let says = !content.text_or_empty().is_empty() || content.items().len() > 0;
                let calls = message.get("tool_calls").items().len() > 0;
                message.get("role").is("assistant") && !says && !calls
            });
            silent.next().map(|_| Vec::new())
        },
    ),
    Rule::new(
        "chat.calls_given",
        CHAT,
        "Invalid 'messages[{}].tool_calls': empty array. Expected an array with minimum length 1, but got an \
         empty array instead.",
        "https://github.com/openai/openai-node/pull/1341",
        |asked| {
            find_first(messages(asked), |at, message| {
                let calls = message.get("tool_calls");
                (calls.is_array() && calls.items().len() == 0).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "chat.tool_messages_text",
        &[Dialect::OpenAiChat, Dialect::ChatTemplate, Dialect::DeepSeek, Dialect::GeminiCompatible],
        "Invalid 'messages[{}]'. Image URLs are only allowed for messages with role 'user', but this message \
         with role '{}' contains an image URL.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            find_first(messages(asked), |at, message| {
                let parts = message.get("content").items();
                let has_image = parts.into_iter().any(|part| part.get("type").is("image_url"));
                let role = message.get("role").text_or_empty();
                (has_image && role != "user").then(|| found![at, role])
            })
        },
    ),
    Rule::new(
        "chat.call_id_length",
        OPENAI,
        "Invalid 'messages[{}].tool_calls[{}].id': string too long. Expected a string with maximum length \
         40, but got a string with length {} instead.",
        "https://github.com/camel-ai/camel/issues/2215",
        |asked| {
            each_call(asked, |call| {
                let length = call.get("id").text_or_empty().len();
                (length > 40).then(|| found![length])
            })
        },
    )
    .code("string_above_max_length"),
    Rule::new(
        "chat.result_id_length",
        OPENAI,
        "Invalid 'messages[{}].tool_call_id': string too long. Expected a string with maximum length 40, but \
         got a string with length {} instead.",
        "https://github.com/openclaw/openclaw/pull/875",
        |asked| {
            find_first(messages(asked), |at, message| {
                let length = message.get("tool_call_id").text_or_empty().len();
                (length > 40).then(|| found![at, length])
            })
        },
    )
    .code("string_above_max_length"),
    Rule::new(
        "chat.call_ids_given",
        &[Dialect::OpenAiChat, Dialect::DeepSeek, Dialect::OpenRouter, Dialect::ChatTemplate],
        "Missing required parameter: 'messages[{}].tool_calls[{}].id'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| each_call(asked, |it| it.get("id").text_or_empty().is_empty().then(Vec::new)),
    )
    .code("missing_required_parameter"),
    Rule::new(
        "mistral.call_ids",
        &[Dialect::Mistral],
        "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.",
        "https://github.com/nearai/ironclaw/issues/1241",
        |asked| {
            let calls = messages(asked).flat_map(|it| it.get("tool_calls").items());
            let ids = calls.map(|call| call.get("id"));
            let results = messages(asked).map(|it| it.get("tool_call_id")).filter(|it| it.exists());
            let mut ids = ids.chain(results).map(Node::text_or_empty);
            Some(found![ids.find(|id| id.len() != 9 || !is_word(id, 9, ""))?])
        },
    )
    .kind("invalid_function_call")
    .code("3280"),
    Rule::new(
        "chat.call_names",
        CHAT,
        "Invalid 'messages[{}].tool_calls[{}].function.name': string does not match pattern. Expected a \
         string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            each_call(asked, |call| {
                let name = call.path("function/name").text_or_empty();
                (!is_word(name, 64, "_-")).then(Vec::new)
            })
        },
    ),
    Rule::new(
        "chat.call_types",
        OPENAI,
        "Missing required parameter: 'messages[{}].tool_calls[{}].type'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| each_call(asked, |it| (!it.get("type").is("function")).then(Vec::new)),
    )
    .code("missing_required_parameter"),
    Rule::new(
        "chat.arguments_text",
        CHAT,
        "Invalid type for 'messages[{}].tool_calls[{}].function.arguments': expected a string, but got an \
         {} instead.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            each_call(asked, |call| {
                let arguments = call.path("function/arguments");
                arguments.text().is_none().then(|| found![arguments.type_name()])
            })
        },
    )
    .code("invalid_type"),
    Rule::new(
        "chat.stream_options_streamed",
        OPENAI,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            let is_streamed = asked.body.get("stream").is_true();
            (asked.body.get("stream_options").is_given() && !is_streamed).then(Vec::new)
        },
    ),
];

pub(super) fn messages(asked: Asked<'_>) -> impl DoubleEndedIterator<Item = Node<'_>> {
    asked.body.get("messages").items()
}

/// Judges each call of each message; the found parts come after the indices of both.
fn each_call(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    find_first(messages(asked), |at, message| {
        find_first(message.get("tool_calls").items(), |index, call| {
            find(call).map(|parts| [found![at, index], parts].concat())
        })
    })
}

fn mistral_message_fields(asked: Asked<'_>) -> Found {
    find_first(messages(asked), |at, message| {
        let role = message.get("role").text_or_empty();
        let known: &[&str] = match role {
            "assistant" => &["role", "content", "tool_calls", "prefix"],
            "tool" => &["role", "content", "tool_call_id", "name"],
            _ => &["role", "content"],
        };
        Some(found![at, role, unknown_field(message, known)?])
    })
}
