//! Parameters and tools of OpenAI Responses.

use super::chat_tools::{TOP, is_open, lacks_items, lacks_properties, schema_object};
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};
use crate::strict::schema::{find_place, top_level_combinator};

const HERE: &[Dialect] = &[Dialect::OpenAiResponses];

const REFERENCE: &str = "https://platform.openai.com/docs/api-reference/responses/create";

const FIELDS: [&str; 30] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "responses.fields_known",
        HERE,
        "Unknown parameter: '{}'.",
        REFERENCE,
        |asked| Some(found![unknown_field(asked.body, &FIELDS)?]),
    )
    .code("unknown_parameter"),
    Rule::new(
        "responses.max_output_tokens",
        HERE,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {} instead.",
        "https://github.com/earendil-works/pi/issues/6265",
        |asked| {
            let limit = asked.body.get("max_output_tokens").integer()?;
            (limit < 16).then(|| found![limit])
        },
    )
    .code("integer_below_min_value"),
    Rule::new(
        "responses.tool_names",
        HERE,
        "Invalid 'tools[{}].name': string does not match pattern. Expected a string that matches the pattern \
         '^[a-zA-Z0-9_-]+$', with maximum length 64.",
        "https://platform.openai.com/docs/api-reference/responses/create",
        |asked| {
            each_function(asked, |at, tool| {
                (!is_word(tool.get("name").text_or_empty(), 64, "_-")).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "responses.tools_count",
        HERE,
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
        "responses.schema_object",
        HERE,
        "Invalid schema for function '{}': schema must be a JSON Schema of 'type: \"object\"', got 'type: \
         \"{}\"'.",
        "https://github.com/chatanywhere/GPT_API_free/issues/403",
        |asked| each_schema(asked, schema_object),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "responses.schema_top",
        HERE,
        "Invalid schema for function '{}': schema must have type 'object' and not have \
         'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level.",
        "https://github.com/goruck/home-generative-agent/pull/545",
        |asked| each_schema(asked, |it| top_level_combinator(it, &TOP).map(|_| Vec::new())),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "responses.schema_properties",
        HERE,
        "Invalid schema for function '{}': In context=(), object schema missing properties.",
        "https://github.com/inboxapi/cli/issues/106",
        |asked| each_schema(asked, lacks_properties),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "responses.schema_items",
        HERE,
        "Invalid schema for function '{}': In context={}, array schema missing items.",
        "https://github.com/PrefectHQ/fastmcp/issues/2464",
        |asked| each_schema(asked, |schema| Some(found![find_place(schema, &lacks_items)?])),
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "responses.strict_tools",
        HERE,
        "Invalid schema for function '{}': In context={}, 'additionalProperties' is required to be supplied \
         and to be false, and 'required' to be an array including every key in properties.",
        "https://github.com/docker/docker-agent/pull/2168",
        |asked| {
            each_function(asked, |_, tool| {
                // A tool without `strict` is strict too, but the endpoint makes its schema fit: only `true` is judged.
                let place = || find_place(tool.get("parameters"), &is_open);
                let name = tool.get("name").text_or_empty();
                if tool.get("strict").is_true() { Some(found![name, place()?]) } else { None }
            })
        },
    )
    .code("invalid_function_parameters"),
    Rule::new(
        "responses.strict_answer",
        HERE,
        "Invalid schema for response_format '{}': In context={}, 'additionalProperties' is required to be \
         supplied and to be false, and 'required' to be an array including every key in properties.",
        "https://github.com/moeru-ai/xsai/issues/145",
        |asked| {
            let form = asked.body.path("text/format");
            let place = || find_place(form.get("schema"), &is_open);
            let name = form.get("name").text_or_empty();
            if form.get("strict").is_true() { Some(found![name, place()?]) } else { None }
        },
    )
    .code("invalid_json_schema"),
];

fn each_function(asked: Asked<'_>, find: impl Fn(usize, Node<'_>) -> Found) -> Found {
    find_first(asked.body.get("tools").items(), |at, tool| {
        if tool.get("type").is("function") { find(at, tool) } else { None }
    })
}

/// Judges the schema of each tool; the found parts come after the tool's name.
fn each_schema(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    each_function(asked, |_, tool| {
        let parts = find(tool.get("parameters"))?;
        Some([found![tool.get("name").text_or_empty()], parts].concat())
    })
}
