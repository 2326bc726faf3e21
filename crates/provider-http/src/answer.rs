use std::time::Duration;

use bytes::Bytes;
use provider::{ModelResponse, ProviderError, StreamSink, TimeoutPhase};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::said::{is_failure, looks_like_html};
use crate::{Endpoint, Events, Lines, MAX_ANSWER_BYTES};

/// An answer whose head said success. Its body may still be a failure.
#[derive(Debug)]
pub struct Answer<'e> {
    pub(crate) endpoint: &'e Endpoint,
    response: Response,
    retry_after: Option<Duration>,
}

impl<'e> Answer<'e> {
    pub(crate) const fn new(
        endpoint: &'e Endpoint,
        response: Response,
        retry_after: Option<Duration>,
    ) -> Self {
        Self { endpoint, response, retry_after }
    }

    /// Returns the wait that the head of the answer asked for.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Is the body a stream of events? JSON and HTML are not, whatever was asked for.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        !self.has_content_type("application/json") && !self.has_content_type("text/html")
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// As [`Answer::events`]; [`ProviderError::StreamTruncated`] when the JSON ends early;
    /// [`ProviderError::InvalidResponse`] when it is HTML, no JSON, not what was expected, or too
    /// large; whatever a failure in the body is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn json<T: DeserializeOwned>(mut self) -> Result<T, ProviderError> {
        let is_html = self.has_content_type("text/html");
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                let why = format!("answer is larger than {MAX_ANSWER_BYTES} bytes");
                return Err(self.endpoint.invalid_response(&why));
            }
            body.extend_from_slice(&chunk);
        }
        if is_html || looks_like_html(&body) {
            return Err(self.endpoint.invalid_response("an HTML page instead of JSON"));
        }
        self.endpoint.decode(&body, self.retry_after)
    }

    /// Reads the body as server-sent events.
    #[must_use]
    pub fn events(self) -> Events<'e> {
        Events::new(self)
    }

    /// Reads the body as JSON values, one on each line.
    #[must_use]
    pub fn lines(self) -> Lines<'e> {
        Lines::new(self)
    }

    /// Waits for the next piece of the body, wherever it was split; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamInterrupted`] when the connection breaks, [`ProviderError::Timeout`]
    /// when nothing comes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no piece.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let idle = self.endpoint.timeouts().idle;
        self.endpoint
            .within(idle, TimeoutPhase::Idle, self.response.chunk())
            .await?
            .map_err(|error| ProviderError::stream_interrupted(error.without_url()))
    }

    fn has_content_type(&self, expected: &str) -> bool {
        let value = self.response.headers().get(CONTENT_TYPE);
        let kind = value.and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
        kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(expected.as_bytes()))
    }
}

/// Tells somebody who waits for a stream an answer that came whole. Its usage was told before.
pub fn read_aloud(response: &ModelResponse, sink: Option<&dyn StreamSink>) {
    let Some(sink) = sink else { return };
    if let Some(thinking) = &response.thinking {
        sink.thinking(thinking);
    }
    if !response.text.is_empty() {
        sink.text(&response.text);
    }
}

impl Endpoint {
    /// Decodes JSON that a provider sent with a 200: a body or the data of an event.
    ///
    /// # Errors
    ///
    /// As [`Answer::json`].
    pub fn decode<T: DeserializeOwned>(
        &self,
        json: &[u8],
        retry_after: Option<Duration>,
    ) -> Result<T, ProviderError> {
        // Failures are rare, so only what names one is read twice.
        if memchr::memmem::find(json, br#""error""#).is_some()
            && let Ok(body) = serde_json::from_slice::<Value>(json)
            && is_failure(&body)
        {
            return Err(self.failure(body, retry_after));
        }
        serde_json::from_slice(json).map_err(|error| {
            if error.is_eof() {
                ProviderError::stream_truncated("the end of the JSON")
            } else {
                self.invalid_response(&format!("not the expected JSON: {error}"))
            }
        })
    }
}
