use std::time::Duration;

use backstop_provider::{ProviderError, TimeoutPhase};
use layer0::error::BoxError;

/// The class of a failure: the variants of [`ProviderError`] that a table can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// [`ProviderError::AuthFailed`]
    AuthFailed,
    /// [`ProviderError::Other`], as the provider reports that the client closed the request
    Cancelled,
    /// [`ProviderError::ContentBlocked`]
    ContentBlocked,
    /// [`ProviderError::ContextOverflow`]
    ContextOverflow,
    /// [`ProviderError::InvalidRequest`]
    InvalidRequest,
    /// Malformed output of the model, which [`HttpProvider`](crate::HttpProvider) returns as
    /// [`StopReason::Malformed`](layer0::message::StopReason::Malformed)
    Malformed,
    /// [`ProviderError::NotFound`]
    NotFound,
    /// [`ProviderError::QuotaExhausted`]
    QuotaExhausted,
    /// [`ProviderError::RateLimited`]
    RateLimited,
    /// [`ProviderError::Timeout`], at the provider
    Timeout,
    /// [`ProviderError::TransientError`]
    Transient,
}

impl Class {
    /// Makes the error, with the provider's message and the retry delay it requested.
    #[must_use]
    pub fn into_error(
        self,
        status: Option<u16>,
        message: &str,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let message = match (message, status) {
            ("", Some(status)) => format!("status {status} without a message"),
            ("", None) => "an error without a message".to_owned(),
            (message, _) => message.to_owned(),
        };
        match self {
            Self::AuthFailed => ProviderError::AuthFailed(message),
            Self::Cancelled => ProviderError::Other(BoxError::from(message)),
            Self::ContentBlocked => ProviderError::content_blocked(message),
            Self::ContextOverflow => ProviderError::context_overflow(message),
            Self::InvalidRequest => ProviderError::invalid_request(message, status),
            Self::Malformed => ProviderError::InvalidResponse(message),
            Self::NotFound => ProviderError::not_found(message),
            Self::QuotaExhausted => ProviderError::quota_exhausted(message),
            Self::RateLimited => ProviderError::rate_limited(message, retry_after),
            Self::Timeout => {
                ProviderError::timeout(TimeoutPhase::Upstream, None).with_retry_after(retry_after)
            }
            Self::Transient => {
                let text = match status {
                    Some(status) => format!("provider failed with status {status}: {message}"),
                    None => format!("provider failed: {message}"),
                };
                ProviderError::transient(text, status).with_retry_after(retry_after)
            }
        }
    }
}
