//! Partial parsing of messages as servers wrote them.

use std::collections::BTreeMap;

use crate::content::is_blank;
use layer0::read_value;
use rmcp::model::RequestId;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Maximum number of characters of an error's data in its message.
const MAX_DATA_CHARS: usize = 4_000;
/// Maximum number of revisions that are read from a refusal.
const MAX_REVISIONS: usize = 32;

/// Returns the messages in a server's text; revision 2025-03-26 has batches.
pub(crate) fn messages(written: &RawValue) -> Vec<&RawValue> {
    let batch = written.get().starts_with('[').then(|| serde_json::from_str(written.get()).ok());
    batch.flatten().unwrap_or_else(|| vec![written])
}

/// Returns whether a text that is no JSON is the beginning of a message, and not other output.
pub(crate) fn is_cut_message(text: &str) -> bool {
    text.trim_start().starts_with("{\"jsonrpc\"")
}

/// Returns the message of a response over HTTP: of a batch, the answer to the request, or else the first answer, because
/// one request was sent.
pub(crate) fn only_answer<'a>(written: &'a RawValue, asked: Option<&RequestId>) -> &'a RawValue {
    let batch = messages(written);
    if let [message] = batch[..] {
        return message;
    }
    let asked = asked.map(ToString::to_string);
    let mut answers = batch.into_iter().filter_map(|message| {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(message.get()).ok()?;
        let is_answer = fields.contains_key("result") || fields.contains_key("error");
        let id = fields.get("id").map_or("", |id| id.get()).trim_matches('"');
        is_answer.then_some((message, asked.as_deref() == Some(id)))
    });
    let first = answers.next();
    let own = first.into_iter().chain(answers).find(|(_, is_own)| *is_own);
    own.or(first).map_or(written, |(message, _)| message)
}

/// Returns whether an error states nothing, as that of a server that always writes the field.
pub(super) fn is_empty(json: &str) -> bool {
    let Ok(mut error) = read_value(json) else { return false };
    let is_unset = |value: &Value| *value == false || *value == 0;
    if let Some(fields) = error.as_object_mut() {
        fields.retain(|_, value| !is_unset(value));
    }
    is_unset(&error) || is_blank(&error)
}

/// Returns a page of tools for `rmcp`, which makes headers of some arguments, without the unreadable tools.
pub(super) fn readable_tools(written: &str) -> Option<Value> {
    let mut page: BTreeMap<String, &RawValue> = serde_json::from_str(written).ok()?;
    // Some servers write `null` for an empty list, or nothing.
    let tools = page.remove("tools").map_or("null", RawValue::get);
    let tools: Option<Vec<&RawValue>> = serde_json::from_str(tools).ok()?;
    // The cursor is read from the written page.
    page.remove("nextCursor");
    let read = |written: &RawValue| read_value(written.get()).ok();
    let tools: Vec<Value> = tools.into_iter().flatten().filter_map(read).collect();
    let rest = page.into_iter().filter_map(|(name, value)| Some((name, read(value)?)));
    Some(rest.chain([("tools".to_owned(), tools.into())]).collect::<Map<_, _>>().into())
}

/// Returns whether a result answers the probe for the current revision.
pub(super) fn names_revisions(result: &RawValue) -> bool {
    let fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(result.get()).unwrap_or_default();
    fields.contains_key("supportedVersions")
}

/// Adds the data of an error to its message, unless it is empty or the message has it.
fn add_data(message: &mut String, data: &str) {
    let text = serde_json::from_str::<String>(data).unwrap_or_else(|_| data.to_owned());
    let text = text.trim();
    if text.is_empty() || text == "null" || is_empty(text) || message.contains(text) {
        return;
    }
    if !message.is_empty() {
        message.push_str(": ");
    }
    message.extend(text.chars().take(MAX_DATA_CHARS));
}

/// Builds a JSON-RPC error from its text. Its data becomes a part of the message, because it may be nested at any depth;
/// the revisions that the server supports are read.
pub(super) fn read_error(written: &str) -> Value {
    let error: BTreeMap<String, &RawValue> = serde_json::from_str(written).unwrap_or_default();
    let code = error.get("code").and_then(|code| serde_json::from_str::<i32>(code.get()).ok());
    let message = error.get("message").map(|message| serde_json::from_str(message.get()));
    let mut message = message.and_then(Result::ok).unwrap_or_else(|| written.to_owned());
    let data = error.get("data");
    let fields = data.and_then(|data| serde_json::from_str(data.get()).ok());
    let fields: BTreeMap<String, &RawValue> = fields.unwrap_or_default();
    if let Some(data) = data.filter(|_| !fields.contains_key("supported")) {
        add_data(&mut message, data.get());
    }
    let mut read = json!({ "code": code.unwrap_or(-32603), "message": message });
    let supported = fields.get("supported").map(|it| serde_json::from_str::<Vec<String>>(it.get()));
    if let Some(Ok(mut supported)) = supported {
        supported.truncate(MAX_REVISIONS);
        read["data"] = json!({ "supported": supported });
    }
    read
}
