//! Decoding of whole responses, and of parts shared with streams.

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, keep_field, lenient};
use layer0::JsonText;
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::served::{CALL, RESULT};

/// A whole response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BedrockResponse {
    output: WireOutput,
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<BedrockUsage>,
}

#[derive(Deserialize)]
struct WireOutput {
    message: Option<BedrockAnswerMessage>,
}

#[derive(Deserialize)]
struct BedrockAnswerMessage {
    #[serde(deserialize_with = "lenient::or_default")]
    content: Vec<BedrockAnswerBlock>,
}

/// A block of an answer: one of these fields, or a future one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BedrockAnswerBlock {
    #[serde(default, deserialize_with = "lenient::text")]
    text: Option<String>,
    /// Text with its citations.
    citations_content: Option<CitationsContent>,
    reasoning_content: Option<WireReasoning>,
    tool_use: Option<BedrockAnswerCall>,
    /// The result of a tool that Bedrock ran itself.
    #[serde(default, deserialize_with = "lenient::json")]
    tool_result: Option<JsonText>,
    /// A picture, which is not kept.
    image: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct CitationsContent {
    #[serde(default, deserialize_with = "lenient::or_default")]
    content: Vec<CitedText>,
}

#[derive(Deserialize)]
struct CitedText {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReasoning {
    /// Absent in redacted reasoning.
    reasoning_text: Option<ReasoningText>,
    /// In base64.
    #[serde(default, deserialize_with = "lenient::text")]
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
struct ReasoningText {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    text: String,
    #[serde(default, deserialize_with = "lenient::text")]
    signature: Option<String>,
}

/// A call, or its head in a stream.
pub(crate) enum BedrockAnswerCall {
    /// A call of one of the agent's tools.
    Own(OwnCall),
    /// A call that Bedrock itself runs, as it was received; `None` if it cannot be recorded.
    Served(Option<JsonText>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnCall {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    tool_use_id: String,
    name: String,
    input: Option<Box<RawValue>>,
    /// `server_tool_use` if Bedrock itself runs the tool.
    #[serde(rename = "type", default, deserialize_with = "lenient::text")]
    kind: Option<String>,
}

impl<'de> Deserialize<'de> for BedrockAnswerCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let call: OwnCall = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(match call.kind.as_deref() {
            Some("server_tool_use") => Self::Served(JsonText::parse(text.get()).ok()),
            _ => Self::Own(call),
        })
    }
}

impl OwnCall {
    pub(crate) fn into_draft(self) -> CallDraft {
        let mut draft = CallDraft::new(self.tool_use_id, self.name);
        draft.take(self.input);
        draft
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BedrockUsage {
    #[serde(default, deserialize_with = "lenient::tokens")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_write_input_tokens: Option<u64>,
}

impl BedrockUsage {
    /// Applies a later, cumulative usage.
    pub(crate) fn update(&mut self, later: &Self) {
        for (count, later) in [
            (&mut self.input_tokens, later.input_tokens),
            (&mut self.output_tokens, later.output_tokens),
            (&mut self.cache_read_input_tokens, later.cache_read_input_tokens),
            (&mut self.cache_write_input_tokens, later.cache_write_input_tokens),
        ] {
            *count = lenient::update_count(*count, later);
        }
    }

    /// Returns the billed tokens. The protocol's input excludes tokens read from and written to the cache.
    pub(crate) fn billed_tokens(&self) -> TokenUsage {
        let cached_tokens = self.cache_read_input_tokens.unwrap_or_default();
        let written = self.cache_write_input_tokens.unwrap_or_default();
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

impl BedrockResponse {
    pub(crate) fn read(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = self.usage {
            draft.bill(usage.billed_tokens(), reply);
        }
        let content = self.output.message.map(|message| message.content).unwrap_or_default();
        for block in content {
            if block.image.is_some() {
                draft.note_media("image");
            }
            if let Some(part) = block.into_part() {
                part.add_to(&mut draft);
            }
        }
        finish(draft, self.stop_reason.as_deref(), reply)
    }
}

impl BedrockAnswerBlock {
    fn into_part(self) -> Option<BedrockPart> {
        let Self { text, citations_content, reasoning_content, tool_use, tool_result, image: _ } =
            self;
        let cited = || {
            let cited = citations_content?.content.into_iter().map(|cited| cited.text);
            Some(BedrockPart::Text(cited.collect()))
        };
        let thinking = || {
            let WireReasoning { reasoning_text, redacted_content } = reasoning_content?;
            let (text, signature) =
                reasoning_text.map(|it| (it.text, it.signature)).unwrap_or_default();
            Some(BedrockPart::Thinking(Thinking { text, signature, redacted: redacted_content }))
        };
        let call = || match tool_use? {
            BedrockAnswerCall::Own(call) => Some(BedrockPart::Call(call.into_draft())),
            BedrockAnswerCall::Served(call) => keep_field(CALL, &call?).map(BedrockPart::Served),
        };
        let result = || keep_field(RESULT, &tool_result?).map(BedrockPart::Served);
        text.map(BedrockPart::Text).or_else(cited).or_else(thinking).or_else(call).or_else(result)
    }
}

/// A complete part of an answer.
pub(crate) enum BedrockPart {
    Text(String),
    Thinking(Thinking),
    Call(CallDraft),
    /// A block of a tool that Bedrock ran itself, to be sent back.
    Served(JsonText),
}

/// Reasoning, as text or redacted.
#[derive(Default)]
pub(crate) struct Thinking {
    pub(crate) text: String,
    pub(crate) signature: Option<String>,
    pub(crate) redacted: Option<String>,
}

impl Thinking {
    pub(crate) fn held_bytes(&self) -> usize {
        let further = [&self.signature, &self.redacted].into_iter().flatten();
        self.text.len() + further.map(String::len).sum::<usize>()
    }

    /// Returns the reasoning to send back with the calls that it led to.
    fn to_wire_value(&self) -> Option<Value> {
        // The endpoint refuses reasoning without its signature.
        match (&self.redacted, self.signature.as_ref().filter(|it| !it.is_empty())) {
            (Some(content), _) => Some(json!({ "redactedContent": content })),
            (None, Some(signature)) => {
                let told = json!({ "text": self.text, "signature": signature });
                Some(json!({ "reasoningText": told }))
            }
            (None, None) => None,
        }
    }
}

impl BedrockPart {
    pub(crate) fn add_to(self, draft: &mut Draft) {
        match self {
            Self::Text(text) => draft.text.push_str(&text),
            Self::Thinking(thinking) => {
                draft.thinking.push_str(&thinking.text);
                if let Some(data) = thinking.to_wire_value() {
                    draft.keep(&data);
                }
            }
            Self::Call(call) => draft.calls.push(call),
            Self::Served(block) => draft.keep_text(block),
        }
    }
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
        Some("content_filtered" | "guardrail_intervened") => StopReason::ContentFilter,
        // Billed but useless, so the loop requests the answer again.
        Some("malformed_model_output" | "malformed_tool_use") => StopReason::Malformed,
        Some("model_context_window_exceeded") => StopReason::ContextExceeded,
        Some(word) => reply.unknown_stop(word)?,
    };
    draft.refuse_media_alone(&stop_reason)?;
    Ok(draft.finish(stop_reason, reply))
}
