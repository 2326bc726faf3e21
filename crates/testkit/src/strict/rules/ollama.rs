//! Ollama chat, whose body is read into Go's types.

use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::find_first;
use crate::strict::rule::{Asked, Found, Rule, found};

const HERE: &[Dialect] = &[Dialect::Ollama];

const TYPES: &str = "https://github.com/ollama/ollama/blob/main/api/types.go";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "ollama.content_text",
        HERE,
        "json: cannot unmarshal {} into Go struct field ChatRequest.messages.content of type string",
        "https://github.com/ollama/ollama/issues/10255",
        |asked| {
            each_message(asked, |message| {
                let content = message.get("content");
                (content.is_given() && content.text().is_none())
                    .then(|| found![content.type_name()])
            })
        },
    ),
    Rule::new("ollama.roles_known", HERE, "invalid role: {}", TYPES, |asked| {
        each_message(asked, |message| {
            let role = message.get("role").text_or_empty();
            let is_known = ["system", "user", "assistant", "tool"].contains(&role);
            (!is_known).then(|| found![role])
        })
    }),
    Rule::new(
        "ollama.arguments_object",
        HERE,
        "json: cannot unmarshal {} into Go struct field ChatRequest.messages.tool_calls.function.arguments of \
         type api.ToolCallFunctionArguments",
        "https://github.com/ollama/ollama/issues/12794",
        |asked| {
            each_message(asked, |message| {
                let calls = message.get("tool_calls").items();
                let mut arguments = calls.map(|call| call.path("function/arguments"));
                let bad = arguments.find(|it| it.is_given() && !it.is_object())?;
                Some(found![bad.type_name()])
            })
        },
    ),
    Rule::new(
        "ollama.images_base64",
        HERE,
        "illegal base64 data at input byte {}",
        TYPES,
        |asked| {
            each_message(asked, |message| {
                let mut images = message.get("images").items();
                images.find_map(|image| illegal_byte(image.text_or_empty())).map(|at| found![at])
            })
        },
    ),
    Rule::new(
        "ollama.call_ids_text",
        HERE,
        "json: cannot unmarshal {} into Go struct field ChatRequest.messages.{} of type string",
        TYPES,
        |asked| {
            each_message(asked, |message| {
                let bad = |key: &&str| {
                    let value = message.get(key);
                    value.is_given() && value.text().is_none()
                };
                let key = ["tool_call_id", "tool_name", "thinking"].into_iter().find(bad)?;
                Some(found![message.get(key).type_name(), key])
            })
        },
    ),
    Rule::new(
        "ollama.properties_objects",
        HERE,
        "json: cannot unmarshal {} into Go struct field \
         ToolFunctionParameters.tools.function.parameters.properties of type api.ToolProperty",
        TYPES,
        |asked| {
            find_first(asked.body.get("tools").items(), |_, tool| {
                let properties = tool.path("function/parameters/properties");
                let mut values = properties.fields().map(|(_, value)| value);
                let bad = values.find(|value| value.is_given() && !value.is_object())?;
                Some(found![bad.type_name()])
            })
        },
    ),
    Rule::new(
        "ollama.parameter_types",
        HERE,
        "json: cannot unmarshal {} into Go struct field ToolFunctionParameters.tools.function.parameters.{}",
        TYPES,
        |asked| {
            find_first(asked.body.get("tools").items(), |_, tool| {
                let parameters = tool.path("function/parameters");
                let [kind, required] = ["type", "required"].map(|key| parameters.get(key));
                if kind.is_given() && kind.text().is_none() {
                    return Some(found![kind.type_name(), "type"]);
                }
                let is_list = required.items().all(|name| name.text().is_some());
                let is_fine = !required.is_given() || (required.is_array() && is_list);
                (!is_fine).then(|| found![required.type_name(), "required"])
            })
        },
    ),
];

fn each_message(asked: Asked<'_>, find: impl Fn(Node<'_>) -> Found) -> Found {
    find_first(asked.body.get("messages").items(), |_, message| find(message))
}

/// Returns the place of the first byte that is not base64; an incomplete text ends early.
fn illegal_byte(text: &str) -> Option<usize> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let bad = text.bytes().position(|byte| !fits(byte));
    bad.or_else(|| (!text.len().is_multiple_of(4)).then_some(text.len()))
}
