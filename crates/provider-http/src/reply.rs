use backstop_provider::{ModelResponse, ProviderError, StreamSink};
use layer0::JsonText;
use layer0::message::{ProviderState, StatePart, StopReason};
use layer0::usage::TokenUsage;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::decode::from_slice;
use crate::endpoint::{Endpoint, ResponseHead};
use crate::error_body::{is_failure, states_something};
use crate::framing::FrameError;

/// A response that is being decoded, with its endpoint and its listener.
#[derive(Clone, Copy)]
pub struct Reply<'r> {
    endpoint: &'r Endpoint,
    head: &'r ResponseHead,
    sink: Option<&'r dyn StreamSink>,
    /// Whether output is streamed as it is received. A whole response is streamed once it is known
    /// to be an answer.
    is_live: bool,
}

impl<'r> Reply<'r> {
    pub(crate) const fn new(
        endpoint: &'r Endpoint,
        head: &'r ResponseHead,
        sink: Option<&'r dyn StreamSink>,
    ) -> Self {
        Self { endpoint, head, sink, is_live: true }
    }

    /// Returns the same reply, with a listener that only receives usage.
    pub(crate) const fn in_one_piece(self) -> Self {
        Self { is_live: false, ..self }
    }

    /// Decodes JSON that is complete, such as the data of an event.
    ///
    /// # Errors
    ///
    /// The class of a failure in it; [`ProviderError::InvalidResponse`] when it is not JSON, not
    /// the expected JSON, or ends early: as more data follows, nothing was cut off.
    pub fn decode<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, ProviderError> {
        self.read(json)?.map_err(|error| self.json_error(&error))
    }

    /// Decodes JSON that the end of the body may have cut off.
    ///
    /// # Errors
    ///
    /// As [`Reply::decode`], and [`ProviderError::StreamTruncated`] when it ends early.
    pub(crate) fn decode_last<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, ProviderError> {
        self.read(json)?.map_err(|error| {
            if error.is_eof() {
                ProviderError::stream_truncated("the end of the JSON")
            } else {
                self.json_error(&error)
            }
        })
    }

    /// Decodes JSON, unless it is a failure.
    fn read<T: DeserializeOwned>(
        &self,
        json: &[u8],
    ) -> Result<serde_json::Result<T>, ProviderError> {
        // Failures are rare, so only JSON that names one is decoded twice.
        let names_one = |name: &str| memchr::memmem::find(json, name.as_bytes()).is_some();
        if (names_one(r#""error""#) || names_one(r#""base_resp""#))
            && let Ok(body) = from_slice::<JsonText>(json)
            && let body = body.value()
            && is_failure(&body)
        {
            return Err(self.failure(body));
        }
        Ok(from_slice(json))
    }

    fn json_error(&self, error: &serde_json::Error) -> ProviderError {
        self.invalid_response(&format!("not the expected JSON: {error}"))
    }

    /// Classifies a failure inside a 200.
    #[must_use]
    pub fn failure(&self, body: Value) -> ProviderError {
        self.endpoint.failure(body, self.head)
    }

    /// Makes [`ProviderError::InvalidResponse`] with text that may come from outside.
    #[must_use]
    pub fn invalid_response(&self, why: &str) -> ProviderError {
        self.endpoint.invalid_response(why)
    }

    pub(crate) fn frame_error(&self, error: FrameError) -> ProviderError {
        match error {
            FrameError::Invalid(why) => self.invalid_response(&why),
            FrameError::Truncated(missing) => ProviderError::stream_truncated(missing),
        }
    }

    /// Maps a provider's own stop word: to [`StopReason::Unknown`], or to the reason it names if it
    /// is one of ours.
    ///
    /// # Errors
    ///
    /// [`ProviderError::TransientError`] if the word means that the provider failed, such as
    /// `error` or `insufficient_system_resource`: the answer is not complete, and a retry may
    /// return it.
    pub fn unknown_stop(&self, word: &str) -> Result<StopReason, ProviderError> {
        self.endpoint.unknown_stop(word)
    }

    /// Fails if the error field of a response has content.
    ///
    /// # Errors
    ///
    /// The class of the error.
    pub fn refuse_failure(&self, error: Option<Value>) -> Result<(), ProviderError> {
        match error.filter(states_something) {
            Some(error) => Err(self.failure(error)),
            None => Ok(()),
        }
    }

    /// Streams a piece of text, unless it is empty.
    pub fn tell_text(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| self.is_live && !piece.is_empty()) {
            sink.text(piece);
        }
    }

    /// Streams a piece of thinking, unless it is empty.
    pub fn tell_thinking(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| self.is_live && !piece.is_empty()) {
            sink.thinking(piece);
        }
    }

    /// Streams the tokens billed so far.
    pub fn tell_usage(&self, usage: TokenUsage) {
        if let Some(sink) = self.sink {
            sink.usage(usage);
        }
    }

    /// Streams a whole response. Its usage was streamed before.
    pub(crate) fn tell_whole(&self, response: &ModelResponse) {
        self.tell_thinking(response.thinking.as_deref().unwrap_or_default());
        self.tell_text(&response.text);
    }

    /// Makes the provider state of an answer of this provider and model; `None` without parts.
    pub(crate) fn make_provider_state(&self, parts: Vec<StatePart>) -> Option<ProviderState> {
        self.endpoint.make_provider_state(parts)
    }
}
