//! Model calls that are cancelled: the permits and tokens that they took, and those that they did not use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_provider::{
    ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError, ScriptedProvider,
};
use backstop_react::{Agent, AgentBuilder, RunOutcome, RunRequest, Upstream};
use layer0::message::StopReason;
use layer0::stop::Stop;
use layer0::usage::TokenUsage;
use tokio_util::sync::CancellationToken;

use crate::bench::*;

fn build(bench: &Bench, upstream: Upstream) -> Agent {
    let agent = AgentBuilder::on(upstream).clock(Arc::new(bench.clock.clone()));
    agent.shared_log(bench.log.clone()).build().unwrap()
}

/// Runs, and cancels the run after this time.
async fn cancel_after(bench: &Bench, agent: &Agent, time: Duration) -> RunOutcome {
    let token = CancellationToken::new();
    let (cancel, clock, agent) = (token.clone(), bench.clock.clone(), agent.clone());
    tokio::spawn(bench.clock.track(Box::pin(async move {
        clock.sleep(time).await;
        cancel.cancel();
    })));
    let request = RunRequest::new("input").cancelled_by(token);
    on(bench, async move { agent.run(request).await }).await.unwrap()
}

/// Spec: R5. The budget has ten retries in reserve, and a fifth of the calls.
#[tokio::test]
async fn cancelled_wait_gives_its_retry_back() {
    let bench = Bench::new();
    let mut limited = fails(ErrorKind::RateLimited);
    limited.error.as_mut().unwrap().retry_after_ms = Some(30_000);
    let provider = ScriptedProvider::new((0..30).map(|_| limited.clone()).collect::<Vec<_>>());
    let upstream = Upstream::on_clock(Arc::new(provider), Arc::new(bench.clock.clone()));
    let agent = build(&bench, upstream);
    for nth in 0..30 {
        let outcome = cancel_after(&bench, &agent, Duration::from_millis(1)).await;
        assert_eq!(outcome.stop, Stop::Cancelled, "run {nth}");
    }
}

/// A provider whose first call reports its usage, and then takes long.
struct Slow {
    clock: Arc<dyn Clock>,
    was_asked: AtomicBool,
}

#[async_trait]
impl Provider for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn model(&self) -> &str {
        "slow"
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let usage = TokenUsage::new(500, 500);
        if let Some(sink) = &request.sink {
            sink.usage(usage);
        }
        if !self.was_asked.swap(true, Ordering::SeqCst) {
            self.clock.sleep(Duration::from_secs(100)).await;
        }
        Ok(ModelResponse::new("done", Arc::default(), StopReason::End, Some(usage)))
    }
}

/// Spec: R4. 1,000 tokens were used of 600, and one is needed: 401 at 10 a second.
#[tokio::test]
async fn tokens_of_a_cut_attempt_count() {
    let bench = Bench::new();
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let slow = Slow { clock: Arc::clone(&clock), was_asked: AtomicBool::new(false) };
    let upstream = Upstream::on_clock(Arc::new(slow), clock).tokens_per_minute(600);
    let agent = build(&bench, upstream);
    cancel_after(&bench, &agent, Duration::from_secs(1)).await;
    on(&bench, async move { agent.run("input").await }).await.unwrap();
    assert_eq!(bench.elapsed(), Duration::from_millis(41_100));
}
