//! What comes back in one piece, and the parts that a stream shares with it.

use std::time::Duration;

use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, Class, Endpoint};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::draft::Draft;

/// The object of the protocol: a whole answer, or what is known of one.
#[derive(Deserialize, Default)]
pub(crate) struct WireResponse {
    pub(crate) status: Option<String>,
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
    pub(crate) output: Option<Vec<Item>>,
    pub(crate) usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

/// A part of an answer.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    FunctionCall(CallItem),
    Message {
        content: Option<Vec<Part>>,
    },
    Reasoning {
        summary: Option<Vec<Part>>,
        /// What open models think, word for word.
        content: Option<Vec<Part>>,
        /// The same for the provider alone.
        encrypted_content: Option<String>,
    },
    /// Items of tools that are never offered.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
pub(crate) struct CallItem {
    pub(crate) call_id: Option<String>,
    pub(crate) name: Option<String>,
    /// JSON in a string; some endpoints leave out the string.
    #[serde(default, deserialize_with = "text_or_json")]
    pub(crate) arguments: Option<String>,
}

fn text_or_json<'de, D: Deserializer<'de>>(arguments: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(arguments)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        value => Some(value.to_string()),
    })
}

#[derive(Deserialize)]
pub(crate) struct Part {
    pub(crate) text: Option<String>,
    pub(crate) refusal: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize, Default)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

impl From<&WireUsage> for TokenUsage {
    fn from(usage: &WireUsage) -> Self {
        let cached = usage.input_tokens_details.as_ref().and_then(|it| it.cached_tokens);
        Self {
            input_tokens: usage.input_tokens.unwrap_or_default(),
            output_tokens: usage.output_tokens.unwrap_or_default(),
            cached_tokens: cached.unwrap_or_default(),
        }
    }
}

/// Reads a whole answer. Only usage goes to the sink: nobody waits for text that is there at once.
pub(crate) async fn read(
    endpoint: &Endpoint,
    answer: Answer<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let retry_after = answer.retry_after();
    // An answer that failed names its error, which this returns.
    let response: WireResponse = answer.json().await?;
    Draft::new(sink).take_usage(&response);
    let ending = response.ending(endpoint, retry_after)?;
    let mut draft = Draft::new(None);
    draft.take_usage(&response);
    for (at, item) in (0..).zip(response.output.unwrap_or_default()) {
        draft.take_item(at, item);
    }
    Ok(draft.finish(endpoint, ending))
}

impl WireResponse {
    /// Says why the answer stopped, or why it is none.
    pub(crate) fn ending(
        &self,
        endpoint: &Endpoint,
        retry_after: Option<Duration>,
    ) -> Result<StopReason, ProviderError> {
        let unknown = |what: &str, it: &str| {
            Err(endpoint.invalid_response(&format!("unknown {what}: `{it}`")))
        };
        let reason = self.incomplete_details.as_ref().and_then(|it| it.reason.as_deref());
        match self.status.as_deref() {
            Some("completed") => Ok(StopReason::End),
            Some("incomplete") => match reason {
                Some("max_output_tokens" | "max_messages") => Ok(StopReason::MaxTokens),
                Some("content_filter") => Ok(StopReason::ContentFilter),
                // Somebody else's words came between; sent again, the conversation goes on.
                Some("steered") => Ok(StopReason::Pause),
                reason => unknown("reason of an incomplete answer", reason.unwrap_or("none")),
            },
            Some("failed") => Err(endpoint.failure(json!({ "error": self.error }), retry_after)),
            Some("cancelled") => {
                Err(Class::Cancelled.into_error(None, "the answer was cancelled", None))
            }
            Some("in_progress" | "queued") | None => {
                Err(ProviderError::stream_truncated("a final status"))
            }
            Some(status) => unknown("status", status),
        }
    }
}
