//! Several endpoints of one model: calls are spread, and an endpoint that refuses is not used for a while.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedError, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, RunFailure, RunOutcome, RunRequest, Upstream};
use backstop_retry::RetryConfig;
use layer0::event::{EventKind, ModelAttempted};
use layer0::id::RunId;
use layer0::stop::Stop;
use tokio_util::sync::CancellationToken;

use crate::bench::*;

fn endpoint(bench: &Bench, answers: impl IntoIterator<Item = ScriptedAnswer>) -> Upstream {
    let answers: Vec<_> = answers.into_iter().collect();
    Upstream::on_clock(Arc::new(ScriptedProvider::new(answers)), Arc::new(bench.clock.clone()))
}

/// An endpoint that answers.
fn well(bench: &Bench) -> Upstream {
    endpoint(bench, (0..9).map(|_| says("done")))
}

/// An endpoint that fails so once, and answers from then on.
fn refusing(bench: &Bench, kind: ErrorKind, hint_ms: Option<u64>) -> Upstream {
    let mut error = ScriptedError::new(kind);
    error.retry_after_ms = hint_ms;
    let refused = ScriptedAnswer::default().error(error);
    endpoint(bench, std::iter::once(refused).chain((0..9).map(|_| says("done"))))
}

fn built(bench: &Bench, agent: AgentBuilder) -> Agent {
    let agent = agent.clock(Arc::new(bench.clock.clone()));
    agent.shared_log(bench.log.clone()).build().unwrap()
}

async fn run(
    bench: &Bench,
    agent: &Agent,
    request: impl Into<RunRequest>,
) -> Result<RunOutcome, RunFailure> {
    let (agent, request) = (agent.clone(), request.into());
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(bench.clock.track(Box::pin(async move {
        let _ = done.send(agent.run(request).await);
    })));
    result.await.unwrap()
}

/// Lets time pass.
async fn pass(bench: &Bench, time: Duration) {
    let clock = bench.clock.clone();
    let sleep = async move { clock.sleep(time).await };
    tokio::spawn(bench.clock.track(Box::pin(sleep))).await.unwrap();
}

async fn attempts(bench: &Bench, run: &RunId) -> Vec<ModelAttempted> {
    let attempt = |kind| match kind {
        EventKind::ModelAttempted(attempted) => Some(attempted),
        _ => None,
    };
    bench.events(run).await.into_iter().filter_map(|event| attempt(event.kind)).collect()
}

/// Runs once, and returns who was asked.
async fn asked(bench: &Bench, agent: &Agent) -> Vec<String> {
    let outcome = run(bench, agent, "input").await.unwrap();
    let attempts = attempts(bench, &outcome.run_id).await;
    attempts.iter().map(|attempt| attempt.provider.to_string()).collect()
}

#[tokio::test]
async fn calls_are_spread_over_endpoints() {
    let bench = Bench::new();
    let pool = AgentBuilder::on(well(&bench)).endpoint(well(&bench)).endpoint(well(&bench));
    let agent = built(&bench, pool.fallback_on(well(&bench)));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(asked(&bench, &agent).await);
    }
    let names = ["script/script", "script/script#2", "script/script#3", "script/script"];
    assert_eq!(seen, names);
}

/// Spec: R3, R7
#[tokio::test]
async fn refusing_endpoint_is_left_alone() {
    let (first, second) = ("script/script", "script/script#2");
    for (kind, hint_ms, rests) in [
        (ErrorKind::RateLimited, None, 30_000),
        (ErrorKind::RateLimited, Some(9_000), 9_000),
        // Too long to be waited for.
        (ErrorKind::RateLimited, Some(3_600_000), 3_600_000),
        (ErrorKind::QuotaExhausted, None, 30_000),
        (ErrorKind::AuthFailed, None, 30_000),
        (ErrorKind::Transient, Some(9_000), 9_000),
    ] {
        let bench = Bench::new();
        let pool = AgentBuilder::on(refusing(&bench, kind, hint_ms)).endpoint(well(&bench));
        let agent = built(&bench, pool);
        assert_eq!(asked(&bench, &agent).await, [first, second], "{kind:?}");
        assert_eq!(bench.elapsed(), Duration::ZERO, "{kind:?}: the other is asked at once");
        // It would be the first one's turn.
        for _ in 0..3 {
            assert_eq!(asked(&bench, &agent).await, [second], "{kind:?}");
        }
        pass(&bench, Duration::from_millis(rests)).await;
        let both = [asked(&bench, &agent).await, asked(&bench, &agent).await].concat();
        assert!(both.contains(&first.to_owned()), "{kind:?}: {both:?}");
    }
}

#[tokio::test]
async fn a_cooldown_is_as_long_as_set() {
    let bench = Bench::new();
    let first = refusing(&bench, ErrorKind::AuthFailed, None).cooldown(Duration::from_secs(5));
    let second = refusing(&bench, ErrorKind::AuthFailed, None);
    // No endpoint remains when the second refuses too, and another attempt would not help.
    let agent = built(&bench, AgentBuilder::on(first).endpoint(second));
    let failure = run(&bench, &agent, "input").await.unwrap_err();
    assert_eq!(failure.code(), "provider.auth_failed");
    assert_eq!(bench.elapsed(), Duration::ZERO);
    // The next run waits for the first that is free.
    assert_eq!(asked(&bench, &agent).await, ["script/script"]);
    assert_eq!(bench.elapsed(), Duration::from_secs(5));
}

/// Spec: R3
#[tokio::test]
async fn a_call_waits_for_the_first_free_one() {
    let bench = Bench::new();
    let first = refusing(&bench, ErrorKind::RateLimited, Some(9_000));
    let second = refusing(&bench, ErrorKind::RateLimited, Some(5_000));
    let agent = built(&bench, AgentBuilder::on(first).endpoint(second));
    let (one, two) = ("script/script", "script/script#2");
    assert_eq!(asked(&bench, &agent).await, [one, two, two]);
    assert!(bench.elapsed() < Duration::from_secs(9), "{:?}", bench.elapsed());
}

#[tokio::test]
async fn each_endpoint_is_tried_beyond_the_attempts() {
    let bench = Bench::new();
    let mut pool = AgentBuilder::on(refusing(&bench, ErrorKind::AuthFailed, None));
    for _ in 0..4 {
        pool = pool.endpoint(refusing(&bench, ErrorKind::QuotaExhausted, None));
    }
    let agent = built(&bench, pool.endpoint(well(&bench)).retry(RetryConfig::new().attempts(1)));
    assert_eq!(asked(&bench, &agent).await.len(), 6);
}

/// Spec: R7
#[tokio::test]
async fn a_fallback_comes_after_the_pool() {
    for (kind, of_pool) in [(ErrorKind::QuotaExhausted, 2), (ErrorKind::ContextOverflow, 1)] {
        let bench = Bench::new();
        let pool = AgentBuilder::on(refusing(&bench, kind, None))
            .endpoint(refusing(&bench, kind, None))
            .fallback_on(well(&bench));
        let agent = built(&bench, pool);
        let seen = asked(&bench, &agent).await;
        assert_eq!(seen.len(), of_pool + 1, "{kind:?}: {seen:?}");
        assert_eq!(seen[of_pool], "script/script#3", "{kind:?}");
    }
}

/// Spec: B2
#[tokio::test]
async fn attempts_of_a_pool_count_for_the_budget() {
    let bench = Bench::new();
    let pool = AgentBuilder::on(refusing(&bench, ErrorKind::AuthFailed, None))
        .endpoint(refusing(&bench, ErrorKind::AuthFailed, None))
        .endpoint(well(&bench))
        .budget(backstop_react::Budget::new().model_calls(2));
    let agent = built(&bench, pool);
    let ended = run(&bench, &agent, "input").await.unwrap();
    assert_eq!(ended.stop.outcome().as_str(), "budget_exhausted");
    assert_eq!(attempts(&bench, &ended.run_id).await.len(), 2);
}

#[tokio::test]
async fn requests_of_a_minute_are_spread() {
    let bench = Bench::new();
    let agent = built(&bench, AgentBuilder::on(well(&bench).requests_per_minute(2)));
    let mut times = Vec::new();
    for _ in 0..4 {
        run(&bench, &agent, "input").await.unwrap();
        times.push(bench.elapsed().as_secs());
    }
    assert_eq!(times, [0, 0, 30, 60]);
}

#[tokio::test]
async fn tokens_of_a_minute_are_waited_for() {
    let bench = Bench::new();
    let answer = says("done").usage(layer0::usage::TokenUsage::new(500, 500));
    let upstream = endpoint(&bench, [answer.clone(), answer]).tokens_per_minute(600);
    let agent = built(&bench, AgentBuilder::on(upstream));
    run(&bench, &agent, "input").await.unwrap();
    run(&bench, &agent, "input").await.unwrap();
    // 1,000 were used of 600, and one is needed: 401 at 10 a second.
    assert_eq!(bench.elapsed(), Duration::from_millis(40_100));
}

/// Spec: R3. What was not sent has no status, and says how long the wait would be.
#[tokio::test]
async fn a_limit_too_long_to_wait_for_fails() {
    let bench = Bench::new();
    let pool = AgentBuilder::on(well(&bench).requests_per_minute(1))
        .retry(RetryConfig::new().max_retry_after(Duration::from_secs(9)));
    let agent = built(&bench, pool);
    run(&bench, &agent, "input").await.unwrap();
    let failure = run(&bench, &agent, "input").await.unwrap_err();
    assert_eq!(failure.code(), "provider.rate_limited");
    let [attempt] = &attempts(&bench, &failure.run_id).await[..] else { panic!("one attempt") };
    assert_eq!(attempt.status, None);
    assert_eq!(bench.elapsed(), Duration::ZERO);
    // With a fallback, the fallback is asked.
    let pool = AgentBuilder::on(well(&bench).requests_per_minute(1)).fallback_on(well(&bench));
    let agent =
        built(&bench, pool.retry(RetryConfig::new().max_retry_after(Duration::from_secs(9))));
    assert_eq!(asked(&bench, &agent).await, ["script/script"]);
    assert_eq!(asked(&bench, &agent).await, ["script/script", "script/script#2"]);
}

#[tokio::test]
async fn a_run_is_cancelled_while_it_waits() {
    let bench = Bench::new();
    let agent = built(&bench, AgentBuilder::on(well(&bench).requests_per_minute(1)));
    run(&bench, &agent, "input").await.unwrap();
    let token = CancellationToken::new();
    let (cancel, clock) = (token.clone(), bench.clock.clone());
    tokio::spawn(bench.clock.track(Box::pin(async move {
        clock.sleep(Duration::from_secs(7)).await;
        cancel.cancel();
    })));
    let request = RunRequest::new("input").cancelled_by(token);
    let outcome = run(&bench, &agent, request).await.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    assert_eq!(bench.elapsed(), Duration::from_secs(7));
    assert!(attempts(&bench, &outcome.run_id).await.is_empty(), "nothing was sent");
}

/// Agents on one upstream share its minute.
#[tokio::test]
async fn an_upstream_is_limited_across_agents() {
    let bench = Bench::new();
    let upstream = well(&bench).requests_per_minute(1);
    let one = built(&bench, AgentBuilder::on(upstream.clone()));
    let other = built(&bench, AgentBuilder::on(upstream));
    run(&bench, &one, "input").await.unwrap();
    run(&bench, &other, "input").await.unwrap();
    assert_eq!(bench.elapsed(), Duration::from_secs(60));
}
