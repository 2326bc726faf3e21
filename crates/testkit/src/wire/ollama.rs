//! Scripted answers as the bytes of Ollama chat.

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
    // A line in the middle of a stream has no status that could identify the failure.
    Wire::of(provider, reply)
        .that_cannot(&[
            Cannot::CountCacheWrites,
            Cannot::BillFailures,
            Cannot::CountCached,
            Cannot::Fail(ErrorKind::ContentBlocked),
            Cannot::FailMidway(ErrorKind::AuthFailed),
            Cannot::FailMidway(ErrorKind::InvalidRequest),
            Cannot::FailMidway(ErrorKind::QuotaExhausted),
            Cannot::FailMidway(ErrorKind::RateLimited),
            Cannot::FailMidway(ErrorKind::Timeout),
            Cannot::KeepState,
            Cannot::MarkFailures,
            Cannot::ShowToolImages,
            Cannot::Stop(StopReason::ContentFilter),
            Cannot::Stop(StopReason::ContextExceeded),
            Cannot::Stop(StopReason::Malformed),
            Cannot::Stop(StopReason::Pause),
            Cannot::Stop(StopReason::Refusal),
        ])
        .judged_as(Some("ollama"))
}

/// Returns the reply of the server to this request body.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value) -> Reply {
    let is_streamed = request["stream"] == true;
    let said = OllamaAnswer::new(answer, request);
    let reply = said.and_then(|said| match (&answer.error, is_streamed) {
        (None, true) => Ok(Reply::lines(said.stream(true))),
        (None, false) => Ok(Reply::json(200, &said.whole())),
        (Some(error), _) => failed(&said, error, is_streamed),
    });
    reply.unwrap_or_else(|why| Reply::refusal(&why)).delay(Duration::from_millis(answer.delay_ms))
}

fn failed(said: &OllamaAnswer, error: &ScriptedError, is_streamed: bool) -> Result<Reply, String> {
    if said.usage.is_some() {
        return Err("ollama counts the tokens of an answer that is done".into());
    }
    let reply = match (error.kind, is_streamed) {
        (ErrorKind::StreamTruncated, true) => Reply::lines(said.stream(false)),
        (ErrorKind::StreamTruncated, false) => {
            let whole = Reply::json(200, &said.whole());
            let half = whole.body.len() / 2;
            whole.ending(Ending::CutAt(half))
        }
        (ErrorKind::InvalidResponse, true) if said.begins() => {
            Reply::lines(format!("{}<html>\n", said.stream(false)))
        }
        (ErrorKind::InvalidResponse, _) => Reply::html(200),
        (kind, true) if said.begins() => {
            let (_, message) = wire_error(kind, error.status)?;
            // A line has no status, so it is classified by its text.
            if !matches!(kind, ErrorKind::Transient | ErrorKind::ContextOverflow) {
                return Err(format!("ollama cannot say {kind:?} in the middle of a stream"));
            }
            Reply::lines(said.stream(false) + &line(&json!({ "error": message })))
        }
        (kind, _) => {
            let (status, message) = wire_error(kind, error.status)?;
            Reply::json(status, &json!({ "error": message }))
        }
    };
    Ok(match error.retry_after_ms {
        Some(ms) => {
            reply.header("retry-after", Duration::from_millis(ms).as_secs_f64().to_string())
        }
        None => reply,
    })
}

/// Returns status and message.
fn wire_error(kind: ErrorKind, status: Option<u16>) -> Result<(u16, &'static str), String> {
    let (usual, message) = match kind {
        ErrorKind::Transient => (500, "scripted transient error"),
        ErrorKind::RateLimited => (429, "scripted rate limit"),
        ErrorKind::InvalidRequest => (400, "scripted invalid request"),
        ErrorKind::AuthFailed => (401, "scripted refusal of the key"),
        ErrorKind::ContextOverflow => (400, "the input length exceeds the context length"),
        ErrorKind::QuotaExhausted => (402, "scripted quota"),
        ErrorKind::Timeout => (504, "scripted timeout"),
        other => return Err(format!("ollama has no form for {other:?}")),
    };
    Ok((status.unwrap_or(usual), message))
}

/// A scripted answer with its placeholders filled.
struct OllamaAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    done_reason: Arc<str>,
    usage: Option<(u64, u64)>,
}

impl OllamaAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let tools = messages.iter().filter(|message| message["role"] == "tool");
        let placeholders = Placeholders::new(tools.filter_map(|it| it["content"].as_str()));
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let done_reason = match &answer.stop_reason {
            None | Some(StopReason::End | StopReason::ToolUse) => "stop",
            Some(StopReason::MaxTokens) => "length",
            Some(StopReason::Unknown(word)) => word,
            Some(other) => return Err(format!("ollama cannot say stop reason {other:?}")),
        };
        let usage = answer.usage.unwrap_or_default();
        if usage.cached_tokens > 0 {
            return Err("ollama cannot say how many tokens were cached".into());
        }
        Ok(Self {
            text: placeholders.fill(answer.text.as_deref().unwrap_or_default()).to_string(),
            thinking: answer.thinking.as_deref().map(str::to_owned),
            calls: answer.tool_calls.iter().map(fill).collect(),
            done_reason: done_reason.into(),
            usage: answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens)),
        })
    }

    /// Returns whether an error comes after some text.
    fn begins(&self) -> bool {
        !self.text.is_empty() || self.thinking.is_some()
    }

    fn whole(&self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if let Some(thinking) = &self.thinking {
            message["thinking"] = json!(thinking);
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().map(wire_call).collect();
        }
        self.last(message)
    }

    /// Returns the stream, with or without its end.
    fn stream(&self, ends: bool) -> String {
        let mut out = String::new();
        if let Some(thinking) = &self.thinking {
            for piece in thinking.split_inclusive(' ') {
                out += &chunk(json!({ "role": "assistant", "content": "", "thinking": piece }));
            }
        }
        for piece in self.text.split_inclusive(' ') {
            out += &chunk(json!({ "role": "assistant", "content": piece }));
        }
        // Parallel calls come one after the other, each complete.
        for call in &self.calls {
            let calls = [wire_call(call)];
            out += &chunk(json!({ "role": "assistant", "content": "", "tool_calls": calls }));
        }
        if ends {
            out += &line(&self.last(json!({ "role": "assistant", "content": "" })));
        }
        out
    }

    /// Returns the last value, which marks the end.
    fn last(&self, message: Value) -> Value {
        let mut last = value(message, true);
        last["done_reason"] = json!(self.done_reason);
        last["total_duration"] = json!(1);
        if let Some((input, output)) = self.usage {
            last["prompt_eval_count"] = json!(input);
            last["eval_count"] = json!(output);
        }
        last
    }
}

/// Returns a call. Newer versions give it an id; an empty id in the script is left out, as by older versions.
fn wire_call(call: &ScriptedToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments });
    if call.id.is_empty() {
        return json!({ "function": function });
    }
    json!({ "id": call.id, "function": function })
}

fn chunk(message: Value) -> String {
    line(&value(message, false))
}

fn value(message: Value, done: bool) -> Value {
    json!({
        "model": "script",
        "created_at": "2026-01-01T00:00:00Z",
        "message": message,
        "done": done,
    })
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}
