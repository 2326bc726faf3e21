//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::{StatePart, StopReason, ToolCall};
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, Endpoint};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct WireResponse {
    content: Vec<WireBlock>,
    stop_reason: Option<String>,
    usage: Option<WireUsage>,
}

/// A block of an answer.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum WireBlock {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        #[serde(default)]
        data: String,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    /// What only servers' tools produce.
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize, Default)]
pub(crate) struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl WireUsage {
    /// Takes what a later, cumulative count says anew.
    pub(crate) fn update(&mut self, later: &Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
    }

    /// Returns what was billed. The protocol's input leaves out what the cache read and wrote.
    pub(crate) fn billed(&self) -> TokenUsage {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or_default();
        let written = self.cache_creation_input_tokens.unwrap_or_default();
        TokenUsage {
            input_tokens: self
                .input_tokens
                .unwrap_or_default()
                .saturating_add(cached_tokens)
                .saturating_add(written),
            output_tokens: self.output_tokens.unwrap_or_default(),
            cached_tokens,
        }
    }
}

/// Reads a whole answer. Only usage goes to the sink: nobody waits for text that is there at once.
pub(crate) async fn read(
    endpoint: &Endpoint,
    answer: Answer<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let response: WireResponse = answer.json().await?;
    let usage = response.usage.map(|usage| usage.billed());
    if let (Some(sink), Some(usage)) = (sink, usage) {
        sink.usage(usage);
    }
    let mut draft = Draft::billed(usage.unwrap_or_default());
    response.content.into_iter().for_each(|block| draft.push(block));
    draft.finish(endpoint, response.stop_reason.as_deref())
}

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft {
    text: String,
    thinking: String,
    calls: Vec<ToolCall>,
    /// Signed thinking: the protocol wants it back with the calls it led to.
    kept: Vec<StatePart>,
    usage: TokenUsage,
}

impl Draft {
    pub(crate) fn billed(usage: TokenUsage) -> Self {
        Self { usage, ..Self::default() }
    }

    /// Adds a block that is complete.
    pub(crate) fn push(&mut self, block: WireBlock) {
        match block {
            WireBlock::Text { text } => self.text.push_str(&text),
            WireBlock::Thinking { thinking, signature } => {
                self.thinking.push_str(&thinking);
                if !signature.is_empty() {
                    self.keep(json!({
                        "type": "thinking", "thinking": thinking, "signature": signature,
                    }));
                }
            }
            WireBlock::RedactedThinking { data } => {
                self.keep(json!({ "type": "redacted_thinking", "data": data }));
            }
            WireBlock::ToolUse { id, name, input } => {
                let arguments = match input {
                    Value::Null => Value::Object(serde_json::Map::new()),
                    input => input,
                };
                self.calls.push(ToolCall {
                    id: id.into(),
                    name: name.into(),
                    arguments: arguments.into(),
                });
            }
            WireBlock::Unknown => {}
        }
    }

    fn keep(&mut self, data: Value) {
        let (text_before, calls_before) = (self.text.len(), self.calls.len());
        self.kept.push(StatePart { text_before, calls_before, data });
    }

    pub(crate) fn finish(
        self,
        endpoint: &Endpoint,
        stop_reason: Option<&str>,
    ) -> Result<ModelResponse, ProviderError> {
        let Some(reason) = stop_reason else {
            return Err(ProviderError::stream_truncated("a stop reason"));
        };
        let Some(stop_reason) = read_stop_reason(reason) else {
            return Err(endpoint.invalid_response(&format!("unknown stop reason: `{reason}`")));
        };
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: endpoint.state_of(self.kept),
            tool_calls: self.calls.into(),
            stop_reason,
            usage: self.usage,
        })
    }
}

/// Reads a stop reason; `None` where it is not known, so that none is taken for another.
fn read_stop_reason(reason: &str) -> Option<StopReason> {
    Some(match reason {
        "end_turn" | "stop_sequence" => StopReason::End,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        "model_context_window_exceeded" => StopReason::ContextExceeded,
        _ => return None,
    })
}
