//! Tower layers that decide by the facts of a failure.
//!
//! One policy decides what follows a failed attempt, [`RetryPolicy::decide`]: another attempt, the
//! next endpoint, or nothing. It uses the error ([`layer0::Failure`]), the request
//! ([`RetryRequest`]) and its own configuration, never text and never a concrete type, so that the
//! same layers serve model calls, tool calls and operator dispatch. A caller with its own loop can
//! call it too.
//!
//! The order of layers, outer to inner, with those of this crate in bold: **fallback** → per-call
//! record → **retry** → per-attempt record → **breaker** → concurrency limit (tower's) → **attempt
//! timeout** → transport. A timeout outside retry would end the retry with the attempt; a breaker
//! outside would count calls and not attempts.

mod ask;
mod backoff;
mod breaker;
mod budget;
mod fallback;
mod policy;
mod rate;
mod request;
mod service;
mod timeout;

pub use backoff::{Jitter, RetryConfig};
pub use breaker::service::{BreakerLayer, CircuitBreaker};
pub use breaker::{Breaker, BreakerConfig};
pub use budget::RetryBudget;
pub use fallback::Fallback;
pub use policy::{Decision, RetryPolicy, Tried, first_to_pass, first_to_retry};
pub use rate::{RateLimit, Taken};
pub use request::{FailedAttempt, RetryRequest};
pub use service::{Retry, RetryLayer};
pub use timeout::{AttemptTimeout, AttemptTimeoutLayer};
