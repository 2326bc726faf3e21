use super::*;

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use backstop_clock::VirtualClock;
use layer0::Timestamp;
use layer0::error::OperatorError;
use layer0::error::OrchError;
use tower::{Layer, Service, ServiceExt};

use crate::{FailedAttempt, RetryRequest};

mod alternatives;
mod limits;

/// A request that records the delays between its attempts.
#[derive(Clone, Default)]
struct Call {
    idempotent: bool,
    max_attempts: Option<u32>,
    time_left: Option<Duration>,
    /// Whether the attempt cannot be recorded.
    is_unnoted: bool,
    is_given_up: bool,
    delays: Arc<Mutex<Vec<Duration>>>,
}

impl RetryRequest<OrchError> for Call {
    fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, OrchError>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<(), OrchError>> + Send>>> {
        self.delays.lock().unwrap().push(attempt.delay);
        let gone = || OrchError::DispatchFailed("no record".to_owned());
        self.is_unnoted.then(|| Box::pin(std::future::ready(Err(gone()))) as _)
    }

    fn time_left(&self) -> Option<Duration> {
        self.time_left
    }

    fn given_up(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.is_given_up {
            true => Box::pin(std::future::ready(())),
            false => Box::pin(std::future::pending()),
        }
    }
}

/// A service that fails in a given way a number of times, then answers.
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
        std::future::ready(if *calls <= self.failures { Err((self.error)()) } else { Ok("done") })
    }
}

/// A failure that may have acted.
#[derive(Debug, thiserror::Error)]
#[error("half done")]
struct Acted;

impl Failure for Acted {
    fn facts(&self) -> Facts {
        Facts::new("test.acted", Retry::Backoff, Effect::Unknown)
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
    let mut policy = RetryPolicy::new(config, Arc::clone(&shared)).jitter(Jitter::from_seed(7));
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
async fn exhausted_wraps_the_last_error() {
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
async fn no_wait_is_longer_than_what_is_left() {
    let call = Call { time_left: Some(Duration::from_millis(1)), ..Call::default() };
    let seen = run(RetryConfig::default(), call, 9, transient, false).await;
    assert_eq!((seen.calls, seen.delays.len()), (1, 0));
    assert_eq!(seen.result.unwrap_err().retry(), Retry::Never);
}

/// Spec: O2
#[tokio::test]
async fn a_wait_ends_when_it_is_given_up() {
    let call = Call { is_given_up: true, ..Call::default() };
    let seen = run(RetryConfig::default(), call, 9, transient, false).await;
    assert_eq!((seen.calls, seen.delays.len()), (1, 1));
    let error = seen.result.unwrap_err();
    assert_eq!((error.code(), error.retry()), ("operator.retryable", Retry::Never));
}

/// Spec: O3
#[tokio::test]
async fn no_attempt_follows_that_is_not_noted() {
    let call = Call { is_unnoted: true, ..Call::default() };
    let seen = run(RetryConfig::default(), call, 9, transient, false).await;
    assert_eq!((seen.calls, seen.result.unwrap_err().code()), (1, "orch.dispatch_failed"));
}

/// Spec: R4
#[tokio::test]
async fn unknown_effects_are_repeated_only_when_idempotent() {
    fn may_have_acted() -> OrchError {
        OperatorError::from_failure(Acted).into()
    }
    let seen = run(RetryConfig::default(), Call::default(), 1, may_have_acted, false).await;
    assert_eq!((seen.calls, seen.result.unwrap_err().retry()), (1, Retry::Backoff));
    let idempotent = Call { idempotent: true, ..Call::default() };
    let seen = run(RetryConfig::default(), idempotent, 1, may_have_acted, false).await;
    assert_eq!((seen.calls, seen.result.unwrap()), (2, "done"));
}

/// Spec: R4
#[tokio::test]
async fn permanent_failure_is_returned_unchanged() {
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
    let config = RetryConfig::new()
        .base(Duration::from_millis(9_000))
        .cap(Duration::from_millis(9_000))
        .deadline(Duration::from_millis(10_000))
        .attempts(99);
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

/// A failure whose methods contradict its facts.
#[derive(Debug, thiserror::Error)]
#[error("overridden")]
struct Overridden {
    facts: Facts,
    is_retryable: bool,
    effect: Effect,
}

impl Failure for Overridden {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    fn effect(&self) -> Effect {
        self.effect
    }
}

/// Spec: R1
#[test]
fn overrides_of_a_failure_are_heard() {
    let clock = Arc::new(VirtualClock::starting_at(Timestamp::from_millis(0)));
    let policy = RetryPolicy::new(RetryConfig::default(), clock);
    for (facts, is_retryable, effect, again) in [
        (Facts::backoff("x.y", Effect::None), true, Effect::None, true),
        (Facts::backoff("x.y", Effect::None), false, Effect::None, false),
        (Facts::never("x.y", Effect::None), true, Effect::None, true),
        (Facts::backoff("x.y", Effect::None), true, Effect::Unknown, false),
        (Facts::backoff("x.y", Effect::Unknown), true, Effect::None, true),
    ] {
        let error = Overridden { facts, is_retryable, effect };
        let decision = policy.decide(&error, RetryContext::new(1, Duration::ZERO, false));
        assert_eq!(matches!(decision, RetryDecision::Again(_)), again, "{error:?}: {decision:?}");
        let around = OperatorError::from_failure(error);
        let decision = policy.decide(&around, RetryContext::new(1, Duration::ZERO, false));
        assert_eq!(matches!(decision, RetryDecision::Again(_)), again, "{around:?}: {decision:?}");
    }
}

/// Spec: R1. A row says the opposite each time.
#[tokio::test]
async fn the_layer_asks_is_retryable_first() {
    fn refused() -> OrchError {
        let facts = Facts::backoff("x.y", Effect::None);
        OperatorError::from_failure(Overridden { facts, is_retryable: false, effect: Effect::None })
            .into()
    }
    fn allowed() -> OrchError {
        let facts = Facts::never("x.y", Effect::None);
        OperatorError::from_failure(Overridden { facts, is_retryable: true, effect: Effect::None })
            .into()
    }
    let seen = run(RetryConfig::default(), Call::default(), 1, refused, false).await;
    assert_eq!((seen.calls, seen.result.is_ok()), (1, false));
    let seen = run(RetryConfig::default(), Call::default(), 1, allowed, false).await;
    assert_eq!((seen.calls, seen.result.is_ok()), (2, true));
}

/// A failure with a requested delay.
#[derive(Debug, thiserror::Error)]
#[error("come back")]
struct ComeBack(Duration);

impl Failure for ComeBack {
    fn facts(&self) -> Facts {
        Facts::new("test.come_back", Retry::After(self.0), Effect::None)
    }
}

/// Spec: R3
#[tokio::test]
async fn a_hint_never_shortens_the_backoff() {
    async fn waits(error: fn() -> OrchError) -> Vec<Duration> {
        let config = RetryConfig::new().attempts(8);
        let seen = run(config, Call::default(), 7, error, false).await;
        assert_eq!((seen.calls, seen.result.unwrap()), (8, "done"));
        seen.delays
    }
    fn slow_down(hint: Duration) -> OrchError {
        OperatorError::from_failure(ComeBack(hint)).into()
    }
    let backoff = waits(transient).await;
    assert!(backoff.iter().sum::<Duration>() > Duration::from_secs(3), "{backoff:?}");
    for short in
        [(|| slow_down(Duration::ZERO)) as fn() -> _, || slow_down(Duration::from_nanos(1))]
    {
        let waits = waits(short).await;
        assert!(waits.iter().sum::<Duration>() > Duration::from_secs(3), "{waits:?}");
    }
    for wait in waits(|| slow_down(Duration::from_secs(9))).await {
        assert!(wait >= Duration::from_secs(9), "{wait:?}");
    }
}

/// Spec: R4
#[tokio::test]
async fn wall_clock_does_not_move_the_deadline() {
    for by_ms in [-86_400_000, 86_400_000] {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let policy = RetryPolicy::new(RetryConfig::default(), Arc::new(clock.clone()));
        let asked = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&asked);
        let (done, result) = tokio::sync::oneshot::channel();
        let service = policy.layer().layer(tower::service_fn({
            let clock = clock.clone();
            move |_: Call| {
                clock.set_time_of_day(by_ms);
                *counted.lock().unwrap() += 1;
                std::future::ready(Err::<(), _>(transient()))
            }
        }));
        tokio::spawn(clock.track(Box::pin(async move {
            let _ = done.send(service.oneshot(Call::default()).await);
        })));
        result.await.unwrap().unwrap_err();
        assert_eq!(*asked.lock().unwrap(), RetryConfig::default().attempts);
    }
}

/// Spec: R4, R7, R11, E14
#[test]
fn fallback_only_where_it_may_help() {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let policy = RetryPolicy::new(RetryConfig::default(), Arc::new(clock));
    let rows = [
        // (facts, idempotent, attempts, limit): the decision if another endpoint follows.
        (Facts::never("a", Effect::None), true, 1, None, "stop"),
        (Facts::never("a", Effect::None).with_elsewhere(Elsewhere::AtOnce), true, 1, None, "next"),
        (
            Facts::backoff("a", Effect::None).with_elsewhere(Elsewhere::AtOnce),
            true,
            1,
            None,
            "next",
        ),
        (Facts::backoff("a", Effect::None), true, 1, None, "again"),
        (Facts::backoff("a", Effect::None), true, 3, None, "next, exhausted"),
        (Facts::backoff("a", Effect::None), true, 1, Some(1), "stop, exhausted, limited"),
        (Facts::backoff("a", Effect::None), true, 3, Some(3), "stop, exhausted, limited"),
        (Facts::backoff("a", Effect::Unknown), false, 1, None, "stop"),
        (
            Facts::never("a", Effect::Unknown).with_elsewhere(Elsewhere::AfterRetries),
            false,
            1,
            None,
            "stop",
        ),
        (
            Facts::never("a", Effect::None).with_elsewhere(Elsewhere::AtOnce),
            true,
            1,
            Some(1),
            "stop, limited",
        ),
        (
            Facts::new("a", Retry::After(Duration::from_secs(3_600)), Effect::None),
            true,
            1,
            None,
            "next",
        ),
    ];
    for (facts, is_idempotent, attempts, max_attempts, expected) in rows {
        let mut tried = RetryContext::new(attempts, Duration::ZERO, is_idempotent);
        tried.max_attempts = max_attempts;
        tried.has_next = true;
        let decision = policy.decide(&Stated(facts), tried);
        let said = match decision {
            RetryDecision::Again(_) => "again",
            RetryDecision::Beside => "beside",
            RetryDecision::Park(_) => "park",
            RetryDecision::Next { is_exhausted: true } => "next, exhausted",
            RetryDecision::Next { is_exhausted: false } => "next",
            RetryDecision::Stop { is_exhausted: true, is_limited: true } => {
                "stop, exhausted, limited"
            }
            RetryDecision::Stop { is_exhausted: true, is_limited: false } => "stop, exhausted",
            RetryDecision::Stop { is_exhausted: false, is_limited: true } => "stop, limited",
            RetryDecision::Stop { is_exhausted: false, is_limited: false } => "stop",
        };
        assert_eq!(said, expected, "{facts:?} after {attempts}");
    }
}

/// A failure with these facts.
#[derive(Debug, thiserror::Error)]
#[error("as stated")]
struct Stated(Facts);

impl Failure for Stated {
    fn facts(&self) -> Facts {
        self.0
    }
}

/// Spec: O5, R3. A wait that is too long parks the work, as long as that is allowed.
#[test]
fn long_hint_parks_within_its_limit() {
    let policy = RetryPolicy::new(RetryConfig::default(), Arc::new(backstop_clock::SystemClock));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (hint, max_park, has_next, parks) in [
        (minutes(5), minutes(10), false, true),
        (minutes(10), minutes(10), false, true),
        (minutes(11), minutes(10), false, false),
        (minutes(5), Duration::ZERO, false, false),
        // The next endpoint is called first, and short delays are waited for.
        (minutes(5), minutes(10), true, false),
        (Duration::from_secs(30), minutes(10), false, false),
    ] {
        let mut tried = RetryContext::new(1, Duration::ZERO, true);
        (tried.max_park, tried.has_next) = (max_park, has_next);
        let busy = Stated(Facts::new("a", Retry::After(hint), Effect::None));
        let decision = policy.decide(&busy, tried);
        assert_eq!(matches!(decision, RetryDecision::Park(_)), parks, "{hint:?}: {decision:?}");
        if let RetryDecision::Park(wait) = decision {
            assert!(wait >= hint, "never earlier than asked");
        }
    }
    let mut full = RetryContext::new(1, Duration::ZERO, true);
    (full.max_park, full.max_attempts) = (minutes(10), Some(1));
    let busy = Stated(Facts::new("a", Retry::After(minutes(5)), Effect::None));
    assert!(
        matches!(policy.decide(&busy, full), RetryDecision::Stop { .. }),
        "nothing is left to try"
    );
}

fn policy() -> RetryPolicy {
    RetryPolicy::new(RetryConfig::default(), Arc::new(backstop_clock::SystemClock))
}

/// Spec: R3
#[test]
fn longest_hint_is_waited_for() {
    for (hint, waits) in [(60_000, true), (60_001, false)] {
        let hint = Duration::from_millis(hint);
        let busy = Stated(Facts::new("a", Retry::After(hint), Effect::None));
        let decision = policy().decide(&busy, RetryContext::new(1, Duration::ZERO, true));
        assert_eq!(matches!(decision, RetryDecision::Again(_)), waits, "{decision:?}");
    }
}

/// Spec: R4. The request's own limit is named only where it alone stops the request.
#[test]
fn limit_of_a_request_is_named_alone() {
    let busy = Stated(Facts::new("a", Retry::Backoff, Effect::None));
    let stop = |attempts, max_attempts, has_next| {
        let mut tried = RetryContext::new(attempts, Duration::ZERO, true);
        (tried.max_attempts, tried.has_next) = (max_attempts, has_next);
        match policy().decide(&busy, tried) {
            RetryDecision::Stop { is_exhausted, is_limited } => Some((is_exhausted, is_limited)),
            _ => None,
        }
    };
    assert_eq!(stop(3, None, false), Some((true, false)), "the configuration's");
    assert_eq!(stop(3, Some(3), false), Some((true, false)), "both");
    assert_eq!(stop(2, Some(2), false), Some((true, true)), "the request's");
    assert_eq!(stop(3, Some(3), true), Some((true, true)), "another endpoint would follow");
    assert_eq!(stop(2, Some(3), false), None);
}

/// Spec: R7. Of two waits at endpoints of one model, the shorter one counts.
#[test]
fn shorter_wait_of_two_endpoints_counts() {
    let wait = |here: u64, other: u64| {
        let hint = Retry::After(Duration::from_secs(here));
        let mut tried = RetryContext::new(1, Duration::ZERO, true);
        tried.another_in = Some(Duration::from_secs(other));
        match policy().decide(&Stated(Facts::new("a", hint, Effect::None)), tried) {
            RetryDecision::Again(wait) => wait.as_secs(),
            other => panic!("{other:?}"),
        }
    };
    assert!((10..=11).contains(&wait(10, 40)));
    assert!((10..=11).contains(&wait(40, 10)));
}
