//! Later calls of a pool whose endpoints were left for another provider.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedError, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, Upstream};
use backstop_retry::{Breaker, BreakerConfig, RetryConfig};
use layer0::event::EventKind;

use crate::bench::*;

const FALLBACK: &str = "script/script#3";

/// An endpoint that always fails so.
fn failing(bench: &Bench, kind: ErrorKind) -> Upstream {
    refusing(bench, kind, None, 60)
}

/// An endpoint that fails this number of times, and answers from then on.
fn refusing(bench: &Bench, kind: ErrorKind, hint_ms: Option<u64>, times: usize) -> Upstream {
    let mut error = ScriptedError::new(kind);
    error.retry_after_ms = hint_ms;
    let failures = (0..times).map(|_| ScriptedAnswer::default().error(error.clone()));
    let answers: Vec<_> = failures.chain((0..9).map(|_| says("done"))).collect();
    Upstream::on_clock(Arc::new(ScriptedProvider::new(answers)), Arc::new(bench.clock.clone()))
}

/// An endpoint whose circuit opens at its first failure.
fn breaking(bench: &Bench) -> Upstream {
    let config = BreakerConfig::new().failures(1).open_for(Duration::from_secs(50));
    let breaker = Breaker::new(config, Arc::new(bench.clock.clone()));
    failing(bench, ErrorKind::Transient).breaker(breaker)
}

fn agent(bench: &Bench, pool: [Upstream; 2], attempts: u32) -> Agent {
    let [first, second] = pool;
    AgentBuilder::on(first)
        .endpoint(second)
        .fallback_on(refusing(bench, ErrorKind::Transient, None, 0))
        .retry(RetryConfig::new().attempts(attempts))
        .clock(Arc::new(bench.clock.clone()))
        .shared_log(bench.log.clone())
        .build()
        .unwrap()
}

/// Runs once, and returns who was asked last, or the code of the failure, and the time that it took.
async fn run(bench: &Bench, agent: &Agent) -> (String, Duration) {
    let (agent, began) = (agent.clone(), bench.elapsed());
    let ended = on(bench, async move { agent.run("input").await }).await;
    let last = match ended {
        Err(failure) => failure.code().to_owned(),
        Ok(outcome) => {
            let attempted = |kind| match kind {
                EventKind::ModelAttempted(attempted) => Some(attempted.provider.to_string()),
                _ => None,
            };
            let events = bench.events(&outcome.run_id).await;
            events.into_iter().filter_map(|event| attempted(event.kind)).next_back().unwrap()
        }
    };
    (last, bench.elapsed().saturating_sub(began))
}

/// Spec: R7
#[tokio::test]
async fn endpoints_left_before_are_not_waited_for() {
    type Pool = fn(&Bench) -> [Upstream; 2];
    let pools: [(&str, Pool); 4] = [
        ("two quotas", |bench| [ErrorKind::QuotaExhausted; 2].map(|kind| failing(bench, kind))),
        ("quota, key", |bench| {
            [ErrorKind::QuotaExhausted, ErrorKind::AuthFailed].map(|kind| failing(bench, kind))
        }),
        ("key, quota", |bench| {
            [ErrorKind::AuthFailed, ErrorKind::QuotaExhausted].map(|kind| failing(bench, kind))
        }),
        ("circuit, key", |bench| [breaking(bench), failing(bench, ErrorKind::AuthFailed)]),
    ];
    for (name, pool) in pools {
        let bench = Bench::new();
        let agent = agent(&bench, pool(&bench), 2);
        assert_eq!(run(&bench, &agent).await.0, FALLBACK, "{name}");
        for _ in 0..3 {
            assert_eq!(run(&bench, &agent).await, (FALLBACK.into(), Duration::ZERO), "{name}");
        }
    }
}

/// Spec: R7
#[tokio::test]
async fn key_refused_again_keeps_no_fallback_away() {
    let bench = Bench::new();
    let key = failing(&bench, ErrorKind::AuthFailed).cooldown(Duration::from_secs(5));
    let agent = agent(&bench, [failing(&bench, ErrorKind::QuotaExhausted), key], 3);
    for _ in 0..3 {
        assert_eq!(run(&bench, &agent).await, (FALLBACK.into(), Duration::ZERO));
        // The key is asked again, and the quota still rests.
        let clock = bench.clock.clone();
        on(&bench, async move { clock.sleep(Duration::from_secs(6)).await }).await;
    }
}

/// Spec: R7
#[tokio::test]
async fn limit_is_waited_for_in_later_calls() {
    for is_limit_first in [true, false] {
        let bench = Bench::new();
        let limited = refusing(&bench, ErrorKind::RateLimited, Some(9_000), 1);
        let quota = failing(&bench, ErrorKind::QuotaExhausted);
        let (pool, name) = match is_limit_first {
            true => ([limited, quota], "script/script"),
            false => ([quota, limited], "script/script#2"),
        };
        let agent = agent(&bench, pool, 1);
        assert_eq!(run(&bench, &agent).await, (FALLBACK.into(), Duration::ZERO));
        assert_eq!(run(&bench, &agent).await, (name.into(), Duration::from_secs(9)));
    }
}

/// Spec: R7
#[tokio::test]
async fn refused_keys_alone_ask_no_fallback() {
    let bench = Bench::new();
    let agent = agent(&bench, [ErrorKind::AuthFailed; 2].map(|kind| failing(&bench, kind)), 3);
    let refused = |seconds| ("provider.auth_failed".to_owned(), Duration::from_secs(seconds));
    assert_eq!(run(&bench, &agent).await, refused(0));
    assert_eq!(run(&bench, &agent).await, refused(30));
}

/// Spec: R7
#[tokio::test]
async fn quota_is_asked_again_after_its_pause() {
    let bench = Bench::new();
    let quota = || refusing(&bench, ErrorKind::QuotaExhausted, None, 1);
    let agent = agent(&bench, [quota(), quota()], 3);
    assert_eq!(run(&bench, &agent).await.0, FALLBACK);
    let clock = bench.clock.clone();
    on(&bench, async move { clock.sleep(Duration::from_secs(30)).await }).await;
    assert_ne!(run(&bench, &agent).await.0, FALLBACK);
}
