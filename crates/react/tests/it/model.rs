//! Model calls: attempts, failures, guards.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::{EventLog, MemoryLog, read_events};
use backstop_provider::{ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_react::{Agent, AgentError, Limits, RunFailure, RunRequest};
use backstop_retry::RetryConfig;
use layer0::Code;
use layer0::error::OrchError;
use layer0::event::EventKind;
use layer0::failure::{Effect, Failure, Retry, sources, stated_facts};
use layer0::usage::TokenUsage;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::*;

/// Spec: R8, R2
#[tokio::test]
async fn every_attempt_is_an_event_and_counts() {
    let bench = Bench::new();
    let mut transient = fails(ErrorKind::Transient);
    transient.error.as_mut().unwrap().status = Some(503);
    transient.usage = Some(TokenUsage::new(100, 7));
    let mut limited = fails(ErrorKind::RateLimited);
    limited.error.as_mut().unwrap().retry_after_ms = Some(20_000);
    let outcome = bench.run(bench.agent(vec![transient, limited, says("done")])).await.unwrap();
    let events = bench.events(&outcome.run_id).await;
    let attempts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ModelAttempted(attempted) => Some((
                attempted.attempt,
                attempted.code.as_ref().map(|code| code.to_string()),
                attempted.status,
            )),
            _ => None,
        })
        .collect();
    assert_eq!(
        attempts,
        [
            (1, Some("provider.transient".into()), Some(503)),
            (2, Some("provider.rate_limited".into()), Some(429)),
            (3, None, None),
        ]
    );
    assert_eq!((outcome.usage.model_calls, outcome.usage.model_attempts), (1, 3));
    assert_eq!(outcome.usage.input_tokens, 100);
    let waited = bench.elapsed();
    assert!(
        (Duration::from_secs(20)..Duration::from_millis(22_500)).contains(&waited),
        "{waited:?}"
    );
}

/// Spec: E5, E8, R9
#[tokio::test]
async fn failure_keeps_its_sources_upward() {
    let bench = Bench::new();
    let answers = (0..9).map(|_| fails(ErrorKind::Transient)).collect();
    let failure = bench.run(bench.agent(answers)).await.unwrap_err();
    assert_eq!((failure.code(), failure.retry()), ("provider.transient", Retry::Never));
    assert_eq!(failure.usage.model_attempts, 3);
    let events = bench.events(&failure.run_id).await;
    let EventKind::RunFailed(failed) = &events.last().unwrap().kind else { panic!("it failed") };
    assert_eq!(failed.chain, ["gave up after 3 attempts", "scripted transient error"]);

    assert!(!failure.is_retryable() && failure.may_pass_later());
    assert!(failure.error.may_pass_later());
    let error = OrchError::from(failure);
    assert!(!error.is_retryable() && error.may_pass_later());
    let chain: Vec<String> = sources(&error).map(ToString::to_string).collect();
    assert_eq!(chain[0], "operator failed");
    assert_eq!(chain[1], "operator could not use its model");
    assert!(chain[2].starts_with("run `run_"));
    assert_eq!(chain[3], "model call failed");
    assert_eq!(chain[4..], ["gave up after 3 attempts", "scripted transient error"]);
    assert!(sources(&error).any(|cause| cause.is::<RunFailure>()));
    assert!(sources(&error).any(|cause| cause.is::<AgentError>()));
    assert!(sources(&error).last().unwrap().is::<ProviderError>());
}

/// Spec: R1, E5
#[tokio::test]
async fn a_recorded_outage_may_pass_later() {
    for (kind, passes) in [(ErrorKind::Transient, true), (ErrorKind::AuthFailed, false)] {
        let bench = Bench::new();
        let answers = (0..3).map(|_| fails(kind)).collect();
        let failure = bench.run(bench.agent(answers)).await.unwrap_err();
        let effect = failure.effect();
        let resumed =
            bench.agent(Vec::new()).build().unwrap().resume(failure.run_id).await.unwrap_err();
        let facts = stated_facts(&resumed);
        assert_eq!((facts.retry, resumed.may_pass_later()), (Retry::Never, passes), "{kind:?}");
        assert_eq!(facts.effect, effect, "{kind:?}: as it was told live");
    }
}

/// Spec: G1, E4. No call fits the tool's schema, so nothing ran.
#[tokio::test]
async fn a_guard_before_any_call_had_no_effect() {
    let bench = Bench::new();
    let asking = |id| calls([call(id, "add", json!({"x": id}))]);
    let agent = bench.agent(vec![asking("c1"), asking("c2")]).tool(add);
    let agent = agent.limits(Limits::new().max_iterations(2));
    let failure = bench.run(agent).await.unwrap_err();
    assert_eq!((failure.code(), failure.usage.tool_calls), ("guard.max_iterations", 0));
    assert_eq!(failure.effect(), Effect::None);
    let resumed = bench.agent(Vec::new()).build().unwrap().resume(failure.run_id).await;
    assert_eq!(resumed.unwrap_err().effect(), Effect::None);
}

/// Spec: G1
#[tokio::test]
async fn a_tripped_guard_keeps_the_work() {
    let bench = Bench::new();
    let mut asking = calls([call("c1", "broken", json!({"how": "fine"}))]);
    asking.text = Some("let me look".into());
    let limits = Limits::new().max_iterations(1);
    let failure =
        bench.run(bench.agent(vec![asking]).tool(broken).limits(limits)).await.unwrap_err();
    assert!(matches!(failure.error, AgentError::MaxIterationsReached(1)));
    assert_eq!(&*failure.partial, "let me look");
    assert_eq!(failure.transcript.messages().len(), 3);
    assert_eq!(failure.effect(), Effect::Happened, "a tool that is not idempotent ran");
    let chain = &bench.events(&failure.run_id).await;
    assert_eq!(types(chain)[chain.len() - 2..], ["guard.tripped", "run.failed"]);
}

/// Spec: H1
#[tokio::test]
async fn empty_input_fails_before_the_model_call() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("never")]).build().unwrap();
    let failure = agent.run("  \n").await.unwrap_err();
    assert_eq!(failure.code(), "input.invalid");
    assert_eq!(types(&bench.events(&failure.run_id).await), ["run.started", "run.failed"]);
}

/// Panics when it is asked.
struct Rude;

#[async_trait]
impl Provider for Rude {
    fn name(&self) -> &str {
        "rude"
    }
    fn model(&self) -> &str {
        "rude"
    }
    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        panic!("no")
    }
}

/// Spec: E11
#[tokio::test]
async fn provider_panic_is_a_failed_call() {
    let failure = Agent::builder(Rude).build().unwrap().run("hi").await.unwrap_err();
    assert_eq!(failure.code(), "provider.other");
    assert!(format!("{failure:#}").ends_with("the provider panicked: no"), "{failure:#}");
}

/// A provider that cancels the run before it fails with a passing error.
struct FailsAndCancels(CancellationToken);

#[async_trait]
impl Provider for FailsAndCancels {
    fn name(&self) -> &str {
        "unlucky"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.0.cancel();
        Err(ProviderError::rate_limited("slow down", None))
    }
}

/// Spec: R8
#[tokio::test]
async fn ended_attempt_is_recorded_despite_cancellation() {
    let (log, token) = (Arc::new(MemoryLog::new()), CancellationToken::new());
    let agent = Agent::builder(FailsAndCancels(token.clone()))
        .stream(false)
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let outcome = agent.run(RunRequest::new("input").cancelled_by(token)).await.unwrap();
    assert_eq!(outcome.usage.model_attempts, 1);
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    let codes: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ModelAttempted(attempted) => attempted.code.as_ref().map(Code::to_string),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["provider.rate_limited"]);
}

/// Spec: R7. The limit of one attempt is the agent's.
#[tokio::test]
async fn attempt_timeout_is_the_agents() {
    let bench = Bench::new();
    let slow = says("late").delay_ms(60_000);
    let agent = bench.agent(vec![slow]).attempt_timeout(Duration::from_secs(7));
    let once = RetryConfig::new().attempts(1);
    let failure = bench.run(agent.retry(once)).await.unwrap_err();
    assert_eq!((failure.code(), bench.elapsed()), ("provider.timeout", Duration::from_secs(7)));
}
