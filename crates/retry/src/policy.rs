//! The one place that decides to retry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use layer0::code;
use layer0::failure::{Effect, Failure, GiveUp, Retry};
use tower::retry::Policy;

use crate::backoff::{Jitter, RetryConfig};
use crate::budget::RetryBudget;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// What the policy asks of a request.
pub trait RetryRequest<E>: Clone {
    /// May the request be repeated even if an attempt acted?
    fn is_idempotent(&self) -> bool;

    /// Limits the attempts further than the configuration does.
    fn max_attempts(&self) -> Option<u32> {
        None
    }

    /// Hears that there is no other attempt only because of [`max_attempts`](Self::max_attempts).
    fn limited(&self) {}

    /// Hears of a failed attempt that will be followed by another. The wait begins when the
    /// returned future is done.
    fn attempted(&self, attempt: FailedAttempt<'_, E>) -> Option<BoxFuture> {
        let _ = attempt;
        None
    }
}

/// An attempt that failed and will be followed by another.
#[derive(Debug)]
pub struct FailedAttempt<'a, E> {
    /// Which attempt: 1, 2, ….
    pub number: u32,
    /// What it failed with.
    pub error: &'a E,
    /// The wait that follows.
    pub delay: Duration,
}

/// Wraps a service so that its failures are retried by a [`RetryPolicy`].
pub type RetryLayer = tower::retry::RetryLayer<RetryPolicy>;

/// Decides, after each failed attempt, whether there is another one, in this order: is the failure
/// retryable; may it have acted, and is the request idempotent; is there time; are there attempts;
/// is there budget.
///
/// When time, attempts or budget are used up, the last error is wrapped in
/// [`Exhausted`](layer0::failure::Exhausted). It is
/// returned as it is when it is not retryable, may not be repeated, or asks for a longer wait than
/// `max_retry_after_ms`: then the hint is still in the error and an orchestrator can park the work.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    config: RetryConfig,
    clock: Arc<dyn Clock>,
    jitter: Jitter,
    budget: Option<RetryBudget>,
    /// Does another service stand behind this one?
    yields: bool,
    /// Attempts made; tower clones the policy per call.
    attempts: u32,
    /// When the first attempt began, in monotonic time.
    started: Duration,
}

/// What a policy says after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Another attempt follows, after this wait.
    Again(Duration),
    /// Attempts, time or budget are used up: the failure is wrapped in
    /// [`Exhausted`](layer0::failure::Exhausted).
    GiveUp,
    /// As [`Decision::GiveUp`], but only for the limit of the request itself.
    Limited,
    /// The failure is returned as it is.
    Return,
}

/// What was tried when a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tried {
    /// Attempts made, the failed one included.
    pub attempts: u32,
    /// Time since the first attempt began, waits included.
    pub elapsed: Duration,
    /// May the request be repeated even if an attempt acted?
    pub is_idempotent: bool,
    /// Limits the attempts further than the configuration does.
    pub max_attempts: Option<u32>,
}

impl Tried {
    /// Describes what was tried of a request that only its policy limits.
    #[must_use]
    pub const fn new(attempts: u32, elapsed: Duration, is_idempotent: bool) -> Self {
        Self { attempts, elapsed, is_idempotent, max_attempts: None }
    }
}

impl RetryPolicy {
    /// Makes a policy without a budget, with random jitter.
    #[must_use]
    pub fn new(config: RetryConfig, clock: Arc<dyn Clock>) -> Self {
        Self {
            config,
            clock,
            jitter: Jitter::Random,
            budget: None,
            yields: false,
            attempts: 0,
            started: Duration::ZERO,
        }
    }

    /// Draws waits from this jitter.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Shares the retries of an endpoint.
    #[must_use]
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Does not wait for a circuit to close: another service stands behind this one.
    #[must_use]
    pub const fn yields(mut self, yes: bool) -> Self {
        self.yields = yes;
        self
    }

    /// Makes the layer.
    #[must_use]
    pub fn layer(self) -> RetryLayer {
        RetryLayer::new(self)
    }

    /// Counts the beginning of a request, which grants others their retries.
    pub fn begin(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    /// Decides whether another attempt follows a failed one. The layer asks this too; a caller with a
    /// loop of its own calls [`RetryPolicy::begin`] before the first attempt and waits as it is told.
    ///
    /// A retry that is allowed is taken from the budget.
    pub fn decide(&self, error: &impl Failure, tried: Tried) -> Decision {
        if self.yields && error.code() == code::PROVIDER_CIRCUIT_OPEN {
            return Decision::Return;
        }
        let backoff = || self.config.backoff(tried.attempts, &self.jitter);
        let delay = match error.retry() {
            Retry::Never => return Decision::Return,
            Retry::Backoff => backoff(),
            Retry::After(hint) if hint > Duration::from_millis(self.config.max_retry_after_ms) => {
                return Decision::Return;
            }
            // "At once" and "in a millisecond" are answered as slowly as no hint is.
            Retry::After(hint) => RetryConfig::hinted(hint, &self.jitter).max(backoff()),
        };
        if error.effect() != Effect::None && !tried.is_idempotent {
            return Decision::Return;
        }
        let deadline = Duration::from_millis(self.config.deadline_ms);
        if tried.elapsed.saturating_add(delay) > deadline || tried.attempts >= self.config.attempts
        {
            return Decision::GiveUp;
        }
        if tried.max_attempts.is_some_and(|max| tried.attempts >= max) {
            return Decision::Limited;
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
            return Decision::GiveUp;
        }
        Decision::Again(delay)
    }

    fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.started)
    }
}

impl<Req, Res, E> Policy<Req, Res, E> for RetryPolicy
where
    Req: RetryRequest<E>,
    E: GiveUp,
{
    type Future = BoxFuture;

    fn retry(&mut self, request: &mut Req, result: &mut Result<Res, E>) -> Option<BoxFuture> {
        self.attempts += 1;
        let error = result.as_ref().err()?;
        let tried = Tried {
            attempts: self.attempts,
            elapsed: self.elapsed(),
            is_idempotent: request.is_idempotent(),
            max_attempts: request.max_attempts(),
        };
        match self.decide(error, tried) {
            Decision::Return => None,
            Decision::Again(delay) => {
                tracing::debug!(attempt = self.attempts, code = error.code(), ?delay, "retrying");
                let attempt = FailedAttempt { number: self.attempts, error, delay };
                let recorded = request.attempted(attempt);
                let clock = Arc::clone(&self.clock);
                Some(Box::pin(async move {
                    if let Some(recorded) = recorded {
                        recorded.await;
                    }
                    clock.sleep(delay).await;
                }))
            }
            decision @ (Decision::GiveUp | Decision::Limited) => {
                if matches!(decision, Decision::Limited) {
                    request.limited();
                }
                let elapsed = self.elapsed();
                if let Err(error) = result {
                    error.give_up(self.attempts, elapsed);
                }
                None
            }
        }
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        if self.attempts == 0 {
            self.started = self.clock.monotonic();
            self.begin();
        }
        Some(request.clone())
    }
}

#[cfg(test)]
mod tests;
