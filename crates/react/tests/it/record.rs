//! The log and its subscribers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Claim, EventLog, Log, LogError, MemoryLog, Ports, Record, RunSummary,
};
use backstop_provider::ErrorKind;
use backstop_react::{AgentError, Live};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError, tool};
use layer0::event::EventKind;
use layer0::failure::{Effect, Failure};
use layer0::id::RunId;
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::bench::*;

/// Returns a value of this depth; serde_json reads 127 levels.
fn nested(levels: usize) -> serde_json::Value {
    serde_json::from_str(&("[".repeat(levels) + &"]".repeat(levels))).unwrap()
}

/// Returns what it is not asked for.
#[tool]
async fn deep() -> Result<serde_json::Value, ToolError> {
    Ok(nested(127))
}

#[tokio::test]
async fn deeply_nested_json_is_recorded_as_text() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "broken", json!({"how": nested(126)})),
        call("c2", "deep", json!({})),
        call("c3", "broken", json!({"how": "long"})),
    ]);
    let agent = bench.agent(vec![batch, says("done")]).tool(broken).tool(deep);
    let outcome = bench.run(agent).await.unwrap();
    // It can be read at all.
    let events = bench.events(&outcome.run_id).await;
    let EventKind::ModelResponded(said) = &events[3].kind else { panic!("it answers") };
    assert!(said.tool_calls[0].arguments.as_string().is_some());
    assert!(said.tool_calls[2].arguments.is_object());
    let answers: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolResponded(answer) => Some(answer),
            _ => None,
        })
        .collect();
    let text = answers.iter().find(|answer| answer.call_id.as_str() == "c1").unwrap();
    assert!(text.output.to_string().contains("nested deeper than 100 levels"), "{text:?}");
    let output = answers.iter().find(|answer| answer.call_id.as_str() == "c2").unwrap();
    assert!(output.ok && output.output.as_string().is_some(), "{output:?}");
}

/// A tool with a specification of its own.
struct Specified(ToolSpec);

#[async_trait]
impl Tool for Specified {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(json!("done").into())
    }
}

/// Spec: T7, E11
#[tokio::test]
async fn run_with_an_unlimited_tool_is_read_again() {
    let bench = Bench::new();
    let spec = ToolSpec::new("t", "", json!({"type": "object"})).timeout(Duration::MAX);
    let answers = vec![calls([call("c1", "t", json!({}))]), says("done"), says("forked")];
    let agent = bench.agent(answers).tool(Specified(spec)).shared_log(bench.log.clone());
    let agent = agent.build().unwrap();
    let run = agent.clone();
    let outcome = on(&bench, async move { run.run("input").await }).await.unwrap();
    let replayed = backstop_react::replay(&*bench.log, &outcome.run_id).await.unwrap();
    assert!(replayed.is_some());
    let fork = backstop_react::ForkRequest::new(outcome.run_id, 3);
    let forked = on(&bench, async move { agent.fork(fork).await }).await.unwrap();
    assert_eq!(&*forked.output, "forked");
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
    assert_eq!(
        started.agent.definition.read::<serde_json::Value>().unwrap()["tools"][0]["name"],
        "broken"
    );
    assert_eq!(started.agent.digest.len(), 64);
}

/// A log that fails at some appends.
pub(crate) struct FailingLog(
    pub(crate) Arc<MemoryLog>,
    pub(crate) Box<dyn Fn(&Batch) -> bool + Send + Sync>,
);

/// Returns a check whether an append has the event of this seq.
fn has(seq: u64) -> Box<dyn Fn(&Batch) -> bool + Send + Sync> {
    Box::new(move |batch| batch.records.iter().any(|record| record.seq == seq))
}

impl EventLog for FailingLog {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().log(self)
    }
}

#[async_trait]
impl Log for FailingLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.0.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.0.claim_new(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        if (self.1)(&batch) {
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
}

/// Spec: D2
#[tokio::test]
async fn no_effect_starts_without_its_record() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    /// Acts.
    #[tool]
    async fn act() -> Result<(), ToolError> {
        RAN.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    for seq in 1..=5 {
        let bench = Bench::new();
        let log = FailingLog(Arc::clone(&bench.log), has(seq));
        // Two attempts, so that seq 3 is appended while the retry stack waits.
        let answers =
            vec![fails(ErrorKind::Transient), calls([call("c1", "act", json!({}))]), says("x")];
        let failure = bench.run(bench.agent(answers).tool(act).log(log)).await.unwrap_err();
        // The first append has the first two events.
        match (seq, &failure.error) {
            (1 | 2, AgentError::NotStarted(LogError::Full(_))) => {
                assert_eq!((failure.code(), failure.effect()), ("store.full", Effect::None));
            }
            (3.., AgentError::Storage(LogError::Full(_))) => {
                assert_eq!(failure.code(), "log.append_failed");
            }
            (_, error) => panic!("{seq}: {error}"),
        }
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
        let _ = done.send(agent.run("input").await);
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

/// Spec: D2
#[tokio::test]
async fn what_could_not_be_logged_is_not_counted() {
    let bench = Bench::new();
    let log = FailingLog(Arc::clone(&bench.log), has(1));
    let failure = bench.run(bench.agent(vec![says("x")]).log(log)).await.unwrap_err();
    assert_eq!((failure.usage.model_calls, failure.usage.model_attempts), (0, 0));
}
