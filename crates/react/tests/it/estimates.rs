//! Token counts that an endpoint does not report.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{EventLog, RunSummary};
use backstop_provider::{
    ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError, ScriptedAnswer,
    ScriptedProvider,
};
use backstop_react::{
    Agent, AgentBuilder, Budget, ForkRequest, LimitPeriod, Price, RunOutcome, RunRequest,
    SpendLimit, replay,
};
use backstop_state::MemoryStateStore;
use layer0::StateStore;
use layer0::event::{Event, EventKind, ModelAttempted};
use layer0::message::Image;
use layer0::stop::Stop;
use layer0::usage::TokenUsage;
use serde_json::json;

use crate::bench::*;

/// An endpoint that reports the usage of its script, and none if the script has none.
struct Untold(ScriptedProvider);

#[async_trait]
impl Provider for Untold {
    fn name(&self) -> &str {
        "untold"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let mut response = self.0.complete(request).await?;
        response.usage = response.usage.filter(|usage| *usage != TokenUsage::default());
        Ok(response)
    }
}

fn agent(bench: &Bench, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    Agent::builder(Untold(ScriptedProvider::new(answers)))
        .tool(add)
        .shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>)
        .price(Price::new(1_000.0, 1_000.0))
}

/// A model that adds something new as often as it is let.
fn adds(times: u32) -> Vec<ScriptedAnswer> {
    let turn = |n| calls([call(&format!("c{n}"), "add", json!({ "x": n, "y": 1 }))]);
    (0..times).map(turn).chain([says("done")]).collect()
}

fn attempts(events: &[Event]) -> Vec<&ModelAttempted> {
    let mut attempts = Vec::new();
    for event in events {
        if let EventKind::ModelAttempted(attempted) = &event.kind {
            attempts.push(attempted);
        }
    }
    attempts
}

fn warnings(events: &[Event]) -> usize {
    types(events).iter().filter(|event| **event == "warning").count()
}

async fn run(bench: &Bench, agent: AgentBuilder) -> (RunOutcome, Vec<Event>) {
    let outcome = agent.build().unwrap().run("How many?").await.unwrap();
    replay(&*bench.log, &outcome.run_id).await.unwrap();
    let events = bench.events(&outcome.run_id).await;
    (outcome, events)
}

/// Spec: B1
#[tokio::test]
async fn missing_counts_are_estimated_and_marked() {
    let bench = Bench::new();
    let text = "forty two ".repeat(40);
    for (reported, expected, estimated) in [
        (None, (true, 100), true),
        (Some(TokenUsage::new(7, 0)), (false, 100), true),
        (Some(TokenUsage::new(0, 9)), (true, 9), true),
        (Some(TokenUsage::new(7, 9)), (false, 9), false),
    ] {
        let mut answer = says(&text);
        answer.usage = reported;
        let (outcome, events) = run(&bench, agent(&bench, vec![answer])).await;
        let attempted = attempts(&events)[0];
        let usage = attempted.usage.unwrap();
        assert_eq!(usage.output_tokens, expected.1, "{reported:?}");
        assert_eq!(usage.input_tokens != 7, expected.0, "{reported:?}");
        assert!(usage.input_tokens > 0, "{reported:?}");
        assert_eq!(attempted.usage_estimated, estimated, "{reported:?}");
        let tokens = usage.input_tokens + usage.output_tokens;
        assert_eq!(attempted.cost_nanousd, Some(tokens * 1_000_000), "{reported:?}");
        assert_eq!(outcome.usage.total_tokens, tokens, "{reported:?}");
        assert_eq!(outcome.usage.estimated, estimated, "{reported:?}");
        assert_eq!(warnings(&events), usize::from(estimated), "{reported:?}");
        let responded = events.iter().find_map(|event| match &event.kind {
            EventKind::ModelResponded(responded) => Some(responded),
            _ => None,
        });
        let responded = responded.unwrap();
        assert_eq!((responded.usage, responded.usage_estimated), (usage, estimated));
    }
}

/// Spec: B1
#[tokio::test]
async fn images_count_in_estimated_prompts() {
    let bench = Bench::new();
    let mut counted = Vec::new();
    for images in [0, 2] {
        let agent = agent(&bench, vec![says("a cat")]).build().unwrap();
        let picture = Image::from_bytes(b"GIF89a\x01\x00\x01\x00").unwrap();
        let request = RunRequest::new("What is it?").images(vec![picture; images]);
        counted.push(agent.run(request).await.unwrap().usage.input_tokens);
    }
    assert_eq!(counted[1], counted[0] + 2 * 1_600);
}

/// Spec: B1. What a script leaves out is zero: it states all that its model uses.
#[tokio::test]
async fn counts_of_a_script_are_facts() {
    let bench = Bench::new();
    let outcome = bench.run(bench.agent(vec![says("42")])).await.unwrap();
    assert_eq!((outcome.usage.total_tokens, outcome.usage.estimated), (0, false));
    assert_eq!(warnings(&bench.events(&outcome.run_id).await), 0);
}

/// Spec: B2
#[tokio::test]
async fn budgets_hold_without_reported_usage() {
    let bench = Bench::new();
    for (budget, code) in [
        (Budget::new().total_tokens(500), "budget.total_tokens"),
        (Budget::new().input_tokens(500), "budget.input_tokens"),
        (Budget::new().output_tokens(20), "budget.output_tokens"),
        (Budget::new().cost_usd(0.5), "budget.cost_usd"),
    ] {
        let (outcome, events) = run(&bench, agent(&bench, adds(100)).budget(budget)).await;
        let Stop::BudgetExhausted { reason } = outcome.stop else { panic!("{code} holds") };
        assert_eq!(reason.as_str(), code);
        assert_eq!(
            warnings(&events),
            1,
            "{code}: once a run, {} attempts",
            attempts(&events).len()
        );
    }
}

/// Spec: B4
#[tokio::test]
async fn spend_limits_hold_without_reported_usage() {
    let bench = Bench::new();
    let state: Arc<dyn StateStore> = Arc::new(MemoryStateStore::new());
    let limit = SpendLimit::new("global".parse().unwrap(), LimitPeriod::Day, 0.5);
    let limited = agent(&bench, adds(100)).shared_state_store(state).spend_limit(limit);
    let (outcome, _) = run(&bench, limited).await;
    assert!(matches!(outcome.stop, Stop::BudgetExhausted { .. }), "{:?}", outcome.stop);
}

/// Spec: B1. The prompt was read, and a part of the answer was made.
#[tokio::test]
async fn broken_stream_counts_what_came() {
    let bench = Bench::new();
    let cut_off = fails(ErrorKind::StreamTruncated).text("twelve bytes");
    let refused = fails(ErrorKind::RateLimited);
    let (outcome, events) = run(&bench, agent(&bench, vec![cut_off, refused, says("42")])).await;
    let attempts = attempts(&events);
    let usage = attempts[0].usage.unwrap();
    assert_eq!((usage.output_tokens, attempts[0].usage_estimated), (3, true));
    assert_eq!((attempts[1].usage, attempts[1].usage_estimated), (None, false));
    let sum: u64 = attempts.iter().filter_map(|it| it.usage).map(|it| it.input_tokens).sum();
    assert_eq!(outcome.usage.input_tokens, sum);
}

/// Spec: D4, D7
#[tokio::test]
async fn estimates_survive_the_fold_and_forks() {
    let bench = Bench::new();
    let (outcome, events) = run(&bench, agent(&bench, adds(2))).await;
    let mut folded = RunSummary::new(outcome.run_id.clone());
    events.iter().for_each(|event| folded.apply(event));
    assert_eq!(folded.usage, outcome.usage);
    let mut open = RunSummary::new(outcome.run_id.clone());
    events[..events.len() - 1].iter().for_each(|event| open.apply(event));
    assert!(open.usage.estimated, "not only once the run is over");
    let at = events.iter().position(|event| event.kind.event_type() == "tool.responded").unwrap();
    let fork = ForkRequest::new(outcome.run_id, at as u64 + 1);
    let forked = agent(&bench, vec![says("done")]).build().unwrap().fork(fork).await.unwrap();
    let copied = bench.events(&forked.run_id).await;
    assert!(forked.usage.estimated && forked.usage.total_tokens > 0);
    assert_eq!(warnings(&copied), 1, "the copy has the warning already");
    replay(&*bench.log, &forked.run_id).await.unwrap();
}

/// Spec: B1
#[tokio::test]
async fn cost_without_a_price_is_unknown() {
    let unpriced = Agent::builder(Untold(ScriptedProvider::saying(["42"])));
    let outcome = unpriced.build().unwrap().run(RunRequest::new("How many?")).await.unwrap();
    assert_eq!((outcome.usage.cost_usd, outcome.usage.estimated), (None, true));
}
