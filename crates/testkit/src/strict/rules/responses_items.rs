//! Items of the input of OpenAI Responses.

use crate::strict::dialect::Dialect;
use crate::strict::json::Node;
use crate::strict::look::{find_first, is_word, unknown_field};
use crate::strict::rule::{Asked, Found, Rule, found};

const HERE: &[Dialect] = &[Dialect::OpenAiResponses];

const REFERENCE: &str = "https://platform.openai.com/docs/api-reference/responses/create";

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "responses.item_types",
        HERE,
        "Invalid value: '{}'. Supported values are: 'message', 'function_call', 'function_call_output', \
         'reasoning' and others.",
        REFERENCE,
        |asked| {
            find_first(items(asked), |_, item| {
                let is_message = item.get("role").exists();
                let is_known = is_message || item.get("type").text().is_some();
                (!is_known).then(|| found![item.get("type").type_name()])
            })
        },
    )
    .code("invalid_value"),
    Rule::new(
        "responses.item_fields_known",
        HERE,
        "Unknown parameter: 'input[{}].{}'.",
        "https://platform.openai.com/docs/api-reference/responses/create",
        item_fields_known,
    )
    .code("unknown_parameter"),
    Rule::new(
        "responses.call_id_length",
        HERE,
        "Invalid 'input[{}].call_id': string too long. Expected a string with maximum length 64, but got a \
         string with length {} instead.",
        "https://github.com/AnswerDotAI/fastllm/issues/45",
        |asked| {
            find_first(items(asked), |at, item| {
                let length = item.get("call_id").text_or_empty().len();
                (length > 64).then(|| found![at, length])
            })
        },
    )
    .code("string_above_max_length"),
    Rule::new(
        "responses.call_ids_given",
        HERE,
        "Invalid 'input[{}].call_id': empty string. Expected a string with minimum length 1, but got an empty \
         string instead.",
        "https://platform.openai.com/docs/api-reference/responses/create",
        |asked| {
            find_first(items(asked), |at, item| {
                let is_missing = item.get("call_id").text_or_empty().is_empty();
                (is_function(item) && is_missing).then(|| found![at])
            })
        },
    )
    .code("empty_string"),
    Rule::new(
        "responses.item_ids",
        HERE,
        "Invalid 'input[{}].id': '{}'. Expected an ID that begins with '{}'.",
        "https://github.com/continuedev/continue/issues/11494",
        |asked| {
            find_first(items(asked), |at, item| {
                let prefix = match item.get("type").text() {
                    Some("function_call") => "fc",
                    Some("reasoning") => "rs",
                    Some("message") | None => "msg",
                    _ => return None,
                };
                let id = item.get("id").text()?;
                let fits = id.starts_with(prefix) && is_word(id, usize::MAX, "_-");
                (!fits).then(|| found![at, id, prefix])
            })
        },
    )
    .code("invalid_value"),
    Rule::new(
        "responses.item_id_length",
        HERE,
        "Invalid 'input[{}].id': string too long. Expected a string with maximum length 64, but got a string \
         with length {} instead.",
        "https://platform.openai.com/docs/api-reference/responses/create",
        |asked| {
            find_first(items(asked), |at, item| {
                let length = item.get("id").text_or_empty().len();
                (length > 64).then(|| found![at, length])
            })
        },
    )
    .code("string_above_max_length"),
    Rule::new(
        "responses.call_names",
        HERE,
        "Invalid 'input[{}].name': string does not match pattern. Expected a string that matches the pattern \
         '^[a-zA-Z0-9_-]+$'.",
        REFERENCE,
        |asked| {
            find_first(items(asked), |at, item| {
                let is_named = is_word(item.get("name").text_or_empty(), 64, "_-");
                (item.get("type").is("function_call") && !is_named).then(|| found![at])
            })
        },
    )
    .code("invalid_value"),
    Rule::new(
        "responses.arguments_text",
        HERE,
        "Invalid type for 'input[{}].arguments': expected a string, but got an {} instead.",
        REFERENCE,
        |asked| {
            find_first(items(asked), |at, item| {
                let arguments = item.get("arguments");
                let is_bad = item.get("type").is("function_call") && arguments.text().is_none();
                is_bad.then(|| found![at, arguments.type_name()])
            })
        },
    )
    .code("invalid_type"),
    Rule::new(
        "responses.content_types",
        HERE,
        "Invalid value: '{}'. Supported values are: {}.",
        "https://platform.openai.com/docs/api-reference/responses/create",
        content_types,
    )
    .code("invalid_value"),
    Rule::new(
        "responses.summary_given",
        HERE,
        "Missing required parameter: 'input[{}].summary'.",
        "https://github.com/newo-ether/Agora/issues/141",
        |asked| {
            find_first(items(asked), |at, item| {
                let is_missing = !item.get("summary").is_array();
                (item.get("type").is("reasoning") && is_missing).then(|| found![at])
            })
        },
    )
    .code("missing_required_parameter"),
    Rule::new(
        "responses.reasoning_own",
        HERE,
        "The encrypted content for item {} could not be verified. Reason: Encrypted content could not be \
         decrypted or parsed.",
        "https://github.com/smallmain/vscode-unify-chat-provider/issues/178",
        |asked| {
            find_first(items(asked), |_, item| {
                let encrypted = item.get("encrypted_content").text()?;
                let is_own = asked.said.has_encrypted(encrypted);
                (!is_own).then(|| found![item.get("id").text_or_empty()])
            })
        },
    )
    .code("invalid_encrypted_content"),
    Rule::new(
        "responses.reasoning_kept",
        HERE,
        "Item with id '{}' not found. Items are not persisted when `store` is set to false. Try again with \
         `store` set to true, or remove this item from your input.",
        "https://github.com/openai/openai-agents-python/issues/1611",
        |asked| {
            let is_stored = !asked.body.get("store").is_false();
            let is_lost = |item: Node<'_>| {
                item.get("type").is("reasoning") && !item.get("encrypted_content").is_given()
            };
            let lost = items(asked).find(|item| is_lost(*item))?;
            (!is_stored).then(|| found![lost.get("id").text_or_empty()])
        },
    ),
    Rule::new(
        "responses.reasoning_followed",
        HERE,
        "Item '{}' of type 'reasoning' was provided without its required following item.",
        "https://github.com/vercel/ai/issues/7099",
        reasoning_followed,
    ),
    Rule::new(
        "responses.reasoning_before",
        HERE,
        "Item '{}' of type '{}' was provided without its required 'reasoning' item: '{}'.",
        "https://github.com/continuedev/continue/issues/11994",
        reasoning_before,
    ),
    Rule::new(
        "responses.results_called",
        HERE,
        "No tool call found for function call output with call_id {}.",
        "https://github.com/continuedev/continue/issues/10092",
        |asked| {
            let called = call_ids(asked, "function_call");
            let answered = call_ids(asked, "function_call_output");
            let stray = answered.into_iter().find(|id| !called.contains(id))?;
            let is_known = asked.body.get("previous_response_id").is_given();
            (!is_known).then(|| found![stray])
        },
    ),
    Rule::new(
        "responses.calls_answered",
        HERE,
        "No tool output found for function call {}.",
        "https://github.com/openai/codex/issues/93",
        |asked| {
            let answered = call_ids(asked, "function_call_output");
            let called = call_ids(asked, "function_call");
            Some(found![called.into_iter().find(|id| !answered.contains(id))?])
        },
    ),
];

fn items(asked: Asked<'_>) -> impl DoubleEndedIterator<Item = Node<'_>> {
    asked.body.get("input").items()
}

fn is_function(item: Node<'_>) -> bool {
    ["function_call", "function_call_output"].iter().any(|kind| item.get("type").is(kind))
}

fn call_ids<'a>(asked: Asked<'a>, kind: &str) -> Vec<&'a str> {
    let items = items(asked).filter(|item| item.get("type").is(kind));
    items.map(|item| item.get("call_id").text_or_empty()).collect()
}

fn item_fields_known(asked: Asked<'_>) -> Found {
    find_first(items(asked), |at, item| {
        let known: &[&str] = match item.get("type").text() {
            Some("message") | None => &["type", "id", "role", "content", "status", "phase"],
            Some("function_call") => {
                &["type", "id", "call_id", "name", "arguments", "status", "namespace", "caller"]
            }
            Some("function_call_output") => {
                &["type", "id", "call_id", "output", "status", "caller"]
            }
            Some("reasoning") => {
                &["type", "id", "summary", "content", "encrypted_content", "status"]
            }
            _ => return None,
        };
        Some(found![at, unknown_field(item, known)?])
    })
}

fn content_types(asked: Asked<'_>) -> Found {
    find_first(items(asked), |_, item| {
        let (known, words): (&[&str], _) = match item.get("role").text()? {
            "assistant" => (&["output_text", "refusal"], "'output_text' and 'refusal'"),
            _ => (
                &["input_text", "input_image", "input_file"],
                "'input_text', 'input_image' and 'input_file'",
            ),
        };
        let mut types = item.get("content").items().map(|part| part.get("type").text_or_empty());
        Some(found![types.find(|kind| !known.contains(kind))?, words])
    })
}

fn reasoning_followed(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = items(asked).collect();
    all.iter().enumerate().find_map(|(at, item)| {
        if !item.get("type").is("reasoning") {
            return None;
        }
        let id = item.get("id").text_or_empty();
        let next = all.get(at + 1);
        let is_made = next.is_some_and(|next| {
            let is_answer =
                next.get("role").is("assistant") || next.get("type").is("function_call");
            is_answer || next.get("type").is("reasoning")
        });
        let next_id = next.and_then(|next| next.get("id").text());
        let said_next = asked.said.item_after(id);
        let is_own = match (said_next, next_id) {
            (Some(said), Some(given)) => said == given,
            _ => true,
        };
        // An item of the endpoint's own tools.
        let is_made = is_made || (said_next.is_some() && said_next == next_id);
        (!is_made || !is_own).then(|| found![id])
    })
}

fn reasoning_before(asked: Asked<'_>) -> Found {
    let all: Vec<Node<'_>> = items(asked).collect();
    all.iter().enumerate().find_map(|(at, item)| {
        let id = item.get("id").text()?;
        let before = asked.said.item_before(id).filter(|id| id.starts_with("rs"))?;
        let given = at.checked_sub(1).and_then(|at| all[at].get("id").text());
        let kind = item.get("type").text().unwrap_or("message");
        (given != Some(before)).then(|| found![id, kind, before])
    })
}
