//! The agent through its real path: scripted model, real retry stack, real tools, real stores.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::{Clock, VirtualClock};
use error_store::{ErrorFilter, ErrorStore, MemoryErrorStore};
use event_log::{Batch, EventLog, LogError, MemoryLog, Record, RunFilter, RunSummary, read_events};
use layer0::error::{OperatorError, OrchError};
use layer0::event::{Event, EventKind};
use layer0::failure::{Effect, Failure, Retry, sources};
use layer0::id::RunId;
use layer0::message::Message;
use layer0::stop::Stop;
use layer0::usage::TokenUsage;
use provider::{
    ErrorKind, ProviderError, ScriptedAnswer, ScriptedError, ScriptedProvider, ScriptedToolCall,
};
use react::{Agent, AgentBuilder, AgentError, Limits, Live, RunFailure, RunOutcome};
use serde_json::{Value, json};
use tool::{ToolContext, ToolError, tool};

fn call(id: &str, name: &str, arguments: Value) -> ScriptedToolCall {
    ScriptedToolCall { id: id.into(), name: name.into(), arguments }
}

fn calls(calls: impl IntoIterator<Item = ScriptedToolCall>) -> ScriptedAnswer {
    ScriptedAnswer { tool_calls: calls.into_iter().collect(), ..Default::default() }
}

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer { text: Some(text.into()), ..Default::default() }
}

fn fails(kind: ErrorKind) -> ScriptedAnswer {
    let error = ScriptedError { kind, retry_after_ms: None, status: None };
    ScriptedAnswer { error: Some(error), ..Default::default() }
}

/// An agent on a virtual clock with a log and an error store that can be looked into.
struct Bench {
    clock: VirtualClock,
    log: Arc<MemoryLog>,
    errors: Arc<MemoryErrorStore>,
}

impl Bench {
    fn new() -> Self {
        let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        Self { clock, log: Arc::default(), errors: Arc::default() }
    }

    fn agent(&self, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Agent::builder(ScriptedProvider::new(answers).with_clock(Arc::clone(&clock)))
            .clock(clock)
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .shared_error_store(Arc::clone(&self.errors) as Arc<dyn ErrorStore>)
    }

    async fn run(&self, agent: AgentBuilder) -> Result<RunOutcome, RunFailure> {
        let agent = agent.build().unwrap();
        let (done, result) = tokio::sync::oneshot::channel();
        tokio::spawn(self.clock.track(Box::pin(async move {
            let _ = done.send(agent.run("question").await);
        })));
        result.await.unwrap()
    }

    async fn events(&self, run: &RunId) -> Vec<Event> {
        read_events(&*self.log, run).await.unwrap().1
    }

    fn elapsed(&self) -> Duration {
        self.clock.now().since("2026-01-01T00:00:00Z".parse().unwrap())
    }
}

fn types(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.event_type()).collect()
}

fn tool_texts(outcome: &RunOutcome) -> Vec<(String, bool)> {
    let text = |message: &Arc<Message>| match &**message {
        Message::Tool { content, is_error, .. } => Some((content.to_string(), *is_error)),
        _ => None,
    };
    outcome.transcript.messages().iter().filter_map(text).collect()
}

/// Add two integers.
#[tool(idempotent)]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

/// Fails as asked.
#[tool]
async fn broken(how: String, context: &ToolContext) -> Result<String, ToolError> {
    match how.as_str() {
        "panic" => panic!("index 7 out of range for {}", context.call_id),
        "long" => Err(ToolError::ExecutionFailed(format!("first line\n{}", "trace\n".repeat(500)))
            .with_code("SQL_ERROR")),
        "short" => Err(ToolError::ExecutionFailed("Short error".into())),
        "key" => Err(ToolError::ExecutionFailed("refused: api_key=abcdef0123456789".into())),
        other => Ok(other.to_owned()),
    }
}

/// Spec: T4, T6
#[tokio::test]
async fn a_batch_is_answered_in_call_order_and_failures_are_marked() {
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
    assert_eq!(texts[1].0, "Tool 'nope' not found. Available: broken, get_error_detail, add");
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

/// Spec: T2, D2
#[tokio::test]
async fn the_log_tells_the_story_in_order() {
    let bench = Bench::new();
    let batch =
        calls([call("c1", "broken", json!({"how": "long"})), call("c2", "nope", json!({}))]);
    let outcome = bench.run(bench.agent(vec![batch, says("done")]).tool(broken)).await.unwrap();
    let events = bench.events(&outcome.run_id).await;
    assert_eq!(
        types(&events),
        [
            "run.started",
            "model.requested",
            "model.attempted",
            "model.responded",
            "tool.requested",
            "tool.responded",
            "error.stored",
            "tool.responded",
            "model.requested",
            "model.attempted",
            "model.responded",
            "run.finished",
        ]
    );
    let causes: Vec<Option<u64>> = events.iter().map(|event| event.caused_by).collect();
    assert_eq!(
        causes,
        [
            None,
            Some(1),
            Some(2),
            Some(2),
            Some(4),
            Some(4),
            Some(5),
            Some(5),
            Some(8),
            Some(9),
            Some(9),
            Some(11)
        ]
    );
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("it starts") };
    assert_eq!(started.agent.definition["tools"][0]["name"], "broken");
    assert_eq!(started.agent.digest.len(), 64);
}

/// Spec: S5, S9
#[tokio::test]
async fn errors_are_stored_whole_and_redacted() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "broken", json!({"how": "long"})),
        call("c2", "broken", json!({"how": "key"})),
        call("c3", "broken", json!({"how": "panic"})),
    ]);
    let outcome = bench.run(bench.agent(vec![batch, says("done")]).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
    let long = stored.iter().find(|error| error.call_id.as_str() == "c1").unwrap();
    assert_eq!(
        texts[0].0,
        format!(
            "Tool 'broken' failed: Code SQL_ERROR: first line\n[Error ID: {id}]\n\
             Use get_error_detail(error_id=\"{id}\") for the complete error.",
            id = long.id
        )
    );
    assert_eq!(error_store::readable(&long.raw).len(), "first line\n".len() + 3_000);
    assert!(texts[1].0.contains("api_key=[redacted]"), "{}", texts[1].0);
    assert!(stored.iter().all(|error| !error.raw.contains("abcdef0123456789")));
    assert!(texts[2].0.starts_with("Tool 'broken' panicked: index 7 out of range for c3\n"));
}

/// Spec: S7
#[tokio::test]
async fn the_model_reads_the_detail_and_recovers() {
    let bench = Bench::new();
    let answers = vec![
        calls([call("c1", "broken", json!({"how": "long"}))]),
        calls([call("c2", "get_error_detail", json!({"error_id": "${error_id.1}"}))]),
        calls([call("c3", "get_error_detail", json!({"error_id": "err_20260101_000000_ffffff"}))]),
        calls([call("c4", "broken", json!({"how": "fine"}))]),
        says("recovered"),
    ];
    let outcome = bench.run(bench.agent(answers).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(!texts[1].1 && texts[1].0.contains("trace\\ntrace"), "{}", texts[1].0);
    assert_eq!(texts[2].0, "Error ID not found: err_20260101_000000_ffffff");
    assert_eq!(texts[3], ("fine".into(), false));
    assert_eq!(bench.errors.list(ErrorFilter::default()).await.unwrap().len(), 1);
}

/// Spec: S6
#[tokio::test]
async fn without_a_store_the_model_reads_the_head() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "broken", json!({"how": "long"}))]), says("done")];
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let agent = Agent::builder(ScriptedProvider::new(answers)).clock(clock).tool(broken);
    let outcome = bench.run(agent).await.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0].0.chars().count(), "Tool error: SQL_ERROR - ".len() + 500);
    assert!(texts[0].0.starts_with("Tool error: SQL_ERROR - first line\ntrace"));
}

/// Sleeps for an hour of the clock it is given.
struct Sleeper(Arc<dyn Clock>, tool::ToolSpec);

#[async_trait::async_trait]
impl tool::Tool for Sleeper {
    fn spec(&self) -> &tool::ToolSpec {
        &self.1
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        self.0.sleep(Duration::from_secs(3_600)).await;
        Ok(json!("late"))
    }
}

/// Spec: T3, T6, T7
#[tokio::test]
async fn a_tool_that_hangs_is_stopped_and_its_siblings_are_not() {
    let bench = Bench::new();
    let batch = calls([call("c1", "sleep", json!({})), call("c2", "add", json!({"x": 1, "y": 1}))]);
    let spec = tool::ToolSpec::new("sleep", "Sleeps.", json!({"type": "object"}));
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
    let spec = tool::ToolSpec::new("sleep", "Sleeps.", json!({"type": "object"}));
    let sleeper = Sleeper(Arc::new(bench.clock.clone()), spec);
    let limits = Limits { max_concurrent_tools: 2, ..Limits::default() };
    let agent = bench.agent(vec![batch, says("done")]).tool(sleeper).limits(limits);
    bench.run(agent).await.unwrap();
    assert_eq!(bench.elapsed(), Duration::from_secs(90), "three pairs of 30 s");
}

/// Spec: R8, R2
#[tokio::test]
async fn every_attempt_is_an_event_and_counts() {
    let bench = Bench::new();
    let mut transient = fails(ErrorKind::Transient);
    transient.error.as_mut().unwrap().status = Some(503);
    transient.usage = Some(TokenUsage { input_tokens: 100, output_tokens: 7, cached_tokens: 0 });
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
async fn a_failure_keeps_its_sources_up_to_the_orchestrator() {
    let bench = Bench::new();
    let answers = (0..9).map(|_| fails(ErrorKind::Transient)).collect();
    let failure = bench.run(bench.agent(answers)).await.unwrap_err();
    assert_eq!((failure.code(), failure.retry()), ("provider.transient", Retry::Never));
    assert_eq!(failure.usage.model_attempts, 3);
    let events = bench.events(&failure.run_id).await;
    let EventKind::RunFailed(failed) = &events.last().unwrap().kind else { panic!("it failed") };
    assert_eq!(failed.chain, ["gave up after 3 attempts", "scripted transient error"]);

    let error = OrchError::from(OperatorError::from(failure));
    assert!(!error.is_retryable());
    let chain: Vec<String> = sources(&error).map(ToString::to_string).collect();
    assert_eq!(chain[0], "operator failed");
    assert_eq!(chain[1], "model call failed");
    assert!(chain[2].starts_with("run `run_"));
    assert_eq!(
        chain[3..],
        ["model call failed", "gave up after 3 attempts", "scripted transient error"]
    );
    assert!(sources(&error).last().unwrap().is::<ProviderError>());
}

/// Spec: G1
#[tokio::test]
async fn a_tripped_guard_keeps_the_work() {
    let bench = Bench::new();
    let mut asking = calls([call("c1", "broken", json!({"how": "fine"}))]);
    asking.text = Some("let me look".into());
    let limits = Limits { max_iterations: 1, ..Limits::default() };
    let failure =
        bench.run(bench.agent(vec![asking]).tool(broken).limits(limits)).await.unwrap_err();
    assert!(matches!(failure.error, AgentError::MaxIterationsReached(1)));
    assert_eq!(&*failure.partial, "let me look");
    assert_eq!(failure.transcript.messages().len(), 3);
    assert_eq!(failure.effect(), Effect::Happened, "a tool that is not idempotent ran");
    let chain = &bench.events(&failure.run_id).await;
    assert_eq!(types(chain)[chain.len() - 2..], ["guard.tripped", "run.failed"]);
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
    let limits = Limits { max_parallel_tools: 2, ..Limits::default() };
    let failure = bench.run(bench.agent(vec![batch]).tool(count).limits(limits)).await.unwrap_err();
    assert!(matches!(
        failure.error,
        AgentError::ParallelToolLimitExceeded { count: 3, limit: 2, .. }
    ));
    assert_eq!(RAN.load(Ordering::SeqCst), 0);
}

/// Spec: H1
#[tokio::test]
async fn an_empty_input_fails_before_the_model_is_asked() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("never")]).build().unwrap();
    let failure = agent.run("  \n").await.unwrap_err();
    assert_eq!(failure.code(), "input.invalid");
    assert_eq!(types(&bench.events(&failure.run_id).await), ["run.started", "run.failed"]);
}

/// A log that fails at a seq.
struct FailingLog(Arc<MemoryLog>, u64);

#[async_trait::async_trait]
impl EventLog for FailingLog {
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        if batch.records.iter().any(|record| record.seq == self.1) {
            return Err(LogError::Full("quota".into()));
        }
        self.0.append(batch).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.0.summary(run).await
    }
    async fn records(&self, run: &RunId, from: u64) -> Result<Vec<Record>, LogError> {
        self.0.records(run, from).await
    }
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        self.0.runs(filter).await
    }
}

/// Spec: D2
#[tokio::test]
async fn nothing_is_acted_on_that_could_not_be_logged() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    /// Acts.
    #[tool]
    async fn act() -> Result<(), ToolError> {
        RAN.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    for seq in 1..=5 {
        let bench = Bench::new();
        let log = FailingLog(Arc::clone(&bench.log), seq);
        // Two attempts, so that seq 3 is appended while the retry stack waits.
        let answers =
            vec![fails(ErrorKind::Transient), calls([call("c1", "act", json!({}))]), says("x")];
        let failure = bench.run(bench.agent(answers).tool(act).log(log)).await.unwrap_err();
        assert!(matches!(&failure.error, AgentError::Storage(LogError::Full(_))), "{failure:#}");
        assert_eq!(failure.code(), "log.append_failed");
        let logged = bench.log.records(&failure.run_id, 1).await.unwrap();
        assert!(logged.iter().all(|record| record.seq < seq));
    }
    assert_eq!(RAN.load(Ordering::SeqCst), 0);
}

/// Spec: V1, R6
#[tokio::test]
async fn listeners_get_what_is_durable_and_change_nothing() {
    let answers = || vec![fails(ErrorKind::StreamTruncated), says("two words")];
    let bench = Bench::new();
    let alone = bench.run(bench.agent(answers())).await.unwrap();
    let alone = types(&bench.events(&alone.run_id).await).len();

    let bench = Bench::new();
    let agent = bench.agent(answers()).build().unwrap();
    let mut listener = agent.subscribe();
    drop(agent.subscribe());
    let clock = bench.clock.clone();
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let _ = done.send(agent.run("question").await);
    })));
    let outcome = result.await.unwrap().unwrap();
    let events = bench.events(&outcome.run_id).await;
    assert_eq!(events.len(), alone);
    let (mut logged, mut deltas) = (Vec::new(), Vec::new());
    while let Some(live) = listener.next().await {
        match live {
            Live::Logged(event) => logged.push((*event).clone()),
            Live::Delta { call, attempt, .. } => {
                let attempted =
                    logged.iter().filter(|event| event.kind.event_type() == "model.attempted");
                assert_eq!(u32::try_from(attempted.count()).unwrap() + 1, attempt);
                deltas.push((call, attempt));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(logged, events);
    assert_eq!(deltas, [(1, 2), (1, 2)]);
}

/// Spec: E10
#[tokio::test]
async fn keys_the_process_holds_are_written_nowhere() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let answers =
        vec![calls([call("c1", "broken", json!({"how": key}))]), says(&format!("it is {key}"))];
    let redactor = redact::Redactor::new().with_secret(key);
    let outcome = bench.run(bench.agent(answers).tool(broken).redactor(redactor)).await.unwrap();
    assert_eq!(outcome.text(), "it is [redacted]");
    let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
    assert!(log.iter().all(|record| !record.data.contains(key)));
}

/// Panics when it is asked what it needs.
struct Needy(tool::ToolSpec);

#[async_trait::async_trait]
impl tool::Tool for Needy {
    fn spec(&self) -> &tool::ToolSpec {
        &self.0
    }

    fn needs(&self, _: &Value) -> Result<Vec<String>, ToolError> {
        panic!("no idea")
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}

/// Spec: E11
#[tokio::test]
async fn a_panic_in_any_part_of_a_tool_is_its_failure() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "needy", json!({}))]), says("done")];
    let needy = Needy(tool::ToolSpec::new("needy", "d", json!({"type": "object"})));
    let outcome = bench.run(bench.agent(answers).tool(needy)).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "Tool 'needy' panicked: no idea");
}

/// Panics when it is asked.
struct Rude;

#[async_trait::async_trait]
impl provider::Provider for Rude {
    fn name(&self) -> &str {
        "rude"
    }
    fn model(&self) -> &str {
        "rude"
    }
    async fn complete(
        &self,
        _: &provider::ModelRequest,
    ) -> Result<provider::ModelResponse, ProviderError> {
        panic!("no")
    }
}

/// Spec: E11
#[tokio::test]
async fn a_panic_of_a_provider_is_a_failed_call() {
    let failure = Agent::builder(Rude).build().unwrap().run("hi").await.unwrap_err();
    assert_eq!(failure.code(), "provider.other");
    assert!(format!("{failure:#}").ends_with("the provider panicked: no"), "{failure:#}");
}

/// Spec: D2
#[tokio::test]
async fn what_could_not_be_logged_is_not_counted() {
    let bench = Bench::new();
    let log = FailingLog(Arc::clone(&bench.log), 1);
    let failure = bench.run(bench.agent(vec![says("x")]).log(log)).await.unwrap_err();
    assert_eq!((failure.usage.model_calls, failure.usage.model_attempts), (0, 0));
}

/// Spec: A1. What nobody can be asked for yet is refused, not run unasked.
#[test]
fn a_tool_that_needs_approval_is_refused() {
    let mut spec = tool::ToolSpec::new("wipe", "d", json!({"type": "object"}));
    spec.approval = true;
    let refused = Agent::builder(ScriptedProvider::saying(["x"])).tool(Needy(spec)).build();
    assert!(refused.is_err());
}

/// Spec: E10
#[tokio::test]
async fn keys_do_not_stream_to_listeners_either() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let redactor = redact::Redactor::new().with_secret(key);
    let agent = bench.agent(vec![says(key)]).redactor(redactor).build().unwrap();
    let mut listener = agent.subscribe();
    agent.run("question").await.unwrap();
    drop(agent);
    while let Some(live) = listener.next().await {
        assert!(!format!("{live:?}").contains(key), "{live:?}");
    }
}

/// Spec: T1
#[tokio::test]
async fn tools_reach_what_the_application_gave_them() {
    /// Greets.
    #[tool]
    async fn greet(context: &ToolContext) -> Result<String, ToolError> {
        Ok(format!("hello {}", context.state::<String>().map_or("nobody", String::as_str)))
    }
    let bench = Bench::new();
    let answers = || vec![calls([call("c1", "greet", json!({}))]), says("done")];
    let outcome =
        bench.run(bench.agent(answers()).tool(greet).state("Ada".to_owned())).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "hello Ada");
    let outcome = bench.run(bench.agent(answers()).tool(greet)).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "hello nobody");
}

/// Blocks its thread until it is let go.
struct Blocks(tool::ToolSpec, Arc<std::sync::Mutex<std::sync::mpsc::Receiver<()>>>);

#[async_trait::async_trait]
impl tool::Tool for Blocks {
    fn spec(&self) -> &tool::ToolSpec {
        &self.0
    }
    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let _ = self.1.lock().unwrap().recv();
        Ok(json!("too late"))
    }
}

struct SharedPatient(Arc<Patient>);

/// Answers once it has seen that a tool was late.
struct Patient {
    script: ScriptedProvider,
    let_go: std::sync::Mutex<Option<std::sync::mpsc::Sender<()>>>,
    events: tokio::sync::Mutex<Option<react::Subscriber>>,
}

#[async_trait::async_trait]
impl provider::Provider for SharedPatient {
    fn name(&self) -> &str {
        "patient"
    }
    fn model(&self) -> &str {
        "patient"
    }
    async fn complete(
        &self,
        request: &provider::ModelRequest,
    ) -> Result<provider::ModelResponse, ProviderError> {
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
async fn the_late_output_of_blocking_code_is_discarded_and_noted() {
    let (let_go, held) = std::sync::mpsc::channel();
    let patient = Arc::new(Patient {
        script: ScriptedProvider::new(vec![calls([call("c1", "blocks", json!({}))]), says("done")]),
        let_go: std::sync::Mutex::new(Some(let_go)),
        events: tokio::sync::Mutex::default(),
    });
    let spec = tool::ToolSpec::new("blocks", "d", json!({"type": "object"}))
        .timeout(Duration::from_millis(20));
    let log = Arc::new(MemoryLog::new());
    let agent = Agent::builder(SharedPatient(Arc::clone(&patient)))
        .tool(Blocks(spec, Arc::new(std::sync::Mutex::new(held))))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    *patient.events.lock().await = Some(agent.subscribe());
    let outcome = agent.run("question").await.unwrap();
    assert!(tool_texts(&outcome)[0].0.starts_with("Tool 'blocks' timed out after 20ms"));
    let events = read_events(&*log, &outcome.run_id).await.unwrap().1;
    assert_eq!(types(&events).iter().filter(|kind| **kind == "tool.late").count(), 1);
    assert!(!format!("{:?}", outcome.transcript).contains("too late"));
}

/// Spec: O1, E5
#[tokio::test]
async fn an_agent_is_a_tool_of_another_one() {
    let bench = Bench::new();
    let expert = bench.agent(vec![says("42")]).name("expert").build().unwrap();
    let poor = bench.agent(vec![fails(ErrorKind::QuotaExhausted)]).name("broken").build().unwrap();
    let cut = ScriptedAnswer {
        stop_reason: Some(layer0::message::StopReason::MaxTokens),
        ..says("half an")
    };
    let short = bench.agent(vec![cut]).name("short").build().unwrap();
    let ask = |id: &str, name: &str| call(id, name, json!({"input": "What is it?"}));
    let answers =
        vec![calls([ask("c1", "expert"), ask("c2", "broken"), ask("c3", "short")]), says("done")];
    let agent = bench
        .agent(answers)
        .tool(expert.as_tool("Knows."))
        .tool(poor.as_tool("Does not know."))
        .tool(short.as_tool("Knows half.").timeout(Duration::from_secs(5)));
    let outcome = bench.run(agent).await.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0], ("42".into(), false));
    assert!(
        texts[1].0.starts_with("Tool 'broken' failed: Code provider.quota_exhausted: run `run_"),
        "{}",
        texts[1].0
    );
    assert!(texts[2].0.contains("Code model.max_tokens: stopped before the end"), "{}", texts[2].0);

    let runs =
        bench.log.runs(RunFilter { session: Some(outcome.session), limit: None }).await.unwrap();
    assert_eq!(runs.len(), 4, "sub-runs share the session");
    let events = bench.events(&runs.iter().find(|run| run.agent == "expert").unwrap().run).await;
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("it starts") };
    assert_eq!(started.parent.as_ref(), Some(&outcome.run_id));
}
