use std::time::Duration;

use backstop_provider::{ProviderError, TimeoutPhase};
use layer0::error::BoxError;

/// What a failure on the wire is: the variants of [`ProviderError`] that a table can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// [`ProviderError::AuthFailed`]
    AuthFailed,
    /// The provider says that the caller went away: [`ProviderError::Other`]
    Cancelled,
    /// [`ProviderError::ContentBlocked`]
    ContentBlocked,
    /// [`ProviderError::ContextOverflow`]
    ContextOverflow,
    /// [`ProviderError::InvalidRequest`]
    InvalidRequest,
    /// What the model itself wrote cannot be read, which [`HttpProvider`](crate::HttpProvider) answers with
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
    /// Makes the error, with what the provider said and the wait it asked for.
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
