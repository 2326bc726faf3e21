mod facts;

pub use facts::facts_by_code;

use std::fmt;
use std::time::Duration;

use layer0::error::BoxError;
use layer0::failure::{ErrorText, Failure, InnerError, Seconds, chain};
use layer0::text;
use thiserror::Error;

use crate::timeout::TimeoutPhase;

/// The reason a model call failed.
///
/// `InvalidResponse` is retryable because a proxy's HTML page or a garbled body is reported as it;
/// a well-formed answer that is useless to the loop is requested again by the loop, not by the
/// retry layer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The key is missing, wrong or not allowed to do this.
    ///
    /// Retry: never. Effect: none.
    #[error("authentication failed: {0}")]
    AuthFailed(String),
    /// The breaker around the endpoint is open.
    ///
    /// Retry: after the hint, else with backoff. Effect: none.
    #[error("circuit is open")]
    #[non_exhaustive]
    CircuitOpen {
        /// The time until the next probe.
        retry_after: Option<Duration>,
        /// The failure of the last call made, in this run or in another one.
        #[source]
        last: Option<ErrorText>,
    },
    /// The provider's safety system blocked the request or the answer.
    ///
    /// Retry: never. Effect: none.
    #[error("content blocked: {message}")]
    #[non_exhaustive]
    ContentBlocked {
        /// The provider's message.
        message: String,
    },
    /// The conversation is longer than the model's context.
    ///
    /// Retry: never. Effect: none.
    #[error("{}", text::context_overflow(message))]
    #[non_exhaustive]
    ContextOverflow {
        /// The provider's message.
        message: String,
    },
    /// The retry layer gave up.
    ///
    /// Retry: never. Effect: as the last error says.
    #[error("{}", text::gave_up(*attempts))]
    #[non_exhaustive]
    Exhausted {
        /// The number of attempts.
        attempts: u32,
        /// The duration of all attempts and the delays between them.
        elapsed: Duration,
        /// The failure of the last attempt.
        #[source]
        last: InnerError<ProviderError>,
    },
    /// The provider refused the request as malformed.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid request: {message}")]
    #[non_exhaustive]
    InvalidRequest {
        /// The provider's message.
        message: String,
        /// The HTTP status.
        status: Option<u16>,
    },
    /// The response could not be decoded.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("{}", text::invalid_response(_0))]
    InvalidResponse(String),
    /// The provider does not know the model or the path.
    ///
    /// Retry: never. Effect: none.
    #[error("not found: {message}")]
    #[non_exhaustive]
    NotFound {
        /// The provider's message.
        message: String,
        /// Advice for a fix, if known.
        hint: Option<Box<str>>,
    },
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("provider failed in an unclassified way")]
    Other(#[from] BoxError),
    /// The quota, credit or spend limit is used up.
    ///
    /// Retry: never. Effect: none.
    #[error("quota exhausted: {message}")]
    #[non_exhaustive]
    QuotaExhausted {
        /// The provider's message.
        message: String,
    },
    /// The provider limited the request rate.
    ///
    /// Retry: after the hint, else with backoff. Effect: none.
    #[error("rate limited: {message}")]
    #[non_exhaustive]
    RateLimited {
        /// The provider's message.
        message: String,
        /// The requested retry delay.
        retry_after: Option<Duration>,
    },
    /// Several endpoints or providers failed. The failure that passes first represents them all.
    ///
    /// Retry: as the failure says. Effect: as the failure says.
    #[error("{}", **failure)]
    #[non_exhaustive]
    Several {
        /// The failure that passes first, or the last one if none passes.
        failure: InnerError<ProviderError>,
        /// The causes of `failure`, then the other failures with theirs.
        #[source]
        others: ErrorText,
    },
    /// The connection broke within the response stream.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("stream interrupted")]
    #[non_exhaustive]
    StreamInterrupted {
        /// The transport's error.
        source: BoxError,
    },
    /// The stream ended without its end marker.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("stream ended before {expected}")]
    #[non_exhaustive]
    StreamTruncated {
        /// The marker that was missing.
        expected: &'static str,
    },
    /// A phase of the call took too long.
    ///
    /// Retry: after the hint, else with backoff. Effect: unknown, none while connecting.
    #[error("timed out {phase}{}", After(*after))]
    #[non_exhaustive]
    Timeout {
        /// The phase.
        phase: TimeoutPhase,
        /// The limit, unless it is the provider's own.
        after: Option<Duration>,
        /// The requested retry delay, if the provider's limit caused the timeout.
        retry_after: Option<Duration>,
        /// Advice for a fix, if known.
        hint: Option<Box<str>>,
    },
    /// A transient failure: overload, a 5xx status, or a lost connection.
    ///
    /// Retry: after the hint, else with backoff. Effect: unknown.
    #[error("{message}")]
    #[non_exhaustive]
    TransientError {
        /// The message of the provider or the transport.
        message: Box<str>,
        /// The HTTP status.
        status: Option<u16>,
        /// The requested retry delay, in milliseconds, if any.
        retry_after_ms: Option<u32>,
        /// The transport's error.
        source: Option<BoxError>,
        /// Advice for a fix, if known.
        hint: Option<Box<str>>,
    },
}

struct After(Option<Duration>);

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |after| write!(f, " after {}", Seconds(after)))
    }
}

impl ProviderError {
    /// Makes [`ProviderError::ContentBlocked`].
    pub fn content_blocked(message: impl Into<String>) -> Self {
        Self::ContentBlocked { message: message.into() }
    }

    /// Makes [`ProviderError::ContextOverflow`].
    pub fn context_overflow(message: impl Into<String>) -> Self {
        Self::ContextOverflow { message: message.into() }
    }

    /// Makes [`ProviderError::CircuitOpen`].
    #[must_use]
    pub const fn circuit_open(retry_after: Option<Duration>) -> Self {
        Self::CircuitOpen { retry_after, last: None }
    }

    /// Makes [`ProviderError::InvalidRequest`].
    pub fn invalid_request(message: impl Into<String>, status: Option<u16>) -> Self {
        Self::InvalidRequest { message: message.into(), status }
    }

    /// Makes [`ProviderError::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound { message: message.into(), hint: None }
    }

    /// Makes [`ProviderError::QuotaExhausted`].
    pub fn quota_exhausted(message: impl Into<String>) -> Self {
        Self::QuotaExhausted { message: message.into() }
    }

    /// Makes [`ProviderError::RateLimited`].
    pub fn rate_limited(message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        Self::RateLimited { message: message.into(), retry_after }
    }

    /// Makes [`ProviderError::StreamInterrupted`].
    pub fn stream_interrupted(source: impl Into<BoxError>) -> Self {
        Self::StreamInterrupted { source: source.into() }
    }

    /// Makes [`ProviderError::StreamTruncated`] with the missing marker.
    #[must_use]
    pub const fn stream_truncated(expected: &'static str) -> Self {
        Self::StreamTruncated { expected }
    }

    /// Makes [`ProviderError::Timeout`].
    #[must_use]
    pub const fn timeout(phase: TimeoutPhase, after: Option<Duration>) -> Self {
        Self::Timeout { phase, after, retry_after: None, hint: None }
    }

    /// Makes [`ProviderError::TransientError`] without a cause.
    pub fn transient(message: impl Into<Box<str>>, status: Option<u16>) -> Self {
        Self::TransientError {
            message: message.into(),
            status,
            retry_after_ms: None,
            source: None,
            hint: None,
        }
    }

    /// Makes [`ProviderError::TransientError`] from the transport's error.
    pub fn transport(message: impl Into<Box<str>>, source: impl Into<BoxError>) -> Self {
        Self::TransientError {
            message: message.into(),
            status: None,
            retry_after_ms: None,
            source: Some(source.into()),
            hint: None,
        }
    }

    /// Sets the retry delay that the provider requested, in the variants that carry one.
    #[must_use]
    pub fn with_retry_after(mut self, hint: Option<Duration>) -> Self {
        match &mut self {
            Self::RateLimited { retry_after, .. }
            | Self::CircuitOpen { retry_after, .. }
            | Self::Timeout { retry_after, .. } => {
                *retry_after = hint;
            }
            Self::TransientError { retry_after_ms, .. } => {
                *retry_after_ms =
                    hint.map(|hint| u32::try_from(hint.as_millis()).unwrap_or(u32::MAX));
            }
            Self::Several { failure, .. } => {
                let inner = std::mem::replace(&mut **failure, Self::InvalidResponse(String::new()));
                **failure = inner.with_retry_after(hint);
            }
            Self::AuthFailed(_)
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::Exhausted { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidResponse(_)
            | Self::NotFound { .. }
            | Self::Other(_)
            | Self::QuotaExhausted { .. }
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. } => {}
        }
        self
    }

    /// Adds advice for a person, in the variants that carry it: [`ProviderError::NotFound`],
    /// [`ProviderError::Timeout`], [`ProviderError::TransientError`]. It must not contain secrets.
    #[must_use]
    pub fn with_hint(mut self, advice: impl Into<Box<str>>) -> Self {
        if let Self::NotFound { hint, .. }
        | Self::Timeout { hint, .. }
        | Self::TransientError { hint, .. } = &mut self
        {
            *hint = Some(advice.into());
        }
        self
    }

    /// Adds the failure of another provider to the end of the chain.
    pub fn keep_earlier(&mut self, earlier: &ErrorText) {
        self.keep_other("another provider failed before", earlier);
    }

    /// Adds the failure of another endpoint of the same model to the end of the chain.
    pub fn keep_beside(&mut self, other: &ErrorText) {
        self.keep_other("another endpoint failed", other);
    }

    fn keep_other(&mut self, link: &str, other: &ErrorText) {
        let added = || std::iter::once(link.to_owned()).chain(chain(other));
        match self {
            Self::CircuitOpen { last, .. } if last.is_none() => *last = Some(other.clone()),
            Self::CircuitOpen { last, .. } => {
                let texts = last.iter().flat_map(|last| chain(last)).chain(added());
                *last = ErrorText::from_chain(texts.collect::<Vec<_>>());
            }
            Self::Exhausted { last, .. } => last.keep_other(link, other),
            _ => {
                let texts: Vec<String> =
                    chain(self).split_off(1).into_iter().chain(added()).collect();
                let others = ErrorText::from_chain(texts).unwrap_or_default();
                let failure = match std::mem::replace(self, Self::InvalidResponse(String::new())) {
                    Self::Several { failure, .. } => failure,
                    failure => failure.into(),
                };
                *self = Self::Several { failure, others };
            }
        }
    }

    /// Returns the HTTP status, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::InvalidRequest { status, .. } | Self::TransientError { status, .. } => *status,
            Self::Exhausted { last, .. } => last.status(),
            Self::Several { failure, .. } => failure.status(),
            Self::RateLimited { .. } => Some(429),
            Self::AuthFailed(_)
            | Self::CircuitOpen { .. }
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidResponse(_)
            | Self::NotFound { .. }
            | Self::Other(_)
            | Self::QuotaExhausted { .. }
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. }
            | Self::Timeout { .. } => None,
        }
    }

    /// Returns whether another attempt now, with backoff, can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }
}
