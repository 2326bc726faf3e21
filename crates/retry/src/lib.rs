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
//!
//! # Use without the rest of Backstop
//!
//! The layers take any service whose error is a [`Failure`](layer0::Failure), its future an `async` block or any
//! other. Each layer adds an error of its own, for which the service's error has a `From`: [`Exhausted`] of itself for
//! retry and fallback, [`CircuitOpen`] for the breaker, [`TimedOut`] for the timeout. Time comes from a [`Clock`]:
//! [`SystemClock`], or in tests a [`VirtualClock`](backstop_clock::VirtualClock), which has to track the future of the
//! test. Retry and fallback clone the service for each attempt, so it has to be `Clone`.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use backstop_clock::SystemClock;
//! use backstop_retry::{
//!     AttemptTimeoutLayer, Breaker, BreakerConfig, RetryConfig, RetryPolicy, RetryRequest,
//! };
//! use layer0::failure::{CircuitOpen, Effect, Exhausted, Facts, Failure, InnerError, TimedOut};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Debug, thiserror::Error)]
//! enum FetchError {
//!     #[error("the server is busy")]
//!     Busy,
//!     #[error("not asked")]
//!     Open(#[source] CircuitOpen),
//!     #[error("gave up")]
//!     Exhausted(#[source] InnerError<Exhausted<FetchError>>),
//!     #[error("no answer")]
//!     TimedOut(#[source] TimedOut),
//! }
//!
//! impl Failure for FetchError {
//!     fn facts(&self) -> Facts {
//!         match self {
//!             Self::Busy => Facts::backoff("fetch.busy", Effect::None),
//!             Self::Open(open) => Facts::from_hint("fetch.open", Some(open.retry_after), Effect::None),
//!             // What gave up is not tried again by a layer outside.
//!             Self::Exhausted(exhausted) => exhausted.facts(),
//!             Self::TimedOut(_) => Facts::backoff("fetch.timed_out", Effect::Unknown),
//!         }
//!     }
//! }
//!
//! impl From<Exhausted<FetchError>> for FetchError {
//!     fn from(exhausted: Exhausted<FetchError>) -> Self {
//!         Self::Exhausted(exhausted.into())
//!     }
//! }
//!
//! impl From<CircuitOpen> for FetchError {
//!     fn from(open: CircuitOpen) -> Self {
//!         Self::Open(open)
//!     }
//! }
//!
//! impl From<TimedOut> for FetchError {
//!     fn from(timed_out: TimedOut) -> Self {
//!         Self::TimedOut(timed_out)
//!     }
//! }
//!
//! #[derive(Clone)]
//! struct Fetch(u32);
//!
//! impl RetryRequest<FetchError> for Fetch {
//!     fn is_idempotent(&self) -> bool {
//!         true
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), FetchError> {
//! let clock = Arc::new(SystemClock);
//! let service = ServiceBuilder::new()
//!     .layer(RetryPolicy::new(RetryConfig::new(), clock.clone()).layer())
//!     .layer(Breaker::new(BreakerConfig::new(), clock.clone()).layer())
//!     .layer(AttemptTimeoutLayer::new(Duration::from_secs(10), clock))
//!     .service(service_fn(|Fetch(number): Fetch| async move { Ok::<_, FetchError>(number + 1) }));
//! assert_eq!(service.oneshot(Fetch(41)).await?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! [`CircuitOpen`]: layer0::failure::CircuitOpen
//! [`Exhausted`]: layer0::failure::Exhausted
//! [`TimedOut`]: layer0::failure::TimedOut

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
pub use backstop_clock::{Clock, SystemClock};
pub use breaker::service::{BreakerLayer, CircuitBreaker};
pub use breaker::{Breaker, BreakerConfig};
pub use budget::RetryBudget;
pub use fallback::Fallback;
pub use policy::{RetryContext, RetryDecision, RetryPolicy, first_to_pass, first_to_retry};
pub use rate::{RateLimit, RatePermit};
pub use request::{FailedAttempt, RetryRequest};
pub use service::{RetryLayer, RetryService};
pub use timeout::{AttemptTimeout, AttemptTimeoutLayer};

/// The README's program, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
