use super::*;

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use backstop_clock::{Clock, VirtualClock};
use layer0::Timestamp;
use layer0::failure::{Chain, CircuitOpen, Effect, Elsewhere};
use proptest::prelude::*;
use tower::{Layer, service_fn};

use crate::{FailedAttempt, Fallback, RetryBudget, RetryConfig};

/// A failure that states its facts, and the failures it was joined with.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{name}")]
struct Odd {
    name: &'static str,
    facts: Facts,
    #[source]
    others: Option<ErrorText>,
}

impl Odd {
    fn new(name: &'static str, facts: Facts) -> Self {
        Self { name, facts, others: None }
    }
}

impl Failure for Odd {
    fn facts(&self) -> Facts {
        self.facts
    }
}

impl From<Exhausted<Odd>> for Odd {
    fn from(exhausted: Exhausted<Odd>) -> Self {
        Self { facts: exhausted.last.facts.with_retry(Answer::Never), ..exhausted.last }
    }
}

impl From<CircuitOpen> for Odd {
    fn from(_: CircuitOpen) -> Self {
        quota()
    }
}

fn busy() -> Odd {
    Odd::new("busy", Facts::backoff("test.busy", Effect::None))
}

fn rate_limit(seconds: u64) -> Odd {
    let hint = Some(Duration::from_secs(seconds));
    Odd::new("limited", Facts::from_hint("test.limited", hint, Effect::None))
}

fn quota() -> Odd {
    let facts = Facts::never("test.quota", Effect::None).with_elsewhere(Elsewhere::AtOnce);
    Odd::new("quota", facts)
}

fn dead() -> Odd {
    Odd::new("dead", Facts::never("test.dead", Effect::None))
}

/// The failure of an endpoint that refuses requests for some seconds.
fn refuse(seconds: u64) -> Odd {
    let Odd { facts, .. } = rate_limit(seconds);
    Odd::new("refused", facts.with_elsewhere(Elsewhere::AtOnce).with_sent(false))
}

#[derive(Clone, Default)]
struct Call {
    is_given_up: bool,
    max_attempts: Option<u32>,
    /// The numbers of the failed attempts.
    numbers: Arc<Mutex<Vec<u32>>>,
}

impl RetryRequest<Odd> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }

    fn max_attempts(&self) -> Option<u32> {
        self.max_attempts
    }

    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, Odd>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<(), Odd>> + Send>>> {
        self.numbers.lock().unwrap().push(attempt.number);
        None
    }

    fn given_up(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.is_given_up {
            true => Box::pin(std::future::ready(())),
            false => Box::pin(std::future::pending()),
        }
    }

    fn keep_earlier(&self, error: &mut Odd, earlier: &ErrorText) {
        let kept = error.others.take();
        error.others = Some(kept.map_or(earlier.clone(), |kept| kept.caused_by(earlier)));
    }
}

/// Failures of an endpoint, which answers after them.
type Script = Vec<Odd>;

struct Seen {
    result: Result<usize, Odd>,
    /// The endpoints called.
    asked: Vec<usize>,
    elapsed: Duration,
}

async fn run(scripts: Vec<Script>, call: Call) -> Seen {
    run_with(scripts, call, RetryConfig::default(), None).await
}

async fn run_with(
    scripts: Vec<Script>,
    call: Call,
    config: RetryConfig,
    budget: Option<RetryBudget>,
) -> Seen {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let mut policy = RetryPolicy::new(config, Arc::new(clock.clone()));
    if let Some(budget) = budget {
        policy = policy.budget(budget);
    }
    let asked = Arc::new(Mutex::new(Vec::new()));
    let endpoint = |(place, script): (usize, Script)| {
        let (asked, script) = (Arc::clone(&asked), Arc::new(Mutex::new(script.into_iter())));
        policy.clone().layer().layer(service_fn(move |_: Call| {
            asked.lock().unwrap().push(place);
            let failure = script.lock().unwrap().next();
            std::future::ready(failure.map_or(Ok(place), Err))
        }))
    };
    let mut endpoints = scripts.into_iter().enumerate().map(endpoint);
    let first = endpoints.next().unwrap();
    let service = Fallback::new(first, endpoints.collect::<Vec<_>>());
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let _ = done.send(service.oneshot(call).await);
    })));
    let result = result.await.unwrap();
    let asked = asked.lock().unwrap().clone();
    Seen { result, asked, elapsed: clock.monotonic() }
}

async fn run_paid(script: Script, call: Call, budget: &RetryBudget) -> Seen {
    run_with(vec![script], call, RetryConfig::default(), Some(budget.clone())).await
}

/// Spec: O2
#[tokio::test]
async fn given_up_request_asks_no_other_endpoint() {
    let call = Call { is_given_up: true, ..Call::default() };
    let seen = run(vec![vec![quota()], vec![]], call).await;
    assert_eq!((seen.asked, seen.result.unwrap_err().name), (vec![0], "quota"));
}

/// Spec: R5
#[tokio::test]
async fn given_up_wait_gives_its_token_back() {
    let budget = RetryBudget::new(Arc::new(VirtualClock::starting_at(Timestamp::default())));
    while budget.withdraw() {}
    budget.give_back();
    let call = Call { is_given_up: true, ..Call::default() };
    let seen = run_paid(vec![busy()], call, &budget).await;
    assert!(seen.result.is_err());
    assert!(budget.withdraw(), "the retry was not made");
}

/// Spec: R5. Each call at an endpoint grants others a fifth of a retry.
#[tokio::test]
async fn calls_pay_for_retries() {
    let budget = RetryBudget::new(Arc::new(VirtualClock::starting_at(Timestamp::default())));
    while budget.withdraw() {}
    for _ in 0..4 {
        run_paid(vec![], Call::default(), &budget).await.result.unwrap();
        assert!(!budget.withdraw());
    }
    let seen = run_paid(vec![busy()], Call::default(), &budget).await;
    assert_eq!(seen.asked, vec![0, 0], "the fifth call makes up for the retry");
    assert!(!budget.withdraw(), "one retry costs one");
}

/// Spec: R7
#[tokio::test]
async fn failures_together_are_the_first_that_passes() {
    for (scripts, name, chain) in [
        (vec![vec![busy(); 3], vec![dead()]], "busy", "busy: dead"),
        (vec![vec![dead()], vec![]], "dead", "dead"),
        (vec![vec![rate_limit(90)], vec![busy(); 3]], "busy", "busy: limited"),
        (vec![vec![rate_limit(90)], vec![rate_limit(70)]], "limited", "limited: limited"),
        (vec![vec![quota()], vec![dead()]], "dead", "dead: quota"),
        (vec![vec![quota()], vec![busy(); 3], vec![dead()]], "busy", "busy: dead: quota"),
    ] {
        let error = run(scripts, Call::default()).await.result.unwrap_err();
        assert_eq!(error.name, name);
        assert_eq!(Chain(&error).to_string(), chain);
    }
    let scripts = vec![vec![rate_limit(90)], vec![rate_limit(70)], vec![rate_limit(80)]];
    let error = run(scripts, Call::default()).await.result.unwrap_err();
    assert_eq!(error.facts.later, Answer::After(Duration::from_secs(70)));
}

/// Spec: R7
#[tokio::test]
async fn endpoint_that_was_left_is_asked_again() {
    let seen = run(vec![vec![refuse(20)], vec![dead()]], Call::default()).await;
    assert_eq!((seen.result.unwrap(), seen.asked), (0, vec![0, 1, 0]));
    assert!(seen.elapsed >= Duration::from_secs(20), "{:?}", seen.elapsed);
    // Its own attempts continue to count.
    let always = vec![vec![refuse(20), busy(), busy(), busy(), busy()], vec![dead()]];
    let seen = run(always, Call::default()).await;
    assert_eq!((seen.asked, seen.result.unwrap_err().name), (vec![0, 1, 0, 0, 0], "busy"));
}

/// Spec: R7
#[tokio::test]
async fn next_endpoint_is_one_that_was_not_asked() {
    let scripts = vec![vec![refuse(20), rate_limit(90)], vec![dead(), dead()], vec![]];
    let seen = run(scripts, Call::default()).await;
    assert_eq!((seen.result.unwrap(), seen.asked), (2, vec![0, 1, 0, 2]));
}

/// Spec: R7
#[tokio::test]
async fn refused_request_is_no_attempt() {
    let script = vec![refuse(1), busy(), refuse(1), busy(), refuse(1)];
    let seen = run(vec![script], Call::default()).await;
    assert_eq!((seen.result.unwrap(), seen.asked.len()), (0, 6));
}

/// Spec: R4, R7. Attempts are counted and limited at all endpoints together, refused ones too.
#[tokio::test]
async fn attempts_at_all_endpoints_are_counted() {
    let scripts = || vec![vec![quota()], vec![refuse(1), busy()], vec![]];
    let call = Call::default();
    let seen = run(scripts(), call.clone()).await;
    assert_eq!((seen.result.unwrap(), seen.asked), (2, vec![0, 1, 2]));
    assert_eq!(*call.numbers.lock().unwrap(), [1, 2]);
    for (max, asked) in [(1, vec![0]), (2, vec![0, 1]), (3, vec![0, 1, 2])] {
        let call = Call { max_attempts: Some(max), ..Call::default() };
        assert_eq!(run(scripts(), call).await.asked, asked, "{max}");
    }
    let refusals = || vec![vec![refuse(1), refuse(1), refuse(1)]];
    let call = Call { max_attempts: Some(2), ..Call::default() };
    assert_eq!(run(refusals(), call).await.asked, [0, 0]);
    let once = run_with(refusals(), Call::default(), RetryConfig::once(), None).await;
    assert_eq!(once.asked, [0], "a single attempt never waits");
}

/// The failures of an endpoint, and whether it answers in the end.
fn script() -> impl Strategy<Value = (Script, bool)> {
    let once = |failure: Odd| (vec![failure], true);
    prop_oneof![
        Just((vec![], true)),
        (0..3_usize).prop_map(|times| (vec![busy(); times], true)),
        (1..60_u64).prop_map(move |seconds| once(rate_limit(seconds))),
        (1..30_u64).prop_map(move |seconds| once(refuse(seconds))),
        Just((vec![quota(); 99], false)),
        Just((vec![busy(); 99], false)),
        (61..9_999_u64).prop_map(|seconds| (vec![rate_limit(seconds); 99], false)),
    ]
}

proptest! {
    /// Spec: R7
    #[test]
    fn one_endpoint_that_would_answer_answers(scripts in prop::collection::vec(script(), 1..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let would_answer = scripts.iter().any(|(_, answers)| *answers);
        let scripts: Vec<Script> = scripts.into_iter().map(|(script, _)| script).collect();
        let seen = runtime.block_on(run(scripts, Call::default()));
        prop_assert_eq!(seen.result.is_ok(), would_answer, "{:?}", seen.asked);
    }
}
