use backstop_provider::{ModelResponse, ProviderError, StreamSink};
use layer0::JsonText;
use layer0::message::{ProviderState, StatePart, StopReason};
use layer0::usage::TokenUsage;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::decode::from_slice;
use crate::endpoint::{Endpoint, Head};
use crate::error_body::{is_failure, states_something};
use crate::framing::FrameError;

/// An answer that is being read: where it comes from, and who listens.
#[derive(Clone, Copy)]
pub struct Reply<'r> {
    endpoint: &'r Endpoint,
    head: &'r Head,
    sink: Option<&'r dyn StreamSink>,
    /// Is what it says told as it comes? In one piece, it is told once it is known to be an answer.
    is_live: bool,
}

impl<'r> Reply<'r> {
    pub(crate) const fn new(
        endpoint: &'r Endpoint,
        head: &'r Head,
        sink: Option<&'r dyn StreamSink>,
    ) -> Self {
        Self { endpoint, head, sink, is_live: true }
    }

    /// Returns the same, with a listener that hears of usage alone.
    pub(crate) const fn in_one_piece(self) -> Self {
        Self { is_live: false, ..self }
    }

    /// Decodes JSON that is here as a whole, such as the data of an event.
    ///
    /// # Errors
    ///
    /// Whatever a failure in it is; [`ProviderError::InvalidResponse`] when it is not JSON, not what
    /// was expected, or ends early: what follows it shows that nothing was cut.
    pub fn decode<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, ProviderError> {
        self.read(json)?.map_err(|error| self.unexpected(&error))
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
                self.unexpected(&error)
            }
        })
    }

    /// Decodes JSON, unless it is a failure.
    fn read<T: DeserializeOwned>(
        &self,
        json: &[u8],
    ) -> Result<serde_json::Result<T>, ProviderError> {
        // Failures are rare, so only what names one is read twice.
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

    fn unexpected(&self, error: &serde_json::Error) -> ProviderError {
        self.invalid_response(&format!("not the expected JSON: {error}"))
    }

    /// Says what a failure inside a 200 is.
    #[must_use]
    pub fn failure(&self, body: Value) -> ProviderError {
        self.endpoint.failure(body, self.head)
    }

    /// Makes [`ProviderError::InvalidResponse`], with words that may come from outside.
    #[must_use]
    pub fn invalid_response(&self, why: &str) -> ProviderError {
        self.endpoint.invalid_response(why)
    }

    pub(crate) fn unframed(&self, error: FrameError) -> ProviderError {
        match error {
            FrameError::Invalid(why) => self.invalid_response(&why),
            FrameError::Truncated(missing) => ProviderError::stream_truncated(missing),
        }
    }

    /// Makes [`StopReason::Unknown`] of a provider's word for why it stopped; the reason itself,
    /// where the word is one of ours.
    ///
    /// # Errors
    ///
    /// [`ProviderError::TransientError`] where the word says that the provider failed, such as `error` or
    /// `insufficient_system_resource`: the answer is not whole, and may come if it is asked for again.
    pub fn unknown_stop(&self, word: &str) -> Result<StopReason, ProviderError> {
        self.endpoint.unknown_stop(word)
    }

    /// Refuses what is beside an error that states something.
    ///
    /// # Errors
    ///
    /// Whatever the error is.
    pub fn refuse_failure(&self, error: Option<Value>) -> Result<(), ProviderError> {
        match error.filter(states_something) {
            Some(error) => Err(self.failure(error)),
            None => Ok(()),
        }
    }

    /// Tells the listener a piece of text, unless it is empty.
    pub fn tell_text(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| self.is_live && !piece.is_empty()) {
            sink.text(piece);
        }
    }

    /// Tells the listener a piece of thinking, unless it is empty.
    pub fn tell_thinking(&self, piece: &str) {
        if let Some(sink) = self.sink.filter(|_| self.is_live && !piece.is_empty()) {
            sink.thinking(piece);
        }
    }

    /// Tells the listener what was billed so far.
    pub fn tell_usage(&self, usage: TokenUsage) {
        if let Some(sink) = self.sink {
            sink.usage(usage);
        }
    }

    /// Tells the listener an answer that came in one piece. Its usage was told before.
    pub(crate) fn tell_whole(&self, response: &ModelResponse) {
        self.tell_thinking(response.thinking.as_deref().unwrap_or_default());
        self.tell_text(&response.text);
    }

    /// Makes what an answer of this provider and model wants back; `None` of no parts.
    pub(crate) fn state_of(&self, parts: Vec<StatePart>) -> Option<ProviderState> {
        self.endpoint.state_of(parts)
    }
}
