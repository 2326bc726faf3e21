//! What each failure of a provider states, and what it is made of and becomes.

use std::borrow::Cow;
use std::time::Duration;

use layer0::code;
use layer0::error::OperatorError;
use layer0::failure::{CircuitOpen, Effect, Exhausted, Failure, GiveUp, Retry, TimedOut};

use crate::ProviderError;
use crate::timeout::TimeoutPhase;

impl Failure for ProviderError {
    fn code(&self) -> &'static str {
        match self {
            Self::AuthFailed(_) => code::PROVIDER_AUTH_FAILED,
            Self::CircuitOpen { .. } => code::PROVIDER_CIRCUIT_OPEN,
            Self::ContentBlocked { .. } => code::PROVIDER_CONTENT_BLOCKED,
            Self::ContextOverflow { .. } => code::PROVIDER_CONTEXT_OVERFLOW,
            Self::Exhausted { last, .. } => last.code(),
            Self::InvalidRequest { .. } => code::PROVIDER_INVALID_REQUEST,
            Self::InvalidResponse(_) => code::PROVIDER_INVALID_RESPONSE,
            Self::NotFound { .. } => code::PROVIDER_NOT_FOUND,
            Self::Other(_) => code::PROVIDER_OTHER,
            Self::QuotaExhausted { .. } => code::PROVIDER_QUOTA_EXHAUSTED,
            Self::RateLimited { .. } => code::PROVIDER_RATE_LIMITED,
            Self::StreamInterrupted { .. } => code::PROVIDER_STREAM_INTERRUPTED,
            Self::StreamTruncated { .. } => code::PROVIDER_STREAM_TRUNCATED,
            Self::Timeout { .. } => code::PROVIDER_TIMEOUT,
            Self::TransientError { .. } => code::PROVIDER_TRANSIENT,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::CircuitOpen { retry_after, .. }
            | Self::RateLimited { retry_after, .. }
            | Self::Timeout { retry_after, .. } => Retry::hinted(*retry_after),
            Self::TransientError { retry_after_ms, .. } => {
                Retry::hinted(retry_after_ms.map(|ms| Duration::from_millis(ms.into())))
            }
            Self::InvalidResponse(_)
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. } => Retry::Backoff,
            Self::AuthFailed(_)
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::Exhausted { .. }
            | Self::InvalidRequest { .. }
            | Self::NotFound { .. }
            | Self::Other(_)
            | Self::QuotaExhausted { .. } => Retry::Never,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Exhausted { last, .. } => last.effect(),
            Self::Timeout { phase: TimeoutPhase::Connect, .. }
            | Self::AuthFailed(_)
            | Self::CircuitOpen { .. }
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidRequest { .. }
            | Self::NotFound { .. }
            | Self::QuotaExhausted { .. }
            | Self::RateLimited { .. } => Effect::None,
            Self::InvalidResponse(_)
            | Self::Other(_)
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. }
            | Self::Timeout { .. }
            | Self::TransientError { .. } => Effect::Unknown,
        }
    }

    fn elsewhere(&self) -> bool {
        match self {
            Self::Exhausted { last, .. } => last.elsewhere(),
            // Refused here: another provider may have room, quota or a longer context.
            Self::CircuitOpen { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidResponse(_)
            | Self::QuotaExhausted { .. }
            | Self::RateLimited { .. }
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. }
            | Self::Timeout { .. }
            | Self::TransientError { .. } => true,
            Self::AuthFailed(_)
            | Self::ContentBlocked { .. }
            | Self::InvalidRequest { .. }
            | Self::NotFound { .. }
            | Self::Other(_) => false,
        }
    }

    fn counts_against(&self) -> bool {
        match self {
            Self::Exhausted { last, .. } => last.counts_against(),
            Self::InvalidResponse(_)
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. }
            | Self::Timeout { .. }
            | Self::TransientError { .. } => true,
            // It answered, or was not asked.
            Self::AuthFailed(_)
            | Self::CircuitOpen { .. }
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidRequest { .. }
            | Self::NotFound { .. }
            | Self::Other(_)
            | Self::QuotaExhausted { .. }
            | Self::RateLimited { .. } => false,
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Exhausted { last, .. } => last.hint(),
            Self::Timeout { hint, .. } | Self::TransientError { hint, .. } => {
                hint.as_deref().map(Into::into)
            }
            Self::AuthFailed(_)
            | Self::CircuitOpen { .. }
            | Self::ContentBlocked { .. }
            | Self::ContextOverflow { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidResponse(_)
            | Self::NotFound { .. }
            | Self::Other(_)
            | Self::QuotaExhausted { .. }
            | Self::RateLimited { .. }
            | Self::StreamInterrupted { .. }
            | Self::StreamTruncated { .. } => None,
        }
    }
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

impl GiveUp for ProviderError {
    fn stand_in() -> Self {
        Self::circuit_open(None)
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
