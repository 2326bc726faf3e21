//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::{StatePart, StopReason};
use layer0::read_tagged;
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, CallDraft, Endpoint, finish_calls, lenient};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct WireResponse {
    #[serde(deserialize_with = "lenient::or_default")]
    content: Vec<WireBlock>,
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
}

/// A block of an answer.
#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum WireBlock {
    Text {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        text: String,
    },
    Thinking {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        thinking: String,
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        signature: String,
    },
    RedactedThinking {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        data: String,
    },
    ToolUse {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        id: String,
        name: String,
        input: Option<Box<RawValue>>,
    },
    /// What only servers' tools produce.
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for WireBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_tagged(deserializer, "type", |block| Self::deserialize(block))
    }
}

#[derive(Deserialize, Default)]
pub(crate) struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
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
    calls: Vec<CallDraft>,
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
                let mut call = CallDraft::new(id, name);
                call.take(input);
                self.calls.push(call);
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
        let Some(reason) = stop_reason.filter(|reason| !reason.is_empty()) else {
            return Err(ProviderError::stream_truncated("a stop reason"));
        };
        let stop_reason = read_stop_reason(endpoint, reason);
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: endpoint.state_of(self.kept),
            tool_calls: finish_calls(self.calls, &stop_reason),
            stop_reason,
            usage: self.usage,
        })
    }
}

/// Reads a stop reason; one that is not known is taken for no other.
fn read_stop_reason(endpoint: &Endpoint, reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::End,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        "model_context_window_exceeded" => StopReason::ContextExceeded,
        word => endpoint.unknown_stop(word),
    }
}
