//! The one place that decides to retry.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use layer0::failure::{Effect, Failure, GiveUp, Retry};
use layer0::{Timestamp, code};
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
    started: Timestamp,
}

enum Decision {
    Again(Duration),
    Return,
    GiveUp,
    /// As [`Decision::GiveUp`], but only for the request's own limit.
    Limited,
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
            started: Timestamp::default(),
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

    fn decide(
        &self,
        error: &impl Failure,
        idempotent: bool,
        max_attempts: Option<u32>,
    ) -> Decision {
        if self.yields && error.code() == code::PROVIDER_CIRCUIT_OPEN {
            return Decision::Return;
        }
        let delay = match error.retry() {
            Retry::Never => return Decision::Return,
            Retry::Backoff => self.config.backoff(self.attempts, &self.jitter),
            Retry::After(hint) if hint > Duration::from_millis(self.config.max_retry_after_ms) => {
                return Decision::Return;
            }
            Retry::After(hint) => RetryConfig::hinted(hint, &self.jitter),
        };
        if error.effect() != Effect::None && !idempotent {
            return Decision::Return;
        }
        let deadline = self.started.after(Duration::from_millis(self.config.deadline_ms));
        if self.clock.now().after(delay) > deadline {
            return Decision::GiveUp;
        }
        if self.attempts >= self.config.attempts {
            return Decision::GiveUp;
        }
        if max_attempts.is_some_and(|max| self.attempts >= max) {
            return Decision::Limited;
        }
        if self.budget.as_ref().is_some_and(|budget| !budget.withdraw()) {
            return Decision::GiveUp;
        }
        Decision::Again(delay)
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
        match self.decide(error, request.is_idempotent(), request.max_attempts()) {
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
                let elapsed = self.clock.now().since(self.started);
                if let Err(error) = result {
                    error.give_up(self.attempts, elapsed);
                }
                None
            }
        }
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        if self.attempts == 0 {
            self.started = self.clock.now();
            if let Some(budget) = &self.budget {
                budget.deposit();
            }
        }
        Some(request.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use clock::VirtualClock;
    use layer0::error::OperatorError;
    use layer0::error::OrchError;
    use tower::{Layer, Service, ServiceExt};

    /// A request that notes the waits between its attempts.
    #[derive(Clone, Default)]
    struct Call {
        idempotent: bool,
        max_attempts: Option<u32>,
        delays: Arc<Mutex<Vec<Duration>>>,
    }

    impl RetryRequest<OrchError> for Call {
        fn is_idempotent(&self) -> bool {
            self.idempotent
        }

        fn max_attempts(&self) -> Option<u32> {
            self.max_attempts
        }

        fn attempted(&self, attempt: FailedAttempt<'_, OrchError>) -> Option<BoxFuture> {
            self.delays.lock().unwrap().push(attempt.delay);
            None
        }
    }

    /// Fails in a given way a number of times, then answers.
    #[derive(Clone)]
    struct Flaky {
        failures: u32,
        error: fn() -> OrchError,
        calls: Arc<Mutex<u32>>,
    }

    impl Service<Call> for Flaky {
        type Response = &'static str;
        type Error = OrchError;
        type Future = std::future::Ready<Result<&'static str, OrchError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OrchError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Call) -> Self::Future {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            std::future::ready(if *calls <= self.failures {
                Err((self.error)())
            } else {
                Ok("done")
            })
        }
    }

    /// A failure that may have acted.
    #[derive(Debug, thiserror::Error)]
    #[error("half done")]
    struct Acted;

    impl Failure for Acted {
        fn code(&self) -> &'static str {
            "test.acted"
        }
        fn retry(&self) -> Retry {
            Retry::Backoff
        }
        fn effect(&self) -> Effect {
            Effect::Unknown
        }
    }

    struct Seen {
        result: Result<&'static str, OrchError>,
        calls: u32,
        delays: Vec<Duration>,
    }

    async fn run(
        config: RetryConfig,
        call: Call,
        failures: u32,
        error: fn() -> OrchError,
        budget: bool,
    ) -> Seen {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let mut policy = RetryPolicy::new(config, Arc::clone(&shared)).jitter(Jitter::seeded(7));
        if budget {
            let budget = RetryBudget::new(shared);
            while budget.withdraw() {}
            policy = policy.budget(budget);
        }
        let calls = Arc::new(Mutex::new(0));
        let flaky = Flaky { failures, error, calls: Arc::clone(&calls) };
        let (done, result) = tokio::sync::oneshot::channel();
        let (service, delays) = (policy.layer().layer(flaky), Arc::clone(&call.delays));
        tokio::spawn(clock.track(Box::pin(async move {
            let _ = done.send(service.oneshot(call).await);
        })));
        let result = result.await.unwrap();
        let (calls, delays) = (*calls.lock().unwrap(), delays.lock().unwrap().clone());
        Seen { result, calls, delays }
    }

    fn transient() -> OrchError {
        OperatorError::Retryable("busy".into()).into()
    }

    /// Spec: R1, R2
    #[tokio::test]
    async fn a_retryable_failure_is_tried_again_and_answers() {
        let seen = run(RetryConfig::default(), Call::default(), 2, transient, false).await;
        assert_eq!(seen.result.unwrap(), "done");
        assert_eq!((seen.calls, seen.delays.len()), (3, 2));
    }

    /// Spec: E8, R9
    #[tokio::test]
    async fn giving_up_wraps_the_last_error_and_is_not_retryable() {
        let seen = run(RetryConfig::default(), Call::default(), 9, transient, false).await;
        let error = seen.result.unwrap_err();
        assert_eq!(seen.calls, 3);
        assert_eq!((error.code(), error.retry()), ("operator.retryable", Retry::Never));
        assert_eq!(
            layer0::failure::Chain(&error).to_string(),
            "operator failed: operator stopped on `operator.retryable`: gave up after 3 attempts: \
             operator failed: busy"
        );
    }

    /// Spec: R4
    #[tokio::test]
    async fn what_may_have_acted_is_not_repeated_unless_idempotent() {
        fn acted() -> OrchError {
            OperatorError::failed(Acted).into()
        }
        let seen = run(RetryConfig::default(), Call::default(), 1, acted, false).await;
        assert_eq!((seen.calls, seen.result.unwrap_err().retry()), (1, Retry::Backoff));
        let idempotent = Call { idempotent: true, ..Call::default() };
        let seen = run(RetryConfig::default(), idempotent, 1, acted, false).await;
        assert_eq!((seen.calls, seen.result.unwrap()), (2, "done"));
    }

    /// Spec: R4
    #[tokio::test]
    async fn a_failure_for_good_is_returned_as_it_is() {
        fn missing() -> OrchError {
            OrchError::OperatorNotFound("x".into())
        }
        let seen = run(RetryConfig::default(), Call::default(), 9, missing, false).await;
        assert_eq!(seen.calls, 1);
        assert!(matches!(seen.result, Err(OrchError::OperatorNotFound(_))));
    }

    /// Spec: R4
    #[tokio::test]
    async fn never_sleeps_past_the_deadline() {
        let config = RetryConfig {
            base_ms: 9_000,
            cap_ms: 9_000,
            deadline_ms: 10_000,
            attempts: 99,
            ..RetryConfig::default()
        };
        let seen = run(config, Call::default(), 99, transient, false).await;
        assert!(seen.delays.iter().sum::<Duration>() <= Duration::from_secs(10));
        assert!(seen.result.is_err() && seen.calls < 99);
    }

    #[tokio::test]
    async fn the_request_can_lower_the_attempts() {
        let call = Call { max_attempts: Some(2), ..Call::default() };
        assert_eq!(run(RetryConfig::default(), call, 9, transient, false).await.calls, 2);
    }

    /// Spec: R5
    #[tokio::test]
    async fn without_budget_there_is_no_retry() {
        let seen = run(RetryConfig::default(), Call::default(), 1, transient, true).await;
        assert_eq!(seen.calls, 1);
        assert!(seen.result.is_err_and(|error| !error.is_retryable()));
    }
}
