//! The facts of each provider failure, and its conversions.

use std::borrow::Cow;
use std::time::Duration;

use layer0::code;
use layer0::error::OperatorError;
use layer0::failure::{CircuitOpen, Effect, Elsewhere, Exhausted, Facts, Failure, Retry, TimedOut};

use crate::timeout::TimeoutPhase;
use crate::{ProviderError, ScriptExhausted};

impl Failure for ProviderError {
    fn facts(&self) -> Facts {
        match self {
            Self::AuthFailed(_) => {
                Facts::never(code::PROVIDER_AUTH_FAILED, Effect::None).with_beside(true)
            }
            Self::CircuitOpen { retry_after, .. } => {
                Facts::from_hint(code::PROVIDER_CIRCUIT_OPEN, *retry_after, Effect::None)
                    .with_elsewhere(Elsewhere::AtOnce)
                    .with_counts_against(false)
                    .with_beside(true)
                    .with_sent(false)
            }
            Self::ContentBlocked { .. } => {
                Facts::never(code::PROVIDER_CONTENT_BLOCKED, Effect::None)
            }
            Self::ContextOverflow { .. } => {
                Facts::never(code::PROVIDER_CONTEXT_OVERFLOW, Effect::None)
                    .with_elsewhere(Elsewhere::AtOnce)
            }
            Self::Exhausted { last, .. } => last.facts().with_retry(Retry::Never),
            Self::InvalidRequest { .. } => {
                Facts::never(code::PROVIDER_INVALID_REQUEST, Effect::None)
            }
            Self::InvalidResponse(_) => {
                Facts::backoff(code::PROVIDER_INVALID_RESPONSE, Effect::Unknown)
            }
            Self::NotFound { .. } => {
                Facts::never(code::PROVIDER_NOT_FOUND, Effect::None).with_beside(true)
            }
            Self::Other(_) => Facts::never(code::PROVIDER_OTHER, Effect::Unknown),
            Self::QuotaExhausted { .. } => {
                Facts::never(code::PROVIDER_QUOTA_EXHAUSTED, Effect::None)
                    .with_elsewhere(Elsewhere::AtOnce)
                    .with_beside(true)
            }
            Self::RateLimited { retry_after, .. } => {
                Facts::from_hint(code::PROVIDER_RATE_LIMITED, *retry_after, Effect::None)
                    .with_counts_against(false)
                    .with_beside(true)
            }
            Self::Several { failure, .. } => failure.facts(),
            Self::StreamInterrupted { .. } => {
                Facts::backoff(code::PROVIDER_STREAM_INTERRUPTED, Effect::Unknown)
            }
            Self::StreamTruncated { .. } => {
                Facts::backoff(code::PROVIDER_STREAM_TRUNCATED, Effect::Unknown)
            }
            Self::Timeout { phase: TimeoutPhase::Connect, retry_after, .. } => {
                Facts::from_hint(code::PROVIDER_TIMEOUT, *retry_after, Effect::None)
            }
            Self::Timeout { retry_after, .. } => {
                Facts::from_hint(code::PROVIDER_TIMEOUT, *retry_after, Effect::Unknown)
            }
            Self::TransientError { retry_after_ms, .. } => {
                let hint = retry_after_ms.map(|ms| Duration::from_millis(ms.into()));
                // An endpoint with a retry delay gets no requests until then.
                Facts::from_hint(code::PROVIDER_TRANSIENT, hint, Effect::Unknown)
                    .with_beside(hint.is_some())
            }
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Exhausted { last, .. } => last.hint(),
            Self::Several { failure, .. } => failure.hint(),
            Self::NotFound { hint, .. }
            | Self::Timeout { hint, .. }
            | Self::TransientError { hint, .. } => hint.as_deref().map(Into::into),
            Self::Other(error) if error.is::<ScriptExhausted>() => {
                Some("add an answer to the script".into())
            }
            Self::AuthFailed(_)
            | Self::CircuitOpen { .. }
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidResponse(_)
            | Self::Other(_)
            | Self::QuotaExhausted { .. }
            | Self::RateLimited { .. }
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. } => None,
        }
    }
}

/// Returns the facts of a failure known by its code alone, which is not retried and has no retry
/// delay. `None` for a code that is not a provider's.
#[must_use]
pub fn facts_by_code(code: &str) -> Option<Facts> {
    let word = String::new;
    let one_of_each = [
        ProviderError::AuthFailed(word()),
        ProviderError::circuit_open(None),
        ProviderError::content_blocked(word()),
        ProviderError::context_overflow(word()),
        ProviderError::invalid_request(word(), None),
        ProviderError::InvalidResponse(word()),
        ProviderError::not_found(word()),
        ProviderError::Other(word().into()),
        ProviderError::quota_exhausted(word()),
        ProviderError::rate_limited(word(), None),
        ProviderError::stream_interrupted(word()),
        ProviderError::stream_truncated(""),
        ProviderError::timeout(TimeoutPhase::Attempt, None),
        ProviderError::transient(word(), None),
    ];
    let mut rows = one_of_each.iter().map(Failure::facts);
    rows.find(|facts| facts.code == code).map(|facts| facts.with_retry(Retry::Never))
}

impl From<Exhausted<ProviderError>> for ProviderError {
    fn from(exhausted: Exhausted<ProviderError>) -> Self {
        Self::Exhausted {
            attempts: exhausted.attempts,
            elapsed: exhausted.elapsed,
            last: exhausted.last.into(),
        }
    }
}

impl From<TimedOut> for ProviderError {
    fn from(timed_out: TimedOut) -> Self {
        Self::timeout(TimeoutPhase::Attempt, Some(timed_out.after))
    }
}

impl From<CircuitOpen> for ProviderError {
    fn from(open: CircuitOpen) -> Self {
        Self::CircuitOpen { retry_after: Some(open.retry_after), last: open.last }
    }
}

impl From<ProviderError> for OperatorError {
    fn from(error: ProviderError) -> Self {
        Self::model(error)
    }
}
