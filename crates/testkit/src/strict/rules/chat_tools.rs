//! Tools and forms of answers in chat completions.

use super::chat::CHAT;
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, repeated};
use crate::strict::rule::{Asked, Found, Rule, found};
use crate::strict::schema::{allows, find_place, top_level_combinator};

const OPENAI: &[Dialect] = &[Dialect::OpenAiChat];

/// Keywords that OpenAI does not accept at the top of a schema.
pub(super) const TOP: [&str; 6] = ["oneOf", "anyOf", "allOf", "enum", "const", "not"];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "chat.tools_given",
        CHAT,
        "[] is too short - 'tools'",
        "https://github.com/partITech/php-mistral/issues/76",
        |asked| {
            let tools = asked.body.get("tools");
            (tools.is_array() && tools.items().len() == 0).then(Vec::new)
        },
    ),
    Rule::new(
        "chat.tools_count",
        OPENAI,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with \
         length {} instead.",
        "https://github.com/anomalyco/opencode/issues/4909",
        |asked| {
            let count = asked.body.get("tools").items().len();
            (count > 128).then(|| found![count])
        },
    )
    .code("array_above_max_length"),
    Rule::new(
        "chat.tool_choice_with_tools",
        OPENAI,
        "Invalid value for '{}': it is only allowed when 'tools' are specified.",
        "https://github.com/Upsonic/Upsonic/issues/323",
        |asked| {
            let mut fields = ["tool_choice", "parallel_tool_calls"].into_iter();
            let field = fields.find(|field| asked.body.get(field).is_given())?;
            (!asked.body.get("tools").is_given()).then(|| found![field])
        },
    ),
    Rule::new(
        "chat.tool_names",
        CHAT,
        "Invalid 'tools[{}].function.name': string does not match pattern. Expected a string that matches the \
         pattern '^[a-zA-Z0-9_-]+$'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            each_function(asked, |at, function| {
                let name = function.get("name").text_or_empty();
                (!is_word(name, 64, "_-")).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "chat.tool_names_unique",
        &[Dialect::DeepSeek, Dialect::GeminiCompatible, Dialect::OpenRouter],
        "Tool names must be unique.",
        "https://github.com/tailcallhq/forgecode/issues/892",
        |asked| {
            let tools = asked.body.get("tools").items();
            repeated(tools.map(|tool| tool.path("function/name").text_or_empty())).map(|_| Vec::new())
        },
    ),
    Rule::new(
        "chat.tool_descriptions",
        OPENAI,
        "Invalid 'tools[{}].function.description': string too long. Expected a string with maximum length \
         1024, but got a string with length {} instead.",
        "https://github.com/getsentry/sentry-mcp/issues/106",
        |asked| {
            each_function(asked, |at, function| {
                let length = function.get("description").text_or_empty().chars().count();
                (length > 1024).then(|| found![at, length])
            })
        },
    )
    .code("string_above_max_length"),
    Rule::new(
        "chat.schema_object",
        CHAT,
        "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \
         \"{}\"'.",
        "https://github.com/chatanywhere/GPT_API_free/issues/403",
        |asked| each_schema(asked, schema_object),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "chat.schema_top",
        &[Dialect::OpenAiChat, Dialect::GeminiCompatible, Dialect::OpenRouter],
        "Invalid schema for function '{}': schema must have type 'object' and not have \
         'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level.",
        "https://github.com/langchain-ai/langchainjs/issues/9804",
        |asked| each_schema(asked, |it| top_level_combinator(it, &TOP).map(|_| Vec::new())),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "chat.schema_properties",
        OPENAI,
        "Invalid schema for function '{}': In context=(), object schema missing properties.",
        "https://github.com/inboxapi/cli/issues/106",
        |asked| each_schema(asked, lacks_properties),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "chat.schema_items",
        OPENAI,
        "Invalid schema for function '{}': In context={}, array schema missing items.",
        "https://github.com/PrefectHQ/fastmcp/issues/2464",
        |asked| each_schema(asked, |schema| Some(found![find_place(schema, &lacks_items)?])),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "chat.strict_tools",
        OPENAI,
        "Invalid schema for function '{}': In context={}, 'additionalProperties' is required to be supplied \
         and to be false, and 'required' to be an array including every key in properties.",
        "https://github.com/docker/docker-agent/pull/2168",
        |asked| {
            find_first(asked.body.get("tools").items(), |_, tool| {
                let function = tool.get("function");
                let is_strict = function.get("strict").is_true();
                let place = || find_place(function.get("parameters"), &is_open);
                if is_strict { Some(found![function.get("name").text_or_empty(), place()?]) } else { None }
            })
        },
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "chat.strict_answer",
        &[Dialect::OpenAiChat, Dialect::OpenRouter],
        "Invalid schema for response_format '{}': In context={}, 'additionalProperties' is required to be \
         supplied and to be false, and 'required' to be an array including every key in properties.",
        "https://github.com/sherifkozman/the-llm-council/issues/9",
        |asked| {
            let form = asked.body.path("response_format/json_schema");
            let place = || find_place(form.get("schema"), &is_open);
            let name = form.get("name").text_or_empty();
            if form.get("strict").is_true() { Some(found![name, place()?]) } else { None }
        },
    ),
    Rule::new(
        "chat.answer_name",
        &[Dialect::OpenAiChat, Dialect::OpenRouter],
        "Invalid 'response_format.json_schema.name': string does not match pattern. Expected a string that \
         matches the pattern '^[a-zA-Z0-9_-]+$'.",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| {
            let form = asked.body.path("response_format/json_schema");
            let name = form.get("name").text_or_empty();
            (form.is_given() && !is_word(name, 64, "_-")).then(Vec::new)
        },
    ),
];

fn each_function(asked: Asked<'_>, find: impl Fn(usize, Node<'_>) -> Found) -> Found {
    find_first(asked.body.get("tools").items(), |at, tool| find(at, tool.get("function")))
}

/// Judges the schema of each tool that has one; the found parts come after the tool's name.
fn each_schema(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    each_function(asked, |_, function| {
        let schema = function.get("parameters");
        let parts = if schema.is_given() { find(schema)? } else { return None };
        Some([found![function.get("name").text_or_empty()], parts].concat())
    })
}

pub(super) fn schema_object(schema: Node<'_>) -> Found {
    let kind = schema.get("type");
    (!kind.is("object")).then(|| found![kind.text().unwrap_or("None")])
}

/// Finds an object schema without properties.
pub(super) fn lacks_properties(schema: Node<'_>) -> Found {
    (schema.get("type").is("object") && !schema.get("properties").is_object()).then(Vec::new)
}

pub(super) fn lacks_items(schema: Node<'_>) -> bool {
    allows(schema, "array") && !schema.get("items").exists()
}

/// Returns whether an object of a strict schema may have other fields than those that it requires.
pub(super) fn is_open(schema: Node<'_>) -> bool {
    let required = schema.get("required");
    let is_required = |key: &str| required.items().any(|each| each.is(key));
    let has_optional = schema.get("properties").fields().any(|(key, _)| !is_required(key));
    allows(schema, "object") && (!schema.get("additionalProperties").is_false() || has_optional)
}
