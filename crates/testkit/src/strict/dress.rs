//! Parts of answers that the encoders of `wire` do not make, because only some endpoints have them.

use serde_json::{Value, json};

use super::dialect::Dialect;
use crate::server::Reply;

/// Adds the parts that the endpoint gives with an answer and wants back, and makes its marks unique for this turn.
pub(super) fn dress(dialect: Dialect, turn: usize, mut reply: Reply) -> Reply {
    if let Ok(text) = std::str::from_utf8(&reply.body) {
        let text = mark(dialect, turn, text);
        reply.body = match dialect {
            Dialect::OpenRouter | Dialect::GeminiCompatible => {
                dress_chat(dialect, turn, &text).into_bytes()
            }
            _ => text.into_bytes(),
        };
    }
    reply
}

/// Replaces the one signature and the ids of the encoders. Frames of AWS are not changed, because they have checksums
/// of their bytes.
fn mark(dialect: Dialect, turn: usize, text: &str) -> String {
    let replaced = |from: &str, to: String| text.replace(from, &to);
    match dialect {
        Dialect::Anthropic => replaced(
            "\"signature\":\"script\"",
            format!("\"signature\":\"EqQBCgIYAhIM{turn:03}=\""),
        ),
        Dialect::Gemini => replaced("c2NyaXB0", format!("c2NyaXB0{turn:04}")),
        Dialect::OpenAiResponses => {
            let text = replaced("c2NyaXB0", format!("c2NyaXB0{turn:04}"));
            let text = text.replace("\"rs_script\"", &format!("\"rs_{turn:04}\""));
            text.replace("\"msg_script\"", &format!("\"msg_{turn:04}\""))
        }
        _ => text.to_owned(),
    }
}

/// Changes the messages of a whole answer, or the deltas of a streamed one.
fn dress_chat(dialect: Dialect, turn: usize, text: &str) -> String {
    let dressed = |text: &str| {
        let mut value = layer0::read_value(text).ok()?;
        for part in ["message", "delta"] {
            if let Some(message) = value.pointer_mut(&format!("/choices/0/{part}")) {
                dress_message(dialect, turn, message);
            }
        }
        Some(value.to_string())
    };
    if let Some(whole) = dressed(text) {
        return whole;
    }
    let lines = text.split('\n').map(|line| {
        let data = line.strip_prefix("data: ").and_then(dressed);
        data.map_or_else(|| line.to_owned(), |data| format!("data: {data}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn dress_message(dialect: Dialect, turn: usize, message: &mut Value) {
    match dialect {
        Dialect::GeminiCompatible => {
            if let Some(call) = message.pointer_mut("/tool_calls/0")
                && call["index"].as_u64().unwrap_or(0) == 0
                && call["id"].is_string()
            {
                let signature = json!({ "thought_signature": format!("c2NyaXB0{turn:04}") });
                call["extra_content"] = json!({ "google": signature });
            }
            if let Some(fields) = message.as_object_mut() {
                fields.remove("reasoning_content");
            }
        }
        _ => {
            let Some(fields) = message.as_object_mut() else { return };
            let Some(thinking) = fields.remove("reasoning_content") else { return };
            let signature = format!("EqQBCgIYAhIM{turn:03}=");
            let detail = json!({
                "type": "reasoning.text", "text": thinking, "signature": signature,
                "format": "anthropic-claude-v1", "index": 0,
            });
            fields.insert("reasoning".into(), thinking);
            fields.insert("reasoning_details".into(), json!([detail]));
        }
    }
}
