//! Scripted answers as the bytes of OpenAI Chat Completions.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{ErrorKind, Placeholders, ScriptedAnswer, ScriptedError, ScriptedToolCall};
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::server::{Ending, Reply};
use crate::wire::{Cannot, MakeProvider, Wire};

/// Returns the wire of this protocol for a provider.
#[must_use]
pub const fn wire(provider: MakeProvider) -> Wire {
    Wire::of(provider, reply)
        .that_cannot(&[
            Cannot::CountCacheWrites,
            Cannot::KeepState,
            Cannot::MarkFailures,
            Cannot::ShowToolImages,
            Cannot::Stop(StopReason::Malformed),
            Cannot::Stop(StopReason::Pause),
        ])
        .judged_as(Some("openai-chat"))
}

/// Returns the reply of the endpoint to this request body.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value) -> Reply {
    let is_streamed = request["stream"] == true;
    let reply = match ChatAnswer::new(answer, request) {
        Err(why) => Reply::refusal(&why),
        Ok(said) => match (&answer.error, is_streamed) {
            (None, true) => Reply::events(said.stream(true)),
            (None, false) => Reply::json(200, &said.whole()),
            (Some(error), _) => failed(&said, error, is_streamed),
        },
    };
    reply.delay(Duration::from_millis(answer.delay_ms))
}

fn failed(said: &ChatAnswer, error: &ScriptedError, is_streamed: bool) -> Reply {
    let reply = match (error.kind, is_streamed) {
        (ErrorKind::StreamTruncated, true) => Reply::events(said.stream(false)),
        (ErrorKind::StreamTruncated, false) => {
            let whole = Reply::json(200, &said.whole());
            let half = whole.body.len() / 2;
            whole.ending(Ending::CutAt(half))
        }
        (ErrorKind::InvalidResponse, true) if said.begins() => {
            Reply::events(format!("{}data: <html>\n\n", said.stream(false)))
        }
        (ErrorKind::InvalidResponse, _) => Reply::html(200),
        (kind, true) if said.begins() => {
            let (status, mut error) = wire_error(kind, error.status);
            if matches!(kind, ErrorKind::Transient | ErrorKind::Timeout) {
                error["code"] = json!(status);
            }
            Reply::events(format!("{}{}", said.stream(false), data(&json!({ "error": error }))))
        }
        (kind, _) => {
            let (status, error) = wire_error(kind, error.status);
            Reply::json(status, &json!({ "error": error }))
        }
    };
    match error.retry_after_ms {
        Some(ms) => reply.header("retry-after-ms", ms.to_string()),
        None => reply,
    }
}

/// Returns status and error object.
pub(crate) fn wire_error(kind: ErrorKind, status: Option<u16>) -> (u16, Value) {
    let (usual, kind, code, message) = match kind {
        ErrorKind::Transient => (503, "server_error", None, "scripted transient error"),
        ErrorKind::RateLimited => {
            (429, "rate_limit_error", Some("rate_limit_exceeded"), "scripted rate limit")
        }
        ErrorKind::InvalidRequest => {
            (400, "invalid_request_error", None, "scripted invalid request")
        }
        ErrorKind::ContentBlocked => {
            (400, "invalid_request_error", Some("content_filter"), "scripted block")
        }
        ErrorKind::AuthFailed => {
            (401, "invalid_request_error", Some("invalid_api_key"), "scripted refusal of the key")
        }
        ErrorKind::ContextOverflow => {
            (400, "invalid_request_error", Some("context_length_exceeded"), "scripted overflow")
        }
        ErrorKind::QuotaExhausted => {
            (429, "insufficient_quota", Some("insufficient_quota"), "scripted quota")
        }
        ErrorKind::Timeout => (504, "timeout", None, "scripted timeout"),
        _ => {
            let why = "the script has an error that chat completions has no form for";
            (400, "invalid_request_error", Some("testkit"), why)
        }
    };
    let error = json!({ "type": kind, "code": code, "message": message, "param": null });
    (status.unwrap_or(usual), error)
}

/// A scripted answer with its placeholders filled.
struct ChatAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    finish_reason: Arc<str>,
    refused: bool,
    usage: Option<Value>,
}

impl ChatAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let tools = messages.iter().filter(|message| message["role"] == "tool");
        let placeholders = Placeholders::new(tools.filter_map(|it| it["content"].as_str()));
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let by_content =
            if answer.tool_calls.is_empty() { StopReason::End } else { StopReason::ToolUse };
        let reason = answer.stop_reason.as_ref().unwrap_or(&by_content);
        let finish_reason = match reason {
            StopReason::End | StopReason::Refusal => "stop",
            StopReason::ToolUse => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::ContentFilter => "content_filter",
            StopReason::ContextExceeded => "model_length",
            StopReason::Unknown(word) => word,
            other => return Err(format!("chat completions cannot say stop reason {other:?}")),
        };
        Ok(Self {
            text: placeholders.fill(answer.text.as_deref().unwrap_or_default()).to_string(),
            thinking: answer.thinking.as_deref().map(str::to_owned),
            calls: answer.tool_calls.iter().map(fill).collect(),
            finish_reason: finish_reason.into(),
            refused: *reason == StopReason::Refusal,
            usage: answer.usage.map(|usage| {
                json!({
                    "prompt_tokens": usage.input_tokens,
                    "completion_tokens": usage.output_tokens,
                    "total_tokens": usage.input_tokens + usage.output_tokens,
                    "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
                })
            }),
        })
    }

    /// Returns whether an error comes after some text or usage.
    fn begins(&self) -> bool {
        !self.text.is_empty() || self.thinking.is_some() || self.usage.is_some()
    }

    fn text_field(&self) -> &'static str {
        if self.refused { "refusal" } else { "content" }
    }

    fn whole(&self) -> Value {
        let calls: Vec<Value> = self.calls.iter().map(|call| wire_call(call, None)).collect();
        let mut message = json!({ "role": "assistant", "content": null });
        if !self.text.is_empty() {
            message[self.text_field()] = json!(self.text);
        }
        if let Some(thinking) = &self.thinking {
            message["reasoning_content"] = json!(thinking);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        json!({
            "id": "chatcmpl-script",
            "object": "chat.completion",
            "created": 0,
            "model": "script",
            "choices": [{ "index": 0, "message": message, "finish_reason": self.finish_reason }],
            "usage": self.usage,
        })
    }

    /// Returns the stream, with or without its end.
    fn stream(&self, ends: bool) -> String {
        let mut out = chunk(&json!({ "role": "assistant", "content": "" }), None);
        if let Some(thinking) = &self.thinking {
            out += &chunk(&json!({ "reasoning_content": thinking }), None);
        }
        for piece in self.text.split_inclusive(' ') {
            out += &chunk(&json!({ self.text_field(): piece }), None);
        }
        for (index, call) in self.calls.iter().enumerate() {
            out += &chunk(&json!({ "tool_calls": [wire_call(call, Some(index))] }), None);
        }
        // The arguments of parallel calls come interleaved, in halves.
        for second in [false, true] {
            for (index, call) in self.calls.iter().enumerate() {
                let text = arguments_text(call);
                let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
                let function = json!({ "arguments": if second { tail } else { head } });
                let piece = json!({ "index": index, "function": function });
                out += &chunk(&json!({ "tool_calls": [piece] }), None);
            }
        }
        if ends {
            out += &chunk(&json!({}), Some(&self.finish_reason));
        }
        if let Some(usage) = &self.usage {
            out += &data(&json!({
                "object": "chat.completion.chunk", "choices": [], "usage": usage,
            }));
        }
        if ends {
            out += "data: [DONE]\n\n";
        }
        out
    }
}

/// Returns a call: as a whole, or with an index and no arguments yet.
fn wire_call(call: &ScriptedToolCall, index: Option<usize>) -> Value {
    let arguments = if index.is_some() { String::new() } else { arguments_text(call) };
    let function = json!({ "name": call.name, "arguments": arguments });
    let mut wire = json!({ "id": call.id, "type": "function", "function": function });
    if let Some(index) = index {
        wire["index"] = json!(index);
    }
    wire
}

/// Returns the arguments as the model wrote them; a string is JSON that does not parse.
pub(crate) fn arguments_text(call: &ScriptedToolCall) -> String {
    match &call.arguments {
        Value::String(raw) => raw.clone(),
        value => value.to_string(),
    }
}

fn chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    data(&json!({
        "id": "chatcmpl-script",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "script",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    }))
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}
