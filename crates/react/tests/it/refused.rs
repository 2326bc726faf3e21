//! Attempts that a circuit breaker refused: earlier failures stay in the chain.

use std::sync::Arc;

use backstop_provider::{ErrorKind, ScriptedProvider};
use backstop_react::{AgentBuilder, RunFailure, Upstream};
use backstop_retry::{Breaker, BreakerConfig, RetryConfig};
use layer0::event::EventKind;
use layer0::failure::chain;

use crate::bench::*;

/// An upstream that fails so, and whose circuit opens at the second failure.
fn failing(bench: &Bench, kind: ErrorKind) -> Upstream {
    let clock = Arc::new(bench.clock.clone());
    let provider = ScriptedProvider::new((0..9).map(|_| fails(kind)).collect::<Vec<_>>());
    let config = BreakerConfig::new().failures(2);
    Upstream::on_clock(Arc::new(provider), clock.clone()).breaker(Breaker::new(config, clock))
}

async fn fail(bench: &Bench, agent: AgentBuilder, attempts: u32) -> RunFailure {
    let retry = RetryConfig::new().attempts(attempts);
    let agent = agent.retry(retry).clock(Arc::new(bench.clock.clone()));
    bench.run(agent.shared_log(bench.log.clone())).await.unwrap_err()
}

/// Checks the causes of a failure, as the caller gets them and as they are recorded.
#[track_caller]
fn check(failure: &RunFailure, recorded: &EventKind, code: &str, causes: &[&str]) {
    assert_eq!(failure.code(), code);
    assert_eq!(chain(failure.error.as_cause()), *causes);
    let EventKind::RunFailed(failed) = recorded else { panic!("it failed") };
    assert_eq!(failed.chain, causes);
}

async fn last_event(bench: &Bench, failure: &RunFailure) -> EventKind {
    bench.events(&failure.run_id).await.pop().unwrap().kind
}

/// Spec: R7, E8
#[tokio::test]
async fn a_refused_attempt_keeps_the_last_failure() {
    let bench = Bench::new();
    let upstream = failing(&bench, ErrorKind::Transient);
    fail(&bench, AgentBuilder::on(upstream.clone()), 2).await;
    // A run whose only attempt is refused has the earlier failure too.
    let failure = fail(&bench, AgentBuilder::on(upstream), 1).await;
    let causes = ["gave up after 1 attempts", "circuit is open", "scripted transient error"];
    check(&failure, &last_event(&bench, &failure).await, "provider.circuit_open", &causes);
}

/// Spec: R7. An open circuit is waited for, and the refusal is no attempt.
#[tokio::test]
async fn refused_request_is_no_attempt() {
    let bench = Bench::new();
    let failure = fail(&bench, AgentBuilder::on(failing(&bench, ErrorKind::Transient)), 3).await;
    let causes = ["gave up after 4 attempts", "scripted transient error"];
    check(&failure, &last_event(&bench, &failure).await, "provider.transient", &causes);
    let waited = bench.elapsed();
    assert!((30..36).contains(&waited.as_secs()), "until the probe: {waited:?}");
}

/// Spec: R7, E8
#[tokio::test]
async fn a_refused_fallback_keeps_both_failures() {
    let bench = Bench::new();
    let down = failing(&bench, ErrorKind::Transient);
    fail(&bench, AgentBuilder::on(down.clone()), 2).await;
    let unpaid = failing(&bench, ErrorKind::QuotaExhausted);
    let failure = fail(&bench, AgentBuilder::on(unpaid).fallback_on(down), 1).await;
    let causes = [
        "gave up after 1 attempts",
        "circuit is open",
        "scripted transient error",
        "another provider failed before",
        "quota exhausted: scripted quota",
    ];
    check(&failure, &last_event(&bench, &failure).await, "provider.circuit_open", &causes);
}

/// Spec: R7, E8
#[tokio::test]
async fn two_refused_providers_keep_their_failures() {
    let bench = Bench::new();
    let first = failing(&bench, ErrorKind::Transient);
    let second = failing(&bench, ErrorKind::StreamTruncated);
    let agent = || AgentBuilder::on(first.clone()).fallback_on(second.clone());
    fail(&bench, agent(), 2).await;
    let failure = fail(&bench, agent(), 1).await;
    let causes = [
        "circuit is open",
        "scripted transient error",
        "another provider failed before",
        "gave up after 1 attempts",
        "circuit is open",
        "stream ended before the scripted end marker",
    ];
    check(&failure, &last_event(&bench, &failure).await, "provider.circuit_open", &causes);
}
