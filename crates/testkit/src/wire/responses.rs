//! Scripted answers as the bytes of OpenAI Responses.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::{ErrorKind, Placeholders, ScriptedAnswer, ScriptedError, ScriptedToolCall};
use layer0::message::StopReason;
use serde_json::{Value, json};

use crate::server::{Ending, Reply};
use crate::wire::openai::{arguments_text, wire_error};
use crate::wire::{Cannot, MakeProvider, Wire};

/// Returns the wire of this protocol for a provider.
#[must_use]
pub const fn wire(provider: MakeProvider) -> Wire {
    Wire::of(provider, reply)
        .that_cannot(&[
            Cannot::CountCacheWrites,
            Cannot::MarkFailures,
            Cannot::Stop(StopReason::ContextExceeded),
            Cannot::Stop(StopReason::Malformed),
        ])
        .judged_as(Some("openai-responses"))
}

/// Returns the reply of the endpoint to this request body.
#[must_use]
pub fn reply(answer: &ScriptedAnswer, request: &Value) -> Reply {
    let is_streamed = request["stream"] == true;
    let reply = match ResponsesAnswer::new(answer, request) {
        Err(why) => Reply::refusal(&why),
        Ok(said) => match (&answer.error, is_streamed) {
            (None, true) => Reply::events(said.stream(true)),
            (None, false) => Reply::json(200, &said.whole()),
            (Some(error), _) => failed(&said, error, is_streamed),
        },
    };
    reply.delay(Duration::from_millis(answer.delay_ms))
}

fn failed(said: &ResponsesAnswer, error: &ScriptedError, is_streamed: bool) -> Reply {
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
                error["code"] = json!(status.to_string());
            }
            let code = if error["code"].is_null() { &error["type"] } else { &error["code"] };
            let error = json!({ "code": code, "message": error["message"] });
            let mut response = said.response("failed");
            response["error"] = error;
            let event = event("response.failed", json!({ "response": response }));
            Reply::events(format!("{}{event}", said.stream(false)))
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

/// A scripted answer with its placeholders filled.
struct ResponsesAnswer {
    text: String,
    thinking: Option<String>,
    calls: Vec<ScriptedToolCall>,
    /// The reason that the answer is incomplete, if it is.
    cut: Option<Arc<str>>,
    refused: bool,
    usage: Option<Value>,
}

impl ResponsesAnswer {
    fn new(answer: &ScriptedAnswer, request: &Value) -> Result<Self, String> {
        let items = request["input"].as_array().map_or(&[][..], Vec::as_slice);
        let outputs = items.iter().filter(|item| item["type"] == "function_call_output");
        let placeholders = Placeholders::new(outputs.filter_map(|it| it["output"].as_str()));
        let fill = |call: &ScriptedToolCall| {
            ScriptedToolCall::new(&*call.id, &*call.name, placeholders.fill_value(&call.arguments))
        };
        let by_content =
            if answer.tool_calls.is_empty() { StopReason::End } else { StopReason::ToolUse };
        let reason = answer.stop_reason.as_ref().unwrap_or(&by_content);
        let cut = match reason {
            StopReason::End | StopReason::Refusal => None,
            StopReason::ToolUse if !answer.tool_calls.is_empty() => None,
            StopReason::MaxTokens => Some("max_output_tokens"),
            StopReason::ContentFilter => Some("content_filter"),
            StopReason::Pause => Some("steered"),
            StopReason::Unknown(word) => Some(&**word),
            other => return Err(format!("responses cannot say stop reason {other:?}")),
        };
        Ok(Self {
            text: placeholders.fill(answer.text.as_deref().unwrap_or_default()).to_string(),
            thinking: answer.thinking.as_deref().map(str::to_owned),
            calls: answer.tool_calls.iter().map(fill).collect(),
            cut: cut.map(Arc::from),
            refused: *reason == StopReason::Refusal,
            usage: answer.usage.map(|usage| {
                json!({
                    "input_tokens": usage.input_tokens,
                    "input_tokens_details": { "cached_tokens": usage.cached_tokens },
                    "output_tokens": usage.output_tokens,
                    "output_tokens_details": { "reasoning_tokens": 0 },
                    "total_tokens": usage.input_tokens + usage.output_tokens,
                })
            }),
        })
    }

    /// Returns whether an error comes after some text or usage.
    fn begins(&self) -> bool {
        !self.text.is_empty() || self.thinking.is_some() || self.usage.is_some()
    }

    const fn status(&self) -> &'static str {
        if self.cut.is_some() { "incomplete" } else { "completed" }
    }

    fn items(&self) -> Vec<Value> {
        let thinking = self.thinking.iter().map(|thinking| {
            let part = json!({ "type": "summary_text", "text": thinking });
            json!({
                "id": "rs_script", "type": "reasoning", "summary": [part],
                "encrypted_content": "c2NyaXB0",
            })
        });
        let text = (!self.text.is_empty()).then(|| {
            let part = match self.refused {
                true => json!({ "type": "refusal", "refusal": self.text }),
                false => json!({ "type": "output_text", "text": self.text, "annotations": [] }),
            };
            json!({
                "id": "msg_script", "type": "message", "status": self.status(),
                "role": "assistant", "content": [part],
            })
        });
        let calls = self.calls.iter().map(|call| {
            json!({
                "id": format!("fc_{}", call.id), "type": "function_call", "status": "completed",
                "call_id": call.id, "name": call.name, "arguments": arguments_text(call),
            })
        });
        thinking.chain(text).chain(calls).collect()
    }

    /// Returns the response without its output.
    fn response(&self, status: &str) -> Value {
        json!({
            "id": "resp_script",
            "object": "response",
            "created_at": 0,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": "script",
            "output": [],
            "store": false,
            "usage": if status == "in_progress" { &None } else { &self.usage },
        })
    }

    fn whole(&self) -> Value {
        let mut response = self.response(self.status());
        response["output"] = json!(self.items());
        if let Some(reason) = &self.cut {
            response["incomplete_details"] = json!({ "reason": reason });
        }
        response
    }

    /// Returns the stream, with or without its end.
    fn stream(&self, ends: bool) -> String {
        let begun = json!({ "response": self.response("in_progress") });
        let mut out =
            event("response.created", begun.clone()) + &event("response.in_progress", begun);
        let items = self.items();
        for (index, item) in items.iter().enumerate() {
            out += &event(
                "response.output_item.added",
                json!({
                    "output_index": index, "item": without_content(item),
                }),
            );
            for (kind, field, piece) in pieces(item) {
                let mut delta =
                    json!({ "item_id": item["id"], "output_index": index, "delta": piece });
                delta[field] = json!(0);
                out += &event(kind, delta);
            }
        }
        // The arguments of parallel calls come interleaved, in halves.
        for second in [false, true] {
            for (index, item) in items.iter().enumerate() {
                let Some(text) = item["arguments"].as_str() else { continue };
                let (head, tail) = text.split_at(text.floor_char_boundary(text.len() / 2));
                let piece = if second { tail } else { head };
                out += &event(
                    "response.function_call_arguments.delta",
                    json!({
                        "item_id": item["id"], "output_index": index, "delta": piece,
                    }),
                );
            }
        }
        if !ends {
            return out;
        }
        for (index, item) in items.iter().enumerate() {
            if let Some(text) = item["arguments"].as_str() {
                out += &event(
                    "response.function_call_arguments.done",
                    json!({
                        "item_id": item["id"], "output_index": index, "arguments": text,
                    }),
                );
            }
            out += &event(
                "response.output_item.done",
                json!({
                    "output_index": index, "item": item,
                }),
            );
        }
        let kind = format!("response.{}", self.status());
        out + &event(&kind, json!({ "response": self.whole() }))
    }
}

/// Returns an item at its start.
fn without_content(item: &Value) -> Value {
    let mut item = item.clone();
    for field in ["content", "summary"] {
        if item.get(field).is_some() {
            item[field] = json!([]);
        }
    }
    if item.get("arguments").is_some() {
        item["arguments"] = json!("");
    }
    item
}

/// Returns the events for the contents of an item: their type, the name of the part's index, a chunk.
fn pieces(item: &Value) -> Vec<(&'static str, &'static str, String)> {
    let forms = [
        ("/content/0/text", "response.output_text.delta", "content_index"),
        ("/content/0/refusal", "response.refusal.delta", "content_index"),
        ("/summary/0/text", "response.reasoning_summary_text.delta", "summary_index"),
    ];
    let said = |(pointer, kind, field)| Some((item.pointer(pointer)?.as_str()?, kind, field));
    let split = |(text, kind, field): (&str, _, _)| {
        let pieces: Vec<_> =
            text.split_inclusive(' ').map(|piece| (kind, field, piece.to_owned())).collect();
        pieces
    };
    forms.into_iter().filter_map(said).flat_map(split).collect()
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = json!(kind);
    format!("event: {kind}\ndata: {data}\n\n")
}
