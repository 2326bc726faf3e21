//! Contents of Gemini `generateContent`.

use super::chat_returns::UNSIGNED;
use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};

const HERE: &[Dialect] = &[Dialect::Gemini];

const REFERENCE: &str = "https://ai.google.dev/api/caching#Content";

const FIELDS: [&str; 10] = [
    "cachedContent",
    "contents",
    "generationConfig",
    "labels",
    "model",
    "safetySettings",
    "serviceTier",
    "systemInstruction",
    "toolConfig",
    "tools",
];

const PART_FIELDS: [&str; 14] = [
    "codeExecutionResult",
    "executableCode",
    "fileData",
    "functionCall",
    "functionResponse",
    "inlineData",
    "mediaResolution",
    "partMetadata",
    "text",
    "thought",
    "thoughtSignature",
    "toolCall",
    "toolResponse",
    "videoMetadata",
];

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "gemini.fields_known",
        HERE,
        "Invalid JSON payload received. Unknown name \"{}\": Cannot find field.",
        "https://github.com/zed-industries/zed/issues/44875",
        |asked| Some(found![unknown_field(asked.body, &FIELDS)?]),
    ),
    Rule::new(
        "gemini.part_fields_known",
        HERE,
        "Invalid JSON payload received. Unknown name \"{}\" at 'contents[{}].parts[{}]': Cannot find field.",
        "https://github.com/zed-industries/zed/issues/44875",
        |asked| {
            each_part(asked, |at, index, part| {
                Some(found![unknown_field(part, &PART_FIELDS)?, at, index])
            })
        },
    ),
    Rule::new(
        "gemini.contents_given",
        HERE,
        "* GenerateContentRequest.contents: contents is not specified",
        REFERENCE,
        |asked| (contents(asked).count() == 0).then(Vec::new),
    ),
    Rule::new(
        "gemini.roles_known",
        HERE,
        "Please use a valid role: user, model.",
        "https://ai.google.dev/api/caching#Content",
        |asked| contents(asked).any(|it| !["user", "model"].contains(&role(it))).then(Vec::new),
    ),
    Rule::new(
        "gemini.parts_given",
        HERE,
        "* GenerateContentRequest.contents[{}].parts: contents.parts must not be empty.",
        REFERENCE,
        |asked| {
            find_first(contents(asked), |at, content| {
                (content.get("parts").items().len() == 0).then(|| found![at])
            })
        },
    ),
    Rule::new(
        "gemini.part_data",
        HERE,
        "* GenerateContentRequest.contents[{}].parts[{}].data: required oneof field 'data' must have one \
         initialized field",
        "https://github.com/boldsoftware/sketch/issues/68",
        |asked| {
            each_part(asked, |at, index, part| {
                let about = ["thought", "thoughtSignature", "partMetadata", "mediaResolution"];
                let mut data = part.fields().filter(|(name, _)| !about.contains(name));
                let has_data = data.next().is_some_and(|(_, value)| value.is_given());
                (!has_data).then(|| found![at, index])
            })
        },
    ),
    Rule::new(
        "gemini.roles_alternate",
        HERE,
        "Please ensure that multiturn requests alternate between user and model.",
        "https://ai.google.dev/api/caching#Content",
        |asked| {
            let roles: Vec<&str> = contents(asked).map(role).collect();
            roles.windows(2).any(|pair| pair[0] == pair[1]).then(Vec::new)
        },
    ),
    Rule::new(
        "gemini.calls_after_user",
        HERE,
        "Please ensure that function call turn comes immediately after a user turn or after a function \
         response turn.",
        REFERENCE,
        |asked| {
            let mut before = None;
            for content in contents(asked) {
                if calls(content).count() > 0 && before != Some("user") {
                    return Some(Vec::new());
                }
                before = Some(role(content));
            }
            None
        },
    ),
    Rule::new(
        "gemini.responses_after_calls",
        HERE,
        "Please ensure that function response turn comes immediately after a function call turn.",
        "https://github.com/GoogleCloudPlatform/generative-ai/pull/368",
        |asked| {
            let all: Vec<Node<'_>> = contents(asked).collect();
            let is_stray = |at: usize| {
                let is_called = at > 0 && calls(all[at - 1]).count() > 0;
                responses(all[at]).count() > 0 && !is_called
            };
            (0..all.len()).any(is_stray).then(Vec::new)
        },
    ),
    Rule::new(
        "gemini.responses_count",
        HERE,
        "Please ensure that the number of function response parts is equal to the number of function call \
         parts of the function call turn.",
        "https://github.com/google-gemini/gemini-cli/issues/17208",
        |asked| {
            let all: Vec<Node<'_>> = contents(asked).collect();
            let is_open = |at: usize| {
                let answered = all.get(at + 1).map_or(0, |next| responses(*next).count());
                let called = calls(all[at]).count();
                called > 0 && called != answered
            };
            (0..all.len()).any(is_open).then(Vec::new)
        },
    ),
    Rule::new(
        "gemini.responses_named",
        HERE,
        "* GenerateContentRequest.contents[{}].parts[{}].function_response.name: Name cannot be empty, and \
         must be that of the call.",
        "https://github.com/google-gemini/gemini-cli/issues/2966",
        |asked| {
            let all: Vec<Node<'_>> = contents(asked).collect();
            each_part(asked, |at, index, part| {
                let response = part.get("functionResponse");
                let before = at.checked_sub(1).map(|it| all[it]);
                let name = response.get("name").text_or_empty();
                let is_called =
                    before.is_some_and(|it| calls(it).any(|it| it.get("name").is(name)));
                (response.exists() && !is_called).then(|| found![at, index])
            })
        },
    ),
    Rule::new(
        "gemini.response_object",
        HERE,
        "Invalid value at 'contents[{}].parts[{}].function_response.response' \
         (type.googleapis.com/google.protobuf.Struct)",
        "https://ai.google.dev/api/caching#FunctionResponse",
        |asked| {
            each_part(asked, |at, index, part| {
                let response = part.get("functionResponse");
                let is_object = response.get("response").is_object();
                (response.exists() && !is_object).then(|| found![at, index])
            })
        },
    ),
    Rule::new(
        "gemini.args_object",
        HERE,
        "Invalid value at 'contents[{}].parts[{}].function_call.args' \
         (type.googleapis.com/google.protobuf.Struct)",
        "https://ai.google.dev/api/caching#FunctionCall",
        |asked| {
            each_part(asked, |at, index, part| {
                let args = part.path("functionCall/args");
                (args.is_given() && !args.is_object()).then(|| found![at, index])
            })
        },
    ),
    Rule::new(
        "gemini.call_names",
        HERE,
        "* GenerateContentRequest.contents[{}].parts[{}].function_call.name: Invalid function name. Must \
         start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.) \
         or dashes (-), with a maximum length of 64.",
        "https://github.com/google-gemini/gemini-cli/issues/7869",
        |asked| {
            each_part(asked, |at, index, part| {
                let name = part.path("functionCall/name");
                let is_bad = part.get("functionCall").exists() && !is_function_name(name);
                is_bad.then(|| found![at, index])
            })
        },
    ),
    Rule::new(
        "gemini.signatures_returned",
        HERE,
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to \
         work correctly, and missing thought_signature may lead to degraded model performance. Additional \
         data, function call `default_api:{}` , position {}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
        "https://github.com/lbjlaq/Antigravity-Manager/issues/733",
        signatures_returned,
    ),
    Rule::new(
        "gemini.signatures_own",
        HERE,
        "Invalid value at 'contents[{}].parts[{}].thought_signature' (TYPE_BYTES), or a corrupted thought \
         signature",
        "https://ai.google.dev/gemini-api/docs/thought-signatures",
        |asked| {
            each_part(asked, |at, index, part| {
                let signature = part.get("thoughtSignature").text()?;
                let is_own = UNSIGNED.contains(&signature) || asked.said.has_signature(signature);
                (!is_own).then(|| found![at, index])
            })
        },
    ),
];

pub(super) fn is_function_name(name: Node<'_>) -> bool {
    let name = name.text_or_empty();
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && is_word(name, 64, "_.-")
}

fn contents(asked: Asked<'_>) -> impl Iterator<Item = Node<'_>> {
    asked.body.get("contents").items()
}

/// Returns the role; the user's if none is named.
fn role(content: Node<'_>) -> &str {
    content.get("role").text().unwrap_or("user")
}

fn calls(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    content.get("parts").items().map(|it| it.get("functionCall")).filter(|it| it.exists())
}

fn responses(content: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    content.get("parts").items().map(|it| it.get("functionResponse")).filter(|it| it.exists())
}

fn each_part(asked: Asked<'_>, find: impl Fn(usize, usize, Node<'_>) -> Found) -> Found {
    find_first(contents(asked), |at, content| {
        find_first(content.get("parts").items(), |index, part| find(at, index, part))
    })
}

/// In the current turn, the first call of each step has a signature.
fn signatures_returned(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = contents(asked).collect();
    let is_asked =
        |content: &Node<'_>| role(*content) == "user" && responses(*content).count() == 0;
    let turn = all.iter().rposition(is_asked).unwrap_or(0);
    all.iter().enumerate().skip(turn).find_map(|(at, content)| {
        let mut parts = content.get("parts").items();
        let first = parts.find(|part| part.get("functionCall").exists())?;
        let name = first.path("functionCall/name").text_or_empty();
        (!first.get("thoughtSignature").is_given()).then(|| found![name, at + 1])
    })
}
