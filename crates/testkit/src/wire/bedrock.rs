//! Scripted answers as the bytes of Amazon Bedrock Converse.

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
    Wire::of(provider, |answer, request| reply(answer, request, request["stream"] == true))
        .that_cannot(&[
            Cannot::Fail(ErrorKind::ContentBlocked),
            Cannot::Stop(StopReason::Pause),
            Cannot::Stop(StopReason::Refusal),
        ])
        .judged_as(Some("bedrock"))
}

/// Returns the reply of the endpoint to this request body, as a whole or as a stream.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value, is_streamed: bool) -> Reply {
    let reply = match BedrockAnswer::new(answer, request) {
        Err(why) => Reply::json(400, &json!({ "__type": "ValidationException", "message": why })),
        Ok(said) => match (&answer.error, is_streamed) {
            (None, true) => stream(said.stream(true)),
            (None, false) => Reply::json(200, &said.whole()),
            (Some(error), _) => failed(&said, error, is_streamed),
        },
    };
    reply.delay(Duration::from_millis(answer.delay_ms))
}

/// Returns whether the response at a path is a stream; `None` if the path is not served.
#[must_use]
pub fn is_streamed(path: &str) -> Option<bool> {
    let (_model, action) = path.strip_prefix("/model/")?.split_once('/')?;
    match action {
        "converse" => Some(false),
        "converse-stream" => Some(true),
        _ => None,
    }
}

/// Returns a stream of frames, with status 200.
#[must_use]
pub fn stream(body: Vec<u8>) -> Reply {
    Reply::new(200, "application/vnd.amazon.eventstream", body)
}

/// Returns the frame of an event.
#[must_use]
pub fn event(kind: &str, payload: &Value) -> Vec<u8> {
    let headers =
        [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.to_string().as_bytes())
}

/// Returns the frame of an exception.
#[must_use]
pub fn exception(kind: &str, payload: &Value) -> Vec<u8> {
    let headers = [
        (":exception-type", kind),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, payload.to_string().as_bytes())
}

/// Returns a frame with headers of text, <https://smithy.io/2.0/aws/amazon-eventstream.html>. Written by hand, so that
/// the decoder is checked against the document and not against itself.
///
/// # Panics
///
/// If a part is longer than its length field allows.
#[must_use]
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    const TEXT: u8 = 7;
    let mut wire_headers = Vec::new();
    for (name, value) in headers {
        wire_headers.push(u8::try_from(name.len()).expect("a name is short"));
        wire_headers.extend(name.as_bytes());
        wire_headers.push(TEXT);
        wire_headers.extend(u16::try_from(value.len()).expect("a value is short").to_be_bytes());
        wire_headers.extend(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).expect("a frame is short").to_be_bytes();
    let mut frame = Vec::new();
    frame.extend(length(12 + wire_headers.len() + payload.len() + 4));
    frame.extend(length(wire_headers.len()));
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(wire_headers);
    frame.extend(payload);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

fn failed(said: &BedrockAnswer, error: &ScriptedError, is_streamed: bool) -> Reply {
    let reply = match (error.kind, is_streamed) {
        (ErrorKind::StreamTruncated, true) => stream(said.stream(false)),
        (ErrorKind::StreamTruncated, false) => {
            let whole = Reply::json(200, &said.whole());
            let half = whole.body.len() / 2;
            whole.ending(Ending::CutAt(half))
        }
        (ErrorKind::InvalidResponse, true) if said.begins => {
            let mut garbled = event("contentBlockStop", &json!({ "contentBlockIndex": 0 }));
            garbled.pop();
            garbled.push(0);
            stream([said.stream(false), garbled].concat())
        }
        (ErrorKind::InvalidResponse, _) => Reply::html(200),
        (kind, true) if said.begins => {
            let (_, kind, message) = wire_error(kind, error.status);
            let (first, rest) = kind.split_at(1);
            let kind = format!("{}{rest}", first.to_ascii_lowercase());
            let exception = exception(&kind, &json!({ "message": message }));
            stream([said.stream(false), exception].concat())
        }
        (kind, _) => {
            let (status, kind, message) = wire_error(kind, error.status);
            Reply::json(status, &json!({ "message": message })).header("x-amzn-errortype", kind)
        }
    };
    match error.retry_after_ms {
        Some(ms) => reply.header("x-amz-retry-after", ms.to_string()),
        None => reply,
    }
}

/// Returns status, type and message.
fn wire_error(kind: ErrorKind, status: Option<u16>) -> (u16, &'static str, &'static str) {
    let (usual, kind, message) = match (kind, status) {
        (ErrorKind::Transient, Some(500)) => {
            (500, "InternalServerException", "scripted transient error")
        }
        (ErrorKind::Transient, Some(424)) => {
            (424, "ModelStreamErrorException", "scripted transient error")
        }
        (ErrorKind::Transient, _) => {
            (503, "ServiceUnavailableException", "scripted transient error")
        }
        (ErrorKind::RateLimited, _) => (429, "ThrottlingException", "scripted rate limit"),
        (ErrorKind::InvalidRequest, _) => (400, "ValidationException", "scripted invalid request"),
        (ErrorKind::AuthFailed, _) => (403, "AccessDeniedException", "scripted refusal of the key"),
        (ErrorKind::ContextOverflow, _) => {
            (400, "ValidationException", "Input is too long for requested model.")
        }
        (ErrorKind::QuotaExhausted, _) => (400, "ServiceQuotaExceededException", "scripted quota"),
        (ErrorKind::Timeout, _) => (408, "ModelTimeoutException", "scripted timeout"),
        (_, _) => {
            (400, "ValidationException", "the script has an error that converse has no form for")
        }
    };
    (status.unwrap_or(usual), kind, message)
}

/// A scripted answer with its placeholders filled.
struct BedrockAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    stop_reason: Arc<str>,
    usage: TokenUsage,
    /// Whether an error comes after some text or usage.
    begins: bool,
}

impl BedrockAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        let results =
            blocks.filter_map(|block| block["toolResult"]["content"].as_array()).flatten();
        let placeholders = Placeholders::new(results.filter_map(|it| it["text"].as_str()));
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let by_content =
            if answer.tool_calls.is_empty() { StopReason::End } else { StopReason::ToolUse };
        let stop_reason = match answer.stop_reason.as_ref().unwrap_or(&by_content) {
            StopReason::End => "end_turn",
            StopReason::ToolUse => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::ContentFilter => "content_filtered",
            StopReason::ContextExceeded => "model_context_window_exceeded",
            StopReason::Malformed => "malformed_model_output",
            StopReason::Unknown(word) => word,
            other => return Err(format!("converse cannot say stop reason {other:?}")),
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
            "inputTokens": self
                .usage
                .input_tokens
                .saturating_sub(self.usage.cached_tokens + self.usage.cache_write_tokens),
            "outputTokens": self.usage.output_tokens,
            "totalTokens": self.usage.input_tokens + self.usage.output_tokens,
            "cacheReadInputTokens": self.usage.cached_tokens,
            "cacheWriteInputTokens": self.usage.cache_write_tokens,
        })
    }

    fn whole(&self) -> Value {
        let mut content = Vec::new();
        if let Some(thinking) = &self.thinking {
            let text = json!({ "text": thinking, "signature": "script" });
            content.push(json!({ "reasoningContent": { "reasoningText": text } }));
        }
        if !self.text.is_empty() {
            content.push(json!({ "text": self.text }));
        }
        content.extend(self.calls.iter().map(|call| {
            let input = &call.arguments;
            json!({ "toolUse": { "toolUseId": call.id, "name": call.name, "input": input } })
        }));
        json!({
            "output": { "message": { "role": "assistant", "content": content } },
            "stopReason": self.stop_reason,
            "usage": self.wire_usage(),
            "metrics": { "latencyMs": 1 },
        })
    }

    /// Returns the stream, with or without its end.
    fn stream(&self, ends: bool) -> Vec<u8> {
        let mut out = event("messageStart", &json!({ "role": "assistant", "p": "abc" }));
        let mut index = 0;
        let mut block = |start: Option<Value>, deltas: &[Value]| {
            if let Some(start) = start {
                let start = json!({ "contentBlockIndex": index, "start": start });
                out.extend(event("contentBlockStart", &start));
            }
            for delta in deltas {
                let delta = json!({ "contentBlockIndex": index, "delta": delta });
                out.extend(event("contentBlockDelta", &delta));
            }
            out.extend(event("contentBlockStop", &json!({ "contentBlockIndex": index })));
            index += 1;
        };
        if let Some(thinking) = &self.thinking {
            let deltas = [json!({ "text": thinking }), json!({ "signature": "script" })];
            block(None, &deltas.map(|delta| json!({ "reasoningContent": delta })));
        }
        if !self.text.is_empty() {
            let pieces = self.text.split_inclusive(' ');
            block(None, &pieces.map(|piece| json!({ "text": piece })).collect::<Vec<_>>());
        }
        for call in &self.calls {
            let text = arguments_text(call);
            let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
            let deltas = ["", head, tail].map(|piece| json!({ "toolUse": { "input": piece } }));
            let start = json!({ "toolUse": { "toolUseId": call.id, "name": call.name } });
            block(Some(start), &deltas);
        }
        if ends {
            out.extend(event("messageStop", &json!({ "stopReason": self.stop_reason })));
        }
        if ends || self.usage != TokenUsage::default() {
            let metrics = json!({ "latencyMs": 1 });
            let metadata = json!({ "usage": self.wire_usage(), "metrics": metrics });
            out.extend(event("metadata", &metadata));
        }
        out
    }
}
