use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use layer0::failure::{ErrorText, Exhausted, Failure, Retry, chain};
use serde::{Deserialize, Serialize};

use super::lock::lock;
use crate::{ProviderError, TimeoutPhase};

/// A recorded [`ProviderError`]: the same variants and fields, with causes as texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are those of the error, and described there")]
pub enum RecordedFailure {
    /// [`ProviderError::AuthFailed`]
    AuthFailed { message: String },
    /// [`ProviderError::CircuitOpen`]
    CircuitOpen {
        retry_after: Option<Duration>,
        #[serde(default)]
        causes: Vec<String>,
    },
    /// [`ProviderError::ContentBlocked`]
    ContentBlocked { message: String },
    /// [`ProviderError::ContextOverflow`]
    ContextOverflow { message: String },
    /// [`ProviderError::Exhausted`]
    Exhausted { attempts: u32, elapsed: Duration, last: Box<RecordedFailure> },
    /// [`ProviderError::InvalidRequest`]
    InvalidRequest { message: String, status: Option<u16> },
    /// [`ProviderError::InvalidResponse`]
    InvalidResponse { message: String },
    /// [`ProviderError::NotFound`]
    NotFound {
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// [`ProviderError::Other`]
    Other { causes: Vec<String> },
    /// [`ProviderError::QuotaExhausted`]
    QuotaExhausted { message: String },
    /// [`ProviderError::RateLimited`]
    RateLimited { message: String, retry_after: Option<Duration> },
    /// [`ProviderError::Several`]
    Several { failure: Box<RecordedFailure>, causes: Vec<String> },
    /// [`ProviderError::StreamInterrupted`]
    StreamInterrupted { causes: Vec<String> },
    /// [`ProviderError::StreamTruncated`]
    StreamTruncated { expected: String },
    /// [`ProviderError::Timeout`]
    Timeout {
        #[serde(with = "TimeoutPhaseDef")]
        phase: TimeoutPhase,
        after: Option<Duration>,
        retry_after: Option<Duration>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// [`ProviderError::TransientError`]
    TransientError {
        message: String,
        status: Option<u16>,
        retry_after: Option<Duration>,
        causes: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

impl From<&ProviderError> for RecordedFailure {
    fn from(error: &ProviderError) -> Self {
        let causes = || chain(error).split_off(1);
        let hint = || error.hint().map(Into::into);
        let retry_after = match error.retry() {
            Retry::After(wait) => Some(wait),
            Retry::Backoff | Retry::Never => None,
        };
        match error {
            ProviderError::AuthFailed(message) => Self::AuthFailed { message: message.clone() },
            ProviderError::CircuitOpen { .. } => {
                Self::CircuitOpen { retry_after, causes: causes() }
            }
            ProviderError::ContentBlocked { message } => {
                Self::ContentBlocked { message: message.clone() }
            }
            ProviderError::ContextOverflow { message } => {
                Self::ContextOverflow { message: message.clone() }
            }
            ProviderError::Exhausted { attempts, elapsed, last } => Self::Exhausted {
                attempts: *attempts,
                elapsed: *elapsed,
                last: Box::new(Self::from(&**last)),
            },
            ProviderError::InvalidRequest { message, status } => {
                Self::InvalidRequest { message: message.clone(), status: *status }
            }
            ProviderError::InvalidResponse(message) => {
                Self::InvalidResponse { message: message.clone() }
            }
            ProviderError::NotFound { message, .. } => {
                Self::NotFound { message: message.clone(), hint: hint() }
            }
            ProviderError::Other(_) => Self::Other { causes: causes() },
            ProviderError::QuotaExhausted { message } => {
                Self::QuotaExhausted { message: message.clone() }
            }
            ProviderError::RateLimited { message, .. } => {
                Self::RateLimited { message: message.clone(), retry_after }
            }
            ProviderError::Several { failure, .. } => {
                Self::Several { failure: Box::new(Self::from(&**failure)), causes: causes() }
            }
            ProviderError::StreamInterrupted { .. } => Self::StreamInterrupted { causes: causes() },
            ProviderError::StreamTruncated { expected } => {
                Self::StreamTruncated { expected: (*expected).to_owned() }
            }
            ProviderError::Timeout { phase, after, .. } => {
                Self::Timeout { phase: *phase, after: *after, retry_after, hint: hint() }
            }
            ProviderError::TransientError { message, status, .. } => Self::TransientError {
                message: message.to_string(),
                status: *status,
                retry_after,
                causes: causes(),
                hint: hint(),
            },
        }
    }
}

impl From<&RecordedFailure> for ProviderError {
    fn from(failure: &RecordedFailure) -> Self {
        match failure.clone() {
            RecordedFailure::AuthFailed { message } => Self::AuthFailed(message),
            RecordedFailure::CircuitOpen { retry_after, causes } => {
                Self::CircuitOpen { retry_after, last: ErrorText::from_chain(causes) }
            }
            RecordedFailure::ContentBlocked { message } => Self::content_blocked(message),
            RecordedFailure::ContextOverflow { message } => Self::context_overflow(message),
            RecordedFailure::Exhausted { attempts, elapsed, last } => {
                Exhausted::new(attempts, elapsed, Self::from(&*last)).into()
            }
            RecordedFailure::InvalidRequest { message, status } => {
                Self::invalid_request(message, status)
            }
            RecordedFailure::InvalidResponse { message } => Self::InvalidResponse(message),
            RecordedFailure::NotFound { message, hint } => {
                Self::NotFound { message, hint: hint.map(Into::into) }
            }
            RecordedFailure::Other { causes } => Self::Other(text(causes).into()),
            RecordedFailure::QuotaExhausted { message } => Self::quota_exhausted(message),
            RecordedFailure::RateLimited { message, retry_after } => {
                Self::rate_limited(message, retry_after)
            }
            RecordedFailure::Several { failure, causes } => {
                Self::Several { failure: Self::from(&*failure).into(), others: text(causes) }
            }
            RecordedFailure::StreamInterrupted { causes } => Self::stream_interrupted(text(causes)),
            RecordedFailure::StreamTruncated { expected } => {
                Self::stream_truncated(intern(&expected))
            }
            RecordedFailure::Timeout { phase, after, retry_after, hint } => {
                Self::Timeout { phase, after, retry_after, hint: hint.map(Into::into) }
            }
            RecordedFailure::TransientError { message, status, retry_after, causes, hint } => {
                let source = ErrorText::from_chain(causes).map(Into::into);
                Self::TransientError {
                    message: message.into(),
                    status,
                    retry_after_ms: None,
                    source,
                    hint: hint.map(Into::into),
                }
                .with_retry_after(retry_after)
            }
        }
    }
}

fn text(causes: Vec<String>) -> ErrorText {
    ErrorText::from_chain(causes).unwrap_or_default()
}

/// Returns a static copy of an end marker's name, leaked once per name: the error has names from
/// code, and a recording has them from a file.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TimeoutPhase", rename_all = "snake_case")]
enum TimeoutPhaseDef {
    Connect,
    FirstByte,
    Idle,
    Attempt,
    Upstream,
}
