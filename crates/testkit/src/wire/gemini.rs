//! Scripted answers as the bytes of Gemini `generateContent`.

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
    Wire::of(provider, |answer, request| reply(answer, request, request["stream"] == true))
        .that_cannot(&[
            Cannot::CountCacheWrites,
            Cannot::KeepState,
            Cannot::Stop(StopReason::ContextExceeded),
            Cannot::Stop(StopReason::Malformed),
            Cannot::Stop(StopReason::Pause),
            Cannot::Stop(StopReason::Refusal),
        ])
        .judged_as(Some("gemini"))
}

/// Returns whether a request to this path streams; `None` if the protocol has no such path.
#[must_use]
pub fn is_streamed(path: &str) -> Option<bool> {
    match path.strip_prefix("/v1beta/models/")?.split_once(':')?.1 {
        "generateContent" => Some(false),
        "streamGenerateContent?alt=sse" => Some(true),
        _ => None,
    }
}

/// Returns the reply of the endpoint to this request body.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value, is_streamed: bool) -> Reply {
    let reply = match GeminiAnswer::new(answer, request) {
        Err(why) => Reply::refusal(&why),
        Ok(said) => match (&answer.error, is_streamed) {
            (None, true) => Reply::events(said.stream(true)),
            (None, false) => Reply::json(200, &said.whole()),
            (Some(error), _) => failed(&said, error, is_streamed),
        },
    };
    reply.delay(Duration::from_millis(answer.delay_ms))
}

fn failed(said: &GeminiAnswer, error: &ScriptedError, is_streamed: bool) -> Reply {
    match (error.kind, is_streamed) {
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
        (_, true) if said.begins() => {
            let (_, error) = wire_error(error);
            Reply::events(format!("{}{}", said.stream(false), data(&error)))
        }
        _ => {
            let (status, error) = wire_error(error);
            Reply::json(status, &error)
        }
    }
}

/// Returns status and body.
fn wire_error(error: &ScriptedError) -> (u16, Value) {
    let mut details = Vec::new();
    let (usual, status, message) = match error.kind {
        ErrorKind::Transient => (503, "UNAVAILABLE", "scripted transient error"),
        ErrorKind::RateLimited => (429, "RESOURCE_EXHAUSTED", "scripted rate limit"),
        ErrorKind::InvalidRequest => (400, "INVALID_ARGUMENT", "scripted invalid request"),
        ErrorKind::ContentBlocked => {
            // A blocked prompt has a response without an answer.
            return (200, json!({ "promptFeedback": { "blockReason": "SAFETY" } }));
        }
        ErrorKind::AuthFailed => {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID",
            }));
            (400, "INVALID_ARGUMENT", "scripted refusal of the key")
        }
        ErrorKind::ContextOverflow => {
            let why = "The input token count (2) exceeds the maximum number of tokens allowed (1).";
            (400, "INVALID_ARGUMENT", why)
        }
        ErrorKind::QuotaExhausted => {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{ "quotaId": "GenerateRequestsPerDayPerProjectPerModel" }],
            }));
            (429, "RESOURCE_EXHAUSTED", "scripted quota")
        }
        ErrorKind::Timeout => (504, "DEADLINE_EXCEEDED", "scripted timeout"),
        _ => {
            let why = "the script has an error that generateContent has no form for";
            (400, "INVALID_ARGUMENT", why)
        }
    };
    if let Some(ms) = error.retry_after_ms {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", Duration::from_millis(ms).as_secs_f64()),
        }));
    }
    let code = error.status.unwrap_or(usual);
    (code, failure(code, status, message, &details))
}

/// Returns the body of a failure.
pub(crate) fn failure(code: u16, status: &str, message: &str, details: &[Value]) -> Value {
    let mut error = json!({ "code": code, "message": message, "status": status });
    if !details.is_empty() {
        error["details"] = json!(details);
    }
    json!({ "error": error })
}

/// A scripted answer with its placeholders filled.
struct GeminiAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    finish_reason: Arc<str>,
    usage: Option<Value>,
}

impl GeminiAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let contents = request["contents"].as_array().map_or(&[][..], Vec::as_slice);
        let parts = contents.iter().filter_map(|content| content["parts"].as_array()).flatten();
        let results = parts.filter_map(|part| {
            let response = part.get("functionResponse")?.get("response")?;
            response.get("output").or_else(|| response.get("error"))?.as_str()
        });
        let placeholders = Placeholders::new(results);
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let finish_reason = match &answer.stop_reason {
            None | Some(StopReason::End | StopReason::ToolUse) => "STOP",
            Some(StopReason::MaxTokens) => "MAX_TOKENS",
            Some(StopReason::ContentFilter) => "SAFETY",
            Some(StopReason::Unknown(word)) => word,
            Some(other) => {
                return Err(format!("generateContent cannot say stop reason {other:?}"));
            }
        };
        Ok(Self {
            text: placeholders.fill(answer.text.as_deref().unwrap_or_default()).to_string(),
            thinking: answer.thinking.as_deref().map(str::to_owned),
            calls: answer.tool_calls.iter().map(fill).collect(),
            finish_reason: finish_reason.into(),
            usage: answer.usage.map(|usage| {
                // Some of the output tokens are thoughts.
                let thoughts = usage.output_tokens / 2;
                json!({
                    "promptTokenCount": usage.input_tokens,
                    "cachedContentTokenCount": usage.cached_tokens,
                    "candidatesTokenCount": usage.output_tokens - thoughts,
                    "thoughtsTokenCount": thoughts,
                    "totalTokenCount": usage.input_tokens + usage.output_tokens,
                })
            }),
        })
    }

    /// Returns whether an error comes after some text or usage.
    fn begins(&self) -> bool {
        !self.text.is_empty() || self.thinking.is_some() || self.usage.is_some()
    }

    fn calls(&self) -> impl Iterator<Item = Value> {
        self.calls.iter().enumerate().map(|(at, call)| {
            let mut wire = json!({ "name": call.name, "args": call.arguments });
            if !call.id.is_empty() {
                wire["id"] = json!(call.id);
            }
            match at {
                0 => json!({ "functionCall": wire, "thoughtSignature": "c2NyaXB0" }),
                _ => json!({ "functionCall": wire }),
            }
        })
    }

    fn thought(text: &str) -> Value {
        json!({ "text": text, "thought": true })
    }

    fn whole(&self) -> Value {
        let thinking = self.thinking.iter().map(|thinking| Self::thought(thinking));
        let text = Some(&self.text).filter(|text| !text.is_empty());
        let text = text.map(|text| json!({ "text": text }));
        let parts: Vec<Value> = thinking.chain(text).chain(self.calls()).collect();
        self.billed(candidate(&parts, Some(&self.finish_reason)))
    }

    /// Returns the stream, with or without its end. Every chunk has the usage so far.
    fn stream(&self, ends: bool) -> String {
        let thinking = self.thinking.iter().map(|thinking| Self::thought(thinking));
        let text = self.text.split_inclusive(' ').map(|piece| json!({ "text": piece }));
        let mut out = String::new();
        for part in thinking.chain(text).chain(self.calls()) {
            out += &data(&self.billed(candidate(&[part], None)));
        }
        if ends {
            let last = candidate(&[json!({ "text": "" })], Some(&self.finish_reason));
            out += &data(&self.billed(last));
        } else if out.is_empty() {
            out += &data(&self.billed(candidate(&[], None)));
        }
        out
    }

    fn billed(&self, mut response: Value) -> Value {
        if let Some(usage) = &self.usage {
            response["usageMetadata"] = usage.clone();
        }
        response
    }
}

/// Returns an answer, or a chunk of one.
pub(crate) fn candidate(parts: &[Value], finish_reason: Option<&str>) -> Value {
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = json!(reason);
    }
    json!({ "candidates": [candidate], "modelVersion": "script", "responseId": "script" })
}

/// Returns a server-sent event. Google ends its lines like HTTP.
pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\r\n\r\n")
}
