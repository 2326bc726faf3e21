//! Laws of pools and fallbacks: whatever the order of endpoints, a call is answered where one of them would
//! answer in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_provider::{
    ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError, ScriptedAnswer, ScriptedError,
    ScriptedProvider,
};
use backstop_react::{Agent, AgentBuilder, Budget, RunFailure, RunOutcome, Upstream};
use backstop_retry::{Breaker, BreakerConfig, Jitter, RetryConfig};
use layer0::failure::{Failure, Retry, chain};
use layer0::message::StopReason;
use layer0::usage::{RateLevel, TokenUsage};
use proptest::prelude::*;

use crate::bench::*;

const ALWAYS: usize = 60;

/// An endpoint that fails with this error this number of times, and answers from then on.
fn failing(bench: &Bench, kind: ErrorKind, hint_ms: Option<u64>, times: usize) -> Upstream {
    let mut error = ScriptedError::new(kind);
    error.retry_after_ms = hint_ms;
    let failures = (0..times).map(|_| ScriptedAnswer::default().error(error.clone()));
    let answers: Vec<_> = failures.chain((0..9).map(|_| says("done"))).collect();
    Upstream::on_clock(Arc::new(ScriptedProvider::new(answers)), Arc::new(bench.clock.clone()))
}

fn breaking(bench: &Bench, upstream: Upstream, failures: u32, open_for: Duration) -> Upstream {
    let config = BreakerConfig::new().failures(failures).open_for(open_for);
    upstream.breaker(Breaker::new(config, Arc::new(bench.clock.clone())))
}

/// Builds an agent on pools, each the fallback of the one before it.
fn agent(bench: &Bench, pools: Vec<Vec<Upstream>>, retry: RetryConfig, seed: u64) -> Agent {
    let mut pools = pools.into_iter();
    let mut first = pools.next().unwrap().into_iter();
    let mut agent = AgentBuilder::on(first.next().unwrap());
    for endpoint in first {
        agent = agent.endpoint(endpoint);
    }
    for pool in pools {
        let mut endpoints = pool.into_iter();
        agent = agent.fallback_on(endpoints.next().unwrap());
        for endpoint in endpoints {
            agent = agent.endpoint(endpoint);
        }
    }
    agent
        .clock(Arc::new(bench.clock.clone()))
        .retry(retry)
        .jitter(Jitter::from_seed(seed))
        .budget(Budget::new().model_calls(1_000))
        .shared_log(bench.log.clone())
        .build()
        .unwrap()
}

async fn run(bench: &Bench, agent: &Agent) -> Result<RunOutcome, RunFailure> {
    let agent = agent.clone();
    on(bench, async move { agent.run("input").await }).await
}

/// Runs once on such pools.
async fn run_on(bench: &Bench, pools: Vec<Vec<Upstream>>) -> Result<RunOutcome, RunFailure> {
    run(bench, &agent(bench, pools, RetryConfig::new(), 7)).await
}

/// Spec: R7
#[tokio::test]
async fn pool_of_any_size_waits() {
    for keys in 1..6 {
        let bench = Bench::new();
        let limited = |_| failing(&bench, ErrorKind::RateLimited, Some(1_000), 1);
        let outcome = run_on(&bench, vec![(0..keys).map(limited).collect()]).await.unwrap();
        assert_eq!(outcome.text(), "done", "{keys} keys");
        assert!(bench.elapsed() >= Duration::from_secs(1), "{keys} keys");
    }
}

/// Spec: R7
#[tokio::test]
async fn open_circuits_use_up_no_attempts() {
    for keys in 1..5 {
        let bench = Bench::new();
        let open = |_| {
            let upstream = failing(&bench, ErrorKind::Transient, None, 2);
            breaking(&bench, upstream, 1, Duration::from_secs(2))
        };
        let outcome = run_on(&bench, vec![(0..keys).map(open).collect()]).await.unwrap();
        assert_eq!(outcome.text(), "done", "{keys} keys");
    }
}

/// Spec: R7
#[tokio::test]
async fn order_of_a_pool_does_not_matter() {
    for dead in [ErrorKind::AuthFailed, ErrorKind::QuotaExhausted] {
        for is_dead_first in [true, false] {
            let bench = Bench::new();
            let mut pool = vec![
                failing(&bench, dead, None, ALWAYS),
                failing(&bench, ErrorKind::RateLimited, Some(2_000), 1),
            ];
            if !is_dead_first {
                pool.reverse();
            }
            let fallback = vec![failing(&bench, ErrorKind::AuthFailed, None, ALWAYS)];
            run_on(&bench, vec![pool, fallback]).await.unwrap();
            assert!((2_000..4_000).contains(&bench.elapsed().as_millis()), "{:?}", bench.elapsed());
        }
    }
}

/// Spec: R7
#[tokio::test]
async fn refused_key_keeps_no_fallback_away() {
    for quota_first in [true, false] {
        let bench = Bench::new();
        let quota = failing(&bench, ErrorKind::QuotaExhausted, None, ALWAYS);
        let dead = failing(&bench, ErrorKind::AuthFailed, None, ALWAYS);
        let pool = if quota_first { vec![quota, dead] } else { vec![dead, quota] };
        let fallback = vec![failing(&bench, ErrorKind::Transient, None, 0)];
        run_on(&bench, vec![pool, fallback]).await.unwrap();
    }
}

/// Spec: R7
#[tokio::test]
async fn refusing_fallback_hides_no_other() {
    for first in [ErrorKind::QuotaExhausted, ErrorKind::Transient] {
        for refusing in [ErrorKind::AuthFailed, ErrorKind::QuotaExhausted] {
            let bench = Bench::new();
            let down = vec![failing(&bench, first, None, ALWAYS)];
            let fallback = vec![failing(&bench, refusing, None, ALWAYS)];
            let well = vec![failing(&bench, ErrorKind::Transient, None, 0)];
            run_on(&bench, vec![down, fallback, well]).await.unwrap();
        }
    }
}

/// Spec: R7, E8
#[tokio::test]
async fn passing_outage_stays_passing() {
    for (kind, its_text) in [
        (ErrorKind::AuthFailed, "authentication failed: scripted authentication failure"),
        (ErrorKind::InvalidRequest, "invalid request: scripted invalid request"),
        (ErrorKind::ContextOverflow, "context overflow: scripted context overflow"),
    ] {
        let bench = Bench::new();
        let down = vec![failing(&bench, ErrorKind::Transient, None, ALWAYS)];
        let fallback = vec![failing(&bench, kind, None, ALWAYS)];
        let failure = run_on(&bench, vec![down, fallback]).await.unwrap_err();
        let facts = failure.facts();
        assert_eq!((facts.code, facts.later), ("provider.transient", Retry::Backoff), "{kind:?}");
        let texts = chain(failure.error.as_cause());
        let expected = [
            "gave up after 3 attempts",
            "scripted transient error",
            "another provider failed before",
        ];
        assert_eq!(texts[..3], expected, "{its_text}");
        assert_eq!(texts.len(), 4, "{texts:?}");
    }
}

/// Spec: R7
#[tokio::test]
async fn pool_fails_with_what_passes_first() {
    let bench = Bench::new();
    let limited =
        |seconds: u64| failing(&bench, ErrorKind::RateLimited, Some(seconds * 1_000), ALWAYS);
    let dead = failing(&bench, ErrorKind::AuthFailed, None, ALWAYS);
    let pool = vec![limited(300), dead, limited(200), limited(400)];
    let failure = run_on(&bench, vec![pool]).await.unwrap_err();
    assert_eq!(failure.facts().later, Retry::After(Duration::from_secs(200)));
    let others = chain(failure.error.as_cause())
        .iter()
        .filter(|text| *text == "another endpoint failed")
        .count();
    assert_eq!(others, 1, "equal texts are kept once: {:?}", chain(failure.error.as_cause()));
}

/// Spec: R4
#[tokio::test]
async fn wait_for_the_minute_keeps_the_deadline() {
    let bench = Bench::new();
    let upstream = failing(&bench, ErrorKind::Transient, None, 2).requests_per_minute(1);
    let retry =
        RetryConfig::new().base(Duration::from_millis(100)).deadline(Duration::from_secs(5));
    let failure = run(&bench, &agent(&bench, vec![vec![upstream]], retry, 7)).await.unwrap_err();
    assert_eq!(failure.code(), "provider.rate_limited");
    assert!(bench.elapsed() <= Duration::from_secs(5), "{:?}", bench.elapsed());
}

/// Spec: R4. Two waits of forty seconds are longer than a minute.
#[tokio::test]
async fn waits_for_a_limit_count_for_the_deadline() {
    let bench = Bench::new();
    let upstream = failing(&bench, ErrorKind::Transient, None, ALWAYS).requests_per_minute(1);
    let retry = RetryConfig::new().attempts(9).deadline(Duration::from_secs(100));
    let failure = run(&bench, &agent(&bench, vec![vec![upstream]], retry, 7)).await.unwrap_err();
    assert_eq!(failure.usage.model_attempts, 3, "two that were sent, and one that was too late");
    assert!(bench.elapsed() <= Duration::from_secs(100), "{:?}", bench.elapsed());
}

/// An endpoint that always answers, and reports an odd rate limit.
struct Odd {
    asked: Arc<AtomicUsize>,
    level: RateLevel,
}

#[async_trait]
impl Provider for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn model(&self) -> &str {
        "odd"
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(sink) = &request.sink {
            sink.rate(Some(self.level), None);
        }
        let usage = Some(TokenUsage::new(1, 1));
        Ok(ModelResponse::new("done", Arc::default(), StopReason::End, usage))
    }
}

/// Spec: R7
#[tokio::test]
async fn odd_header_closes_no_endpoint() {
    for (limit, full_in) in [(500, 1_764_172_800), (50, 3_630), (1, 80_000)] {
        let bench = Bench::new();
        let asked = Arc::<AtomicUsize>::default();
        let level =
            RateLevel::new(0).with_limit(Some(limit)).full_in(Some(Duration::from_secs(full_in)));
        let provider = Arc::new(Odd { asked: Arc::clone(&asked), level });
        let upstream = Upstream::on_clock(provider, Arc::new(bench.clock.clone()));
        let agent = agent(&bench, vec![vec![upstream]], RetryConfig::new(), 7);
        for _ in 0..5 {
            run(&bench, &agent).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 5);
        assert!(bench.elapsed() <= Duration::from_secs(60), "{:?}", bench.elapsed());
    }
}

/// Spec: R7
#[tokio::test]
async fn pool_that_rests_for_long_is_probed() {
    let bench = Bench::new();
    let odd = || failing(&bench, ErrorKind::RateLimited, Some(1_764_172_800_000), 1);
    let agent = agent(&bench, vec![vec![odd(), odd()]], RetryConfig::new(), 7);
    run(&bench, &agent).await.unwrap_err();
    run(&bench, &agent).await.unwrap();
    assert_eq!(bench.elapsed(), Duration::ZERO);
}

/// Spec: R7. In the second run, the refused key has rested, and the limited one rests for long.
#[tokio::test]
async fn resting_endpoint_keeps_no_fallback_away() {
    let bench = Bench::new();
    let pool = vec![
        failing(&bench, ErrorKind::AuthFailed, None, ALWAYS),
        failing(&bench, ErrorKind::RateLimited, Some(3_600_000), ALWAYS),
    ];
    let fallback = vec![failing(&bench, ErrorKind::Transient, None, 0)];
    let agent = agent(&bench, vec![pool, fallback], RetryConfig::new(), 7);
    for _ in 0..3 {
        run(&bench, &agent).await.unwrap();
    }
}

/// Spec: R7. The other endpoint's attempts are used up while the circuit of the first is open.
#[tokio::test]
async fn pool_that_was_left_is_asked_again() {
    for seed in 0..20 {
        let bench = Bench::new();
        let first = failing(&bench, ErrorKind::Transient, None, 1);
        let pool = vec![
            breaking(&bench, first, 1, Duration::from_secs(30)),
            failing(&bench, ErrorKind::Transient, None, ALWAYS),
        ];
        let fallback = vec![failing(&bench, ErrorKind::AuthFailed, None, ALWAYS)];
        let agent = agent(&bench, vec![pool, fallback], RetryConfig::new(), seed);
        run(&bench, &agent).await.unwrap();
        assert!(bench.elapsed() >= Duration::from_secs(30), "seed {seed}");
    }
}

/// Fails after a minute.
struct Down {
    clock: Arc<dyn Clock>,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Provider for Down {
    fn name(&self) -> &str {
        "down"
    }

    fn model(&self) -> &str {
        "down"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.clock.sleep(Duration::from_secs(60)).await;
        Err(ProviderError::transient("down", Some(503)))
    }
}

/// Spec: R7
#[tokio::test]
async fn queued_runs_learn_of_an_open_circuit() {
    let bench = Bench::new();
    let (asked, clock) = (Arc::<AtomicUsize>::default(), Arc::new(bench.clock.clone()));
    let down = Down { clock: clock.clone(), asked: Arc::clone(&asked) };
    let upstream = Upstream::on_clock(Arc::new(down), clock).max_concurrent_calls(2);
    let upstream = breaking(&bench, upstream, 2, Duration::from_secs(3_600));
    let agent = agent(&bench, vec![vec![upstream]], RetryConfig::once(), 7);
    let runs = (0..20).map(|_| {
        let agent = agent.clone();
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(bench.clock.track(Box::pin(async move {
            let _ = done.send(agent.run("input").await.map(drop).map_err(|it| it.code()));
        })));
        result
    });
    let ends = futures_util::future::join_all(runs.collect::<Vec<_>>()).await;
    let count = |code| ends.iter().filter(|end| **end == Ok(Err(code))).count();
    assert_eq!((count("provider.transient"), count("provider.circuit_open")), (2, 18));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(bench.elapsed(), Duration::from_secs(60));
}

/// An endpoint of the law.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Fails with this error this number of times, then answers.
    Passing { kind: ErrorKind, hint_ms: Option<u64>, times: usize },
    /// Fails once, and opens its circuit for this number of seconds.
    Breaking(u64),
    /// Fails so for ever.
    Dead(ErrorKind, Option<u64>),
}

impl Kind {
    fn upstream(self, bench: &Bench) -> Upstream {
        match self {
            Self::Passing { kind, hint_ms, times } => failing(bench, kind, hint_ms, times),
            Self::Breaking(seconds) => {
                let upstream = failing(bench, ErrorKind::Transient, None, 1);
                breaking(bench, upstream, 1, Duration::from_secs(seconds))
            }
            Self::Dead(kind, hint_ms) => failing(bench, kind, hint_ms, ALWAYS),
        }
    }

    const fn would_answer(self) -> bool {
        !matches!(self, Self::Dead(..))
    }

    /// Returns whether another provider is asked after its failure.
    fn leads_on(self) -> bool {
        !matches!(self, Self::Dead(ErrorKind::AuthFailed, _))
    }
}

fn endpoint() -> impl Strategy<Value = Kind> {
    let passing = |kind, hint_ms, times| Kind::Passing { kind, hint_ms, times };
    prop_oneof![
        (0..3_usize).prop_map(move |times| passing(ErrorKind::Transient, None, times)),
        (1..3_usize).prop_map(move |times| passing(ErrorKind::RateLimited, None, times)),
        (1..60_u64, 1..3_usize).prop_map(move |(seconds, times)| {
            passing(ErrorKind::RateLimited, Some(seconds * 1_000), times)
        }),
        (1..60_u64).prop_map(move |seconds| passing(ErrorKind::Timeout, Some(seconds * 1_000), 1)),
        (1..60_u64).prop_map(Kind::Breaking),
        Just(Kind::Dead(ErrorKind::AuthFailed, None)),
        Just(Kind::Dead(ErrorKind::QuotaExhausted, None)),
        Just(Kind::Dead(ErrorKind::Transient, None)),
        Just(Kind::Dead(ErrorKind::RateLimited, Some(3_600_000))),
    ]
}

proptest! {
    /// Spec: R7. The first run meets the failures; those after it what that one left behind.
    #[test]
    fn one_endpoint_that_would_answer_answers(
        pools in prop::collection::vec(prop::collection::vec(endpoint(), 1..5), 1..4),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reached = pools.iter().position(|pool| !pool.iter().any(|it| it.leads_on()));
        let reached = &pools[..reached.map_or(pools.len(), |last| last + 1)];
        let would_answer = reached.iter().flatten().any(|it| it.would_answer());
        let answered: Vec<Result<String, Vec<String>>> = runtime.block_on(async {
            let bench = Bench::new();
            let upstreams = pools.iter().map(|pool| pool.iter().map(|it| it.upstream(&bench)).collect());
            let retry = RetryConfig::new().deadline(Duration::from_secs(3_600));
            let agent = agent(&bench, upstreams.collect(), retry, seed);
            let mut answered = Vec::new();
            for _ in 0..3 {
                let result = run(&bench, &agent).await;
                answered.push(result.map(|it| it.text().into()).map_err(|it| chain(it.error.as_cause())));
            }
            answered
        });
        // After a refused key, another endpoint is asked although the circuit of an earlier one is open.
        let may_answer = pools.iter().flatten().any(|it| it.would_answer());
        for result in answered {
            prop_assert!(result.is_ok() || !would_answer, "{:?}", result);
            prop_assert!(result.is_err() || may_answer, "{:?}", result);
        }
    }
}
