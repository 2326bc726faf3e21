//! Decoding of whole responses, and of parts shared with streams.

use backstop_provider::ProviderError;
use backstop_provider_http::{Class, Reply, lenient};
use layer0::message::StopReason;
use layer0::read_tagged;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::served::ServedItem;
use crate::usage::Counts;

/// The response object of the protocol, whole or in part.
#[derive(Deserialize, Default)]
pub struct WireResponse {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: Option<String>,
    error: Option<Value>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    incomplete_details: Option<IncompleteDetails>,
    pub(crate) output: Option<Vec<ResponsesItem>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    pub(crate) usage: Option<ResponsesUsage>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

/// A part of an answer.
#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub(crate) enum ResponsesItem {
    FunctionCall(CallItem),
    Message {
        #[serde(default, deserialize_with = "parts")]
        content: Option<Vec<OutputPart>>,
        #[serde(default, deserialize_with = "lenient::text")]
        status: Option<String>,
        /// Commentary or final answer, to be sent back.
        #[serde(default, deserialize_with = "lenient::text")]
        phase: Option<String>,
    },
    Reasoning {
        #[serde(default, deserialize_with = "lenient::text")]
        id: Option<String>,
        #[serde(default, deserialize_with = "lenient::maybe")]
        summary: Option<Vec<OutputPart>>,
        /// The literal thinking of open models.
        #[serde(default, deserialize_with = "lenient::maybe")]
        content: Option<Vec<OutputPart>>,
        /// The thinking, encrypted for the provider.
        #[serde(default, deserialize_with = "lenient::text")]
        encrypted_content: Option<String>,
    },
    /// An item of a tool that runs at the provider, or an unknown one.
    #[serde(skip)]
    Served(ServedItem),
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for ResponsesItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let mut json = serde_json::Deserializer::from_str(text.get());
        let item = read_tagged(&mut json, "type", |item| Self::deserialize(item));
        Ok(match item.map_err(D::Error::custom)? {
            Self::Other => ServedItem::read(text.get()).map_or(Self::Other, Self::Served),
            item => item,
        })
    }
}

#[derive(Deserialize)]
pub(crate) struct CallItem {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) call_id: Option<String>,
    pub(crate) name: Option<String>,
    /// JSON in a string; some endpoints send the JSON itself.
    pub(crate) arguments: Option<Box<RawValue>>,
    /// The group of tools that the call belongs to, to be sent back.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) namespace: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct OutputPart {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) text: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) refusal: Option<String>,
}

/// Decodes the parts of a message; some endpoints send its text instead.
fn parts<'de, D: Deserializer<'de>>(content: D) -> Result<Option<Vec<OutputPart>>, D::Error> {
    Ok(match Value::deserialize(content)? {
        Value::String(text) => Some(vec![OutputPart { text: Some(text), refusal: None }]),
        content => serde_json::from_value(content).ok(),
    })
}

/// The token counts of an answer, in this protocol.
#[derive(Deserialize)]
pub(crate) struct ResponsesUsage {
    #[serde(default, deserialize_with = "lenient::tokens")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    input_tokens_details: Option<InputDetails>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize, Default)]
struct InputDetails {
    #[serde(default, deserialize_with = "lenient::tokens")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct OutputDetails {
    #[serde(default, deserialize_with = "lenient::tokens")]
    reasoning_tokens: Option<u64>,
}

impl From<ResponsesUsage> for Counts {
    fn from(usage: ResponsesUsage) -> Self {
        let input = usage.input_tokens_details.unwrap_or_default();
        let output = usage.output_tokens_details.unwrap_or_default();
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            reasoning: output.reasoning_tokens,
            total: usage.total_tokens,
            cached: input.cached_tokens,
            cache_written: input.cache_write_tokens,
        }
    }
}

impl WireResponse {
    /// Returns the stop reason, or the failure of the answer.
    pub(crate) fn ending(&self, reply: &Reply<'_>) -> Result<StopReason, ProviderError> {
        let reason = self.incomplete_details.as_ref().and_then(|it| it.reason.as_deref());
        match self.status.as_deref() {
            Some("completed") => Ok(StopReason::End),
            Some("incomplete") => match reason {
                Some("max_output_tokens" | "max_messages") => Ok(StopReason::MaxTokens),
                Some("content_filter") => Ok(StopReason::ContentFilter),
                // Other input came between; the conversation continues when it is sent again.
                Some("steered") => Ok(StopReason::Pause),
                word => reply.unknown_stop(word.unwrap_or("incomplete")),
            },
            Some("failed") => Err(reply.failure(json!({ "error": self.error }))),
            Some("cancelled") => {
                Err(Class::Cancelled.into_error(None, "the answer was cancelled", None))
            }
            Some("in_progress" | "queued") | None => {
                Err(ProviderError::stream_truncated("a final status"))
            }
            Some(word) => reply.unknown_stop(word),
        }
    }
}
