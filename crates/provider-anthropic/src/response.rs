//! Decoding of whole responses, and of parts shared with streams.

use std::collections::BTreeMap;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, keep_field, lenient};
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use layer0::{JsonText, read_tagged};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;

/// A whole response.
#[derive(Deserialize)]
pub struct AnthropicResponse {
    #[serde(deserialize_with = "lenient::or_default")]
    content: Vec<AnthropicAnswerBlock>,
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<AnthropicUsage>,
}

/// A block of an answer.
#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum AnthropicAnswerBlock {
    Text {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        text: String,
    },
    Thinking {
        #[serde(default, deserialize_with = "lenient::text_or_empty")]
        thinking: String,
        #[serde(default, deserialize_with = "lenient::text")]
        signature: Option<String>,
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
        /// The served tool that makes the call, unless it is the model; to be sent back.
        #[serde(default, deserialize_with = "lenient::json")]
        caller: Option<JsonText>,
    },
    /// A block of a tool that runs at the provider, exactly as it was received.
    #[serde(skip)]
    Served(ServedBlock),
    /// A block without a known type.
    #[serde(other)]
    Unknown,
}

impl<'de> Deserialize<'de> for AnthropicAnswerBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let mut json = serde_json::Deserializer::from_str(text.get());
        let block = read_tagged(&mut json, "type", |block| Self::deserialize(block));
        Ok(match block.map_err(D::Error::custom)? {
            // A block that cannot be recorded is dropped.
            Self::Unknown => JsonText::parse(text.get()).map_or(Self::Unknown, |block| {
                Self::Served(ServedBlock { block, ..ServedBlock::default() })
            }),
            block => block,
        })
    }
}

impl AnthropicAnswerBlock {
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Thinking { thinking, signature } => {
                thinking.len() + signature.as_ref().map_or(0, String::len)
            }
            Self::RedactedThinking { data } => data.len(),
            Self::ToolUse { input, .. } => input.as_ref().map_or(0, |input| input.get().len()),
            Self::Served(block) => block.block.get().len() + block.input.len(),
            Self::Unknown => 0,
        }
    }
}

/// A block of a tool that runs at the provider, such as a search and its result. It is sent back
/// when the turn is paused, and with the next request.
#[derive(Default)]
pub(crate) struct ServedBlock {
    block: JsonText,
    /// The input, if a stream sends it in pieces.
    pub(crate) input: String,
    /// The fields of a compaction, which a stream sends after the block.
    pub(crate) compaction: BTreeMap<String, JsonText>,
}

impl ServedBlock {
    /// Returns the block with the fields that were received after it.
    fn whole(self) -> JsonText {
        let input = JsonText::parse(&self.input).ok().map(|input| ("input".to_owned(), input));
        let further: Vec<_> = input.into_iter().chain(self.compaction).collect();
        let fields = self.block.read::<BTreeMap<String, JsonText>>();
        let (false, Ok(mut fields)) = (further.is_empty(), fields) else { return self.block };
        fields.extend(further);
        JsonText::from_value(&fields).unwrap_or(self.block)
    }
}

#[derive(Deserialize, Default)]
pub(crate) struct AnthropicUsage {
    #[serde(default, deserialize_with = "lenient::tokens")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    iterations: Option<Vec<Iteration>>,
}

/// One sampling within a request: the answer, whose tokens the usage includes, or a compaction or
/// an advisor, whose tokens it omits:
/// <https://platform.claude.com/docs/en/build-with-claude/compaction#understanding-usage>.
#[derive(Deserialize)]
struct Iteration {
    #[serde(default, rename = "type", deserialize_with = "lenient::text_or_empty")]
    kind: String,
    #[serde(flatten)]
    usage: AnthropicUsage,
}

impl AnthropicUsage {
    /// Applies a later, cumulative usage.
    pub(crate) fn update(&mut self, later: Self) {
        for (count, later) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.cache_read_input_tokens, later.cache_read_input_tokens),
            (&mut self.cache_creation_input_tokens, later.cache_creation_input_tokens),
        ] {
            *count = lenient::update_count(*count, later);
        }
        self.iterations = later.iterations.or(self.iterations.take());
    }

    /// Returns the billed tokens.
    pub(crate) fn billed_tokens(&self) -> TokenUsage {
        let iterations = self.iterations.iter().flatten();
        let besides = iterations.filter(|iteration| iteration.kind != "message");
        besides.map(|iteration| iteration.usage.billed_tokens()).fold(self.own(), |sum, more| {
            TokenUsage::new(
                sum.input_tokens.saturating_add(more.input_tokens),
                sum.output_tokens.saturating_add(more.output_tokens),
            )
            .cached_tokens(sum.cached_tokens.saturating_add(more.cached_tokens))
            .cache_write_tokens(sum.cache_write_tokens.saturating_add(more.cache_write_tokens))
        })
    }

    /// Returns the tokens of the answer. The protocol's input excludes tokens read from and written
    /// to the cache.
    fn own(&self) -> TokenUsage {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or_default();
        let written = self.cache_creation_input_tokens.unwrap_or_default();
        TokenUsage::new(
            self.input_tokens
                .unwrap_or_default()
                .saturating_add(cached_tokens)
                .saturating_add(written),
            self.output_tokens.unwrap_or_default(),
        )
        .cached_tokens(cached_tokens)
        .cache_write_tokens(written)
    }
}

impl AnthropicResponse {
    pub(crate) fn read(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = self.usage {
            draft.bill(usage.billed_tokens(), reply);
        }
        self.content.into_iter().for_each(|block| add(&mut draft, block));
        finish(draft, self.stop_reason.as_deref(), reply)
    }
}

/// Adds a complete block.
pub(crate) fn add(draft: &mut Draft, block: AnthropicAnswerBlock) {
    match block {
        AnthropicAnswerBlock::Text { text } => draft.text.push_str(&text),
        AnthropicAnswerBlock::Thinking { thinking, signature } => {
            draft.thinking.push_str(&thinking);
            // Sent back with the calls it led to.
            let mut block = json!({ "type": "thinking", "thinking": thinking });
            if let Some(signature) = signature {
                block["signature"] = signature.into();
            }
            draft.keep(&block);
        }
        AnthropicAnswerBlock::RedactedThinking { data } => {
            draft.keep(&json!({ "type": "redacted_thinking", "data": data }));
        }
        AnthropicAnswerBlock::ToolUse { id, name, input, caller } => {
            let mut call = CallDraft::new(id, name);
            call.take(input);
            call.kept = caller;
            add_call(draft, call);
        }
        AnthropicAnswerBlock::Served(block) => draft.keep_text(block.whole()),
        AnthropicAnswerBlock::Unknown => {}
    }
}

/// Adds a call, after its caller.
pub(crate) fn add_call(draft: &mut Draft, mut call: CallDraft) {
    if let Some(caller) = call.kept.take().and_then(|caller| keep_field("caller", &caller)) {
        draft.keep_text(caller);
    }
    draft.calls.push(call);
}

pub(crate) fn finish(
    draft: Draft,
    stop_reason: Option<&str>,
    reply: &Reply<'_>,
) -> Result<ModelResponse, ProviderError> {
    // An unknown reason is not mapped to another one.
    let stop_reason = match stop_reason {
        None | Some("") => return Err(ProviderError::stream_truncated("a stop reason")),
        Some("end_turn" | "stop_sequence") => StopReason::End,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal,
        Some("compaction" | "pause_turn") => StopReason::Pause,
        Some("model_context_window_exceeded") => StopReason::ContextExceeded,
        Some(word) => reply.unknown_stop(word)?,
    };
    Ok(draft.finish(stop_reason, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_is_billed_with_the_answer() {
        #[track_caller]
        fn check(usage: &str, expected: TokenUsage) {
            let usage: AnthropicUsage = serde_json::from_str(usage).unwrap();
            assert_eq!(usage.billed_tokens(), expected);
        }
        check(
            r#"{"input_tokens": 224, "output_tokens": 22, "iterations": [
                {"type": "compaction", "input_tokens": 800, "output_tokens": 154,
                 "cache_read_input_tokens": 50, "cache_creation_input_tokens": 5},
                {"type": "message", "input_tokens": 224, "output_tokens": 22}]}"#,
            TokenUsage::new(1_079, 176).cached_tokens(50).cache_write_tokens(5),
        );
        check(
            r#"{"input_tokens": 3, "output_tokens": 2, "iterations": null}"#,
            TokenUsage::new(3, 2),
        );
        check(
            r#"{"input_tokens": 3, "output_tokens": 2, "iterations": "n/a"}"#,
            TokenUsage::new(3, 2),
        );
    }

    #[test]
    fn later_usage_without_iterations_keeps_them() {
        let with = r#"{"iterations": [{"type": "compaction", "input_tokens": 8}]}"#;
        let mut usage: AnthropicUsage = serde_json::from_str(with).unwrap();
        usage.update(serde_json::from_str(r#"{"output_tokens": 2}"#).unwrap());
        assert_eq!(usage.billed_tokens(), TokenUsage::new(8, 2));
    }
}
