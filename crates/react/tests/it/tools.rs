//! Tools: batches, failures, limits, panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{EventLog, MemoryLog, read_events};
use backstop_provider::{ProviderError, ScriptedProvider};
use backstop_react::{Agent, AgentError, Budget, Limits, Live};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::failure::{Effect, Facts, Failure, Retry};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::*;

/// Spec: T4, T6
#[tokio::test]
async fn batch_is_answered_in_call_order() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "add", json!({"x": 40, "y": 2})),
        call("c2", "nope", json!({})),
        call("c3", "add", json!({"x": "40"})),
        call("c4", "broken", json!({"how": "short"})),
        call("c5", "add", json!("{\"x\": 1")),
    ]);
    let outcome =
        bench.run(bench.agent(vec![batch, says("done")]).tool(add).tool(broken)).await.unwrap();
    assert_eq!((outcome.text(), &outcome.stop), ("done", &Stop::Completed));
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0], ("42".into(), false));
    assert_eq!(
        texts[1].0,
        "Tool 'nope' not found. Available: broken, get_tool_result, get_error_detail, add"
    );
    assert_eq!(texts[2].0, "Invalid input: y is required; x must be an integer");
    assert!(
        texts[3]
            .0
            .starts_with("Tool 'broken' failed: Short error\n[Error ID: err_20260101_000000_")
    );
    assert!(!texts[3].0.contains("get_error_detail"), "nothing was cut");
    assert!(texts[4].0.starts_with("Invalid input: arguments must be a JSON object"));
    assert!(texts[1..].iter().all(|(_, is_error)| *is_error));
    assert_eq!(outcome.usage.tool_calls, 2, "refused calls are no executions");
}

/// Sleeps for an hour of the clock it is given.
struct Sleeper(Arc<dyn Clock>, backstop_tool::ToolSpec);

#[async_trait::async_trait]
impl backstop_tool::Tool for Sleeper {
    fn spec(&self) -> &backstop_tool::ToolSpec {
        &self.1
    }

    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        self.0.sleep(Duration::from_secs(3_600)).await;
        Ok(json!("late").into())
    }
}

/// Spec: T3, T6, T7
#[tokio::test]
async fn hanging_tool_is_stopped_without_its_siblings() {
    let bench = Bench::new();
    let batch = calls([call("c1", "sleep", json!({})), call("c2", "add", json!({"x": 1, "y": 1}))]);
    let spec = backstop_tool::ToolSpec::new("sleep", "Sleeps.", json!({"type": "object"}));
    let sleeper = Sleeper(Arc::new(bench.clock.clone()), spec);
    let outcome =
        bench.run(bench.agent(vec![batch, says("done")]).tool(sleeper).tool(add)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(
        texts[0].0.starts_with("Tool 'sleep' timed out after 30s\n[Error ID: "),
        "{}",
        texts[0].0
    );
    assert_eq!(texts[1].0, "2");
    assert_eq!(bench.elapsed(), Duration::from_secs(30));
}

/// Spec: T6
#[tokio::test]
async fn no_more_tools_run_at_once_than_allowed() {
    let bench = Bench::new();
    let batch = calls((0..6).map(|n| call(&format!("c{n}"), "sleep", json!({}))));
    let spec = backstop_tool::ToolSpec::new("sleep", "Sleeps.", json!({"type": "object"}));
    let sleeper = Sleeper(Arc::new(bench.clock.clone()), spec);
    let limits = Limits::new().max_concurrent_tools(2);
    let agent = bench.agent(vec![batch, says("done")]).tool(sleeper).limits(limits);
    bench.run(agent).await.unwrap();
    assert_eq!(bench.elapsed(), Duration::from_secs(90), "three pairs of 30 s");
}

/// Spec: G4
#[tokio::test]
async fn an_oversized_batch_runs_nothing() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    /// Counts.
    #[tool]
    async fn count() -> Result<(), ToolError> {
        RAN.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    let bench = Bench::new();
    let batch = calls((0..3).map(|n| call(&format!("c{n}"), "count", json!({}))));
    let limits = Limits::new().max_parallel_tools(2);
    let failure = bench.run(bench.agent(vec![batch]).tool(count).limits(limits)).await.unwrap_err();
    assert!(matches!(
        failure.error,
        AgentError::ParallelToolLimitExceeded { count: 3, limit: 2, .. }
    ));
    assert_eq!(RAN.load(Ordering::SeqCst), 0);
}

/// A tool that panics when it returns its needs.
struct Needy(backstop_tool::ToolSpec);

#[async_trait::async_trait]
impl backstop_tool::Tool for Needy {
    fn spec(&self) -> &backstop_tool::ToolSpec {
        &self.0
    }

    fn needs(&self, _: &backstop_tool::Arguments) -> Result<Vec<String>, ToolError> {
        panic!("no idea")
    }

    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        _: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        Ok(Value::Null.into())
    }
}

/// Spec: E11
#[tokio::test]
async fn panic_in_a_tool_is_its_failure() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "needy", json!({}))]), says("done")];
    let needy = Needy(backstop_tool::ToolSpec::new("needy", "d", json!({"type": "object"})));
    let outcome = bench.run(bench.agent(answers).tool(needy)).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "Tool 'needy' panicked: no idea");
}

/// Blocks its thread until it is let go.
struct Blocks {
    spec: backstop_tool::ToolSpec,
    held: Arc<std::sync::Mutex<std::sync::mpsc::Receiver<()>>>,
    told: Arc<std::sync::atomic::AtomicBool>,
}

#[async_trait::async_trait]
impl backstop_tool::Tool for Blocks {
    fn spec(&self) -> &backstop_tool::ToolSpec {
        &self.spec
    }
    async fn call(
        &self,
        _: &backstop_tool::Arguments,
        context: &ToolContext,
    ) -> Result<backstop_tool::JsonText, ToolError> {
        let _ = self.held.lock().unwrap().recv();
        self.told.store(context.cancellation.is_cancelled(), Ordering::SeqCst);
        Ok(json!("too late").into())
    }
}

struct SharedPatient(Arc<Patient>);

/// Answers once it has seen that a tool was late.
struct Patient {
    script: ScriptedProvider,
    let_go: std::sync::Mutex<Option<std::sync::mpsc::Sender<()>>>,
    events: tokio::sync::Mutex<Option<backstop_react::Subscriber>>,
}

#[async_trait::async_trait]
impl backstop_provider::Provider for SharedPatient {
    fn name(&self) -> &str {
        "patient"
    }
    fn model(&self) -> &str {
        "patient"
    }
    async fn complete(
        &self,
        request: &backstop_provider::ModelRequest,
    ) -> Result<backstop_provider::ModelResponse, ProviderError> {
        if request.messages.messages().len() > 1 {
            drop(self.0.let_go.lock().unwrap().take());
            let mut events = self.0.events.lock().await.take().unwrap();
            while let Some(live) = events.next().await {
                if matches!(&live, Live::Logged(event) if event.kind.event_type() == "tool.late") {
                    break;
                }
            }
        }
        self.0.script.complete(request).await
    }
}

/// Spec: T7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_output_of_blocking_code_is_noted() {
    let (let_go, held) = std::sync::mpsc::channel();
    let patient = Arc::new(Patient {
        script: ScriptedProvider::new(vec![calls([call("c1", "blocks", json!({}))]), says("done")]),
        let_go: std::sync::Mutex::new(Some(let_go)),
        events: tokio::sync::Mutex::default(),
    });
    let told = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let spec = backstop_tool::ToolSpec::new("blocks", "d", json!({"type": "object"}))
        .timeout(Duration::from_millis(20));
    let log = Arc::new(MemoryLog::new());
    let agent = Agent::builder(SharedPatient(Arc::clone(&patient)))
        .tool(Blocks { spec, held: Arc::new(std::sync::Mutex::new(held)), told: Arc::clone(&told) })
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    *patient.events.lock().await = Some(agent.subscribe());
    let outcome = agent.run("input").await.unwrap();
    assert!(tool_texts(&outcome)[0].0.starts_with("Tool 'blocks' timed out after 20ms"));
    let events = read_events(&*log, &outcome.run_id).await.unwrap().1;
    assert_eq!(types(&events).iter().filter(|kind| **kind == "tool.late").count(), 1);
    assert!(!format!("{:?}", outcome.transcript).contains("too late"));
    assert!(told.load(Ordering::SeqCst), "it could have known");
}

/// Orders that fail twice.
struct Shop {
    orders: AtomicUsize,
    error: fn() -> ToolError,
}

/// Orders.
#[tool]
async fn order(shop: backstop_tool::State<Shop>) -> Result<&'static str, ToolError> {
    match shop.orders.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Err((shop.error)()),
        _ => Ok("ordered"),
    }
}

/// The shop is busy, and has not ordered.
#[derive(Debug, thiserror::Error)]
#[error("busy")]
struct Busy;

impl Failure for Busy {
    fn facts(&self) -> Facts {
        Facts::from_hint("shop.busy", Some(Duration::from_millis(20)), Effect::None)
    }
}

/// Spec: T8. A call that is not idempotent is repeated if its failure had no effect.
#[tokio::test]
async fn failure_without_effect_is_repeated() {
    const AFTER: Retry = Retry::After(Duration::from_millis(20));
    fn busy() -> ToolError {
        ToolError::ExecutionFailed("busy".into())
    }
    let cases: [(fn() -> ToolError, usize); 5] = [
        (|| ToolError::from_failure(Busy), 3),
        (|| busy().with_retry(AFTER).with_effect(Effect::None), 3),
        (|| busy().with_retry(Retry::Backoff).with_effect(Effect::None), 1),
        (|| busy().with_retry(AFTER), 1),
        (busy, 1),
    ];
    for (error, executions) in cases {
        let bench = Bench::new();
        let shop = Shop { orders: AtomicUsize::new(0), error };
        let answers = vec![calls([call("c1", "order", json!({}))]), says("done")];
        let outcome = bench.run(bench.agent(answers).tool(order).state(shop)).await.unwrap();
        let error = error();
        assert_eq!(outcome.usage.tool_calls as usize, executions, "{error:?}");
        assert_eq!(tool_texts(&outcome)[0].1, executions == 1, "{error:?}");
        let replayed = backstop_react::replay(&*bench.log, &outcome.run_id).await.unwrap();
        assert!(replayed.is_some());
    }
}

/// Spec: T8, B2
#[tokio::test]
async fn repeats_without_effect_keep_the_budget() {
    for (limit, executions) in [(3, 3), (2, 2), (1, 1)] {
        let bench = Bench::new();
        let shop = Shop { orders: AtomicUsize::new(0), error: || ToolError::from_failure(Busy) };
        let answers = vec![calls([call("c1", "order", json!({}))]), says("done")];
        let agent = bench.agent(answers).tool(order).state(shop);
        let outcome = bench.run(agent.budget(Budget::new().tool_calls(limit))).await.unwrap();
        assert_eq!(outcome.usage.tool_calls, executions, "of {limit}");
    }
}
