//! Scripted answers as the bytes of Anthropic Messages.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{ErrorKind, Placeholders, ScriptedAnswer, ScriptedError, ScriptedToolCall};
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use crate::server::{Ending, Reply};
use crate::wire::openai::arguments_text;
use crate::wire::{Cannot, MakeProvider, Wire};

/// Returns the wire of this protocol for a provider.
#[must_use]
pub const fn wire(provider: MakeProvider) -> Wire {
    Wire::of(provider, reply)
        .that_cannot(&[
            Cannot::Stop(StopReason::ContentFilter),
            Cannot::Stop(StopReason::Malformed),
        ])
        .judged_as(Some("anthropic"))
}

/// Returns the reply of the endpoint to this request body.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value) -> Reply {
    let is_streamed = request["stream"] == true;
    let reply = match AnthropicAnswer::new(answer, request) {
        Err(why) => Reply::refusal(&why),
        Ok(said) => match (&answer.error, is_streamed) {
            (None, true) => Reply::events(said.stream(true)),
            (None, false) => Reply::json(200, &said.whole()),
            (Some(error), _) => failed(&said, error, is_streamed),
        },
    };
    reply.delay(Duration::from_millis(answer.delay_ms))
}

fn failed(said: &AnthropicAnswer, error: &ScriptedError, is_streamed: bool) -> Reply {
    let reply = match (error.kind, is_streamed) {
        (ErrorKind::StreamTruncated, true) => Reply::events(said.stream(false)),
        (ErrorKind::StreamTruncated, false) => {
            let whole = Reply::json(200, &said.whole());
            let half = whole.body.len() / 2;
            whole.ending(Ending::CutAt(half))
        }
        (ErrorKind::InvalidResponse, true) if said.begins => {
            Reply::events(format!("{}data: <html>\n\n", said.stream(false)))
        }
        (ErrorKind::InvalidResponse, _) => Reply::html(200),
        (kind, true) if said.begins => {
            let (_, error) = wire_error(kind, error.status);
            Reply::events(format!("{}{}", said.stream(false), event(&error)))
        }
        (kind, _) => {
            let (status, error) = wire_error(kind, error.status);
            Reply::json(status, &error)
        }
    };
    match error.retry_after_ms {
        // The protocol has seconds; our adapters read fractions of them.
        Some(ms) => {
            reply.header("retry-after", Duration::from_millis(ms).as_secs_f64().to_string())
        }
        None => reply,
    }
}

/// Returns status and body.
fn wire_error(kind: ErrorKind, status: Option<u16>) -> (u16, Value) {
    let (usual, kind, message) = match (kind, status) {
        (ErrorKind::Transient, None | Some(529)) => {
            (529, "overloaded_error", "scripted transient error")
        }
        (ErrorKind::Transient, Some(_)) => (500, "api_error", "scripted transient error"),
        (ErrorKind::RateLimited, _) => (429, "rate_limit_error", "scripted rate limit"),
        (ErrorKind::InvalidRequest, _) => {
            (400, "invalid_request_error", "scripted invalid request")
        }
        (ErrorKind::ContentBlocked, _) => {
            (400, "invalid_request_error", "Output blocked by content filtering policy")
        }
        (ErrorKind::AuthFailed, _) => (401, "authentication_error", "scripted refusal of the key"),
        (ErrorKind::ContextOverflow, _) => {
            (400, "invalid_request_error", "prompt is too long: 2 tokens > 1 maximum")
        }
        (ErrorKind::QuotaExhausted, _) => {
            (400, "invalid_request_error", "Your credit balance is too low")
        }
        (ErrorKind::Timeout, _) => (504, "timeout_error", "scripted timeout"),
        (_, _) => {
            (400, "invalid_request_error", "the script has an error that messages has no form for")
        }
    };
    let error = json!({ "type": kind, "message": message });
    (
        status.unwrap_or(usual),
        json!({ "type": "error", "error": error, "request_id": "req_script" }),
    )
}

/// A scripted answer with its placeholders filled.
struct AnthropicAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    stop_reason: Arc<str>,
    usage: TokenUsage,
    /// Whether an error comes after some text or usage.
    begins: bool,
}

impl AnthropicAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        let results = blocks.filter(|block| block["type"] == "tool_result");
        let placeholders = Placeholders::new(results.filter_map(|it| it["content"].as_str()));
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let by_content =
            if answer.tool_calls.is_empty() { StopReason::End } else { StopReason::ToolUse };
        let stop_reason = match answer.stop_reason.as_ref().unwrap_or(&by_content) {
            StopReason::End => "end_turn",
            StopReason::ToolUse => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::Refusal => "refusal",
            StopReason::Pause => "pause_turn",
            StopReason::ContextExceeded => "model_context_window_exceeded",
            StopReason::Unknown(word) => word,
            other => return Err(format!("messages cannot say stop reason {other:?}")),
        };
        let text = placeholders.fill(answer.text.as_deref().unwrap_or_default()).to_string();
        Ok(Self {
            begins: !text.is_empty() || answer.thinking.is_some() || answer.usage.is_some(),
            text,
            thinking: answer.thinking.as_deref().map(str::to_owned),
            calls: answer.tool_calls.iter().map(fill).collect(),
            stop_reason: stop_reason.into(),
            usage: answer.usage.unwrap_or_default(),
        })
    }

    fn wire_usage(&self) -> Value {
        json!({
            "input_tokens": self
                .usage
                .input_tokens
                .saturating_sub(self.usage.cached_tokens + self.usage.cache_write_tokens),
            "cache_creation_input_tokens": self.usage.cache_write_tokens,
            "cache_read_input_tokens": self.usage.cached_tokens,
            "output_tokens": self.usage.output_tokens,
        })
    }

    fn blocks(&self) -> impl Iterator<Item = Piece<'_>> {
        let thinking = self.thinking.iter().map(|thinking| Piece::Thinking(thinking));
        let text = Some(self.text.as_str()).filter(|text| !text.is_empty()).map(Piece::Text);
        thinking.chain(text).chain(self.calls.iter().map(Piece::Call))
    }

    fn whole(&self) -> Value {
        let content: Vec<Value> = self
            .blocks()
            .map(|block| match block {
                Piece::Thinking(text) => {
                    json!({ "type": "thinking", "thinking": text, "signature": "script" })
                }
                Piece::Text(text) => json!({ "type": "text", "text": text }),
                Piece::Call(call) => json!({
                    "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments,
                }),
            })
            .collect();
        json!({
            "id": "msg_script",
            "type": "message",
            "role": "assistant",
            "model": "script",
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": null,
            "usage": self.wire_usage(),
        })
    }

    /// Returns the stream, with or without its end.
    fn stream(&self, ends: bool) -> String {
        let message = json!({
            "id": "msg_script",
            "type": "message",
            "role": "assistant",
            "model": "script",
            "content": [],
            "stop_reason": null,
            "usage": self.wire_usage(),
        });
        let mut out = event(&json!({ "type": "message_start", "message": message }));
        out += &event(&json!({ "type": "ping" }));
        for (index, block) in self.blocks().enumerate() {
            let (start, deltas) = block.streamed();
            out += &event(&json!({
                "type": "content_block_start", "index": index, "content_block": start,
            }));
            for delta in deltas {
                out += &event(&json!({
                    "type": "content_block_delta", "index": index, "delta": delta,
                }));
            }
            out += &event(&json!({ "type": "content_block_stop", "index": index }));
        }
        if ends {
            out += &event(&json!({
                "type": "message_delta",
                "delta": { "stop_reason": self.stop_reason, "stop_sequence": null },
                "usage": { "output_tokens": self.usage.output_tokens },
            }));
            out += &event(&json!({ "type": "message_stop" }));
        }
        out
    }
}

enum Piece<'a> {
    Thinking(&'a str),
    Text(&'a str),
    Call(&'a ScriptedToolCall),
}

impl Piece<'_> {
    /// Returns the start of its block, and the deltas after it.
    fn streamed(&self) -> (Value, Vec<Value>) {
        match self {
            Self::Thinking(text) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": text }),
                    json!({ "type": "signature_delta", "signature": "script" }),
                ],
            ),
            Self::Text(text) => (
                json!({ "type": "text", "text": "" }),
                text.split_inclusive(' ')
                    .map(|piece| json!({ "type": "text_delta", "text": piece }))
                    .collect(),
            ),
            Self::Call(call) => {
                let text = arguments_text(call);
                let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
                let deltas = ["", head, tail]
                    .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
                let start =
                    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
                (start, deltas.into())
            }
        }
    }
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
