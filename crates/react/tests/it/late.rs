//! Late arrivals: pieces of attempts that are over, answers of tools that were given up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{BoxFuture, Clock};
use backstop_event_log::{EventLog, MemoryLog, read_events};
use backstop_provider::{
    ModelRequest, ModelResponse, Provider, ProviderError, ScriptedProvider, StreamSink,
};
use backstop_react::{Agent, Live, LivePiece, StreamItem};
use backstop_retry::RetryConfig;
use backstop_tool::{State, ToolError, tool};
use futures_util::FutureExt;
use layer0::Timestamp;
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde_json::json;

use crate::bench::*;

type Sinks = Arc<Mutex<Vec<Arc<dyn StreamSink>>>>;

/// Sends pieces of its first attempt while its second answers, as one does that reads in a task of its own.
#[derive(Clone, Default)]
struct Leaky(Sinks);

impl Leaky {
    fn send_late(&self) {
        let sinks = self.0.lock().unwrap();
        for sink in &*sinks {
            sink.text("Old ");
            sink.thinking("Old ");
            sink.usage(TokenUsage::new(70, 7));
        }
    }
}

#[async_trait]
impl Provider for Leaky {
    fn name(&self) -> &str {
        "leaky"
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.stream(request).await
    }
    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let sink = request.sink.clone().unwrap();
        let is_first = self.0.lock().unwrap().is_empty();
        self.0.lock().unwrap().push(Arc::clone(&sink));
        if is_first {
            sink.text("Lost ");
            return Err(ProviderError::transient("down", None));
        }
        let first = Arc::clone(&self.0.lock().unwrap()[0]);
        for _ in 0..3 {
            sink.text("New ");
            first.text("Old ");
        }
        let usage = TokenUsage::new(3, 2);
        Ok(ModelResponse::new("New New New ", Arc::default(), StopReason::End, Some(usage)))
    }
}

fn leaky(provider: &Leaky) -> Agent {
    let retry = RetryConfig::new().base(Duration::ZERO).cap(Duration::ZERO);
    Agent::builder(provider.clone())
        .retry(retry)
        .shared_log(Arc::new(MemoryLog::new()) as Arc<dyn EventLog>)
        .build()
        .unwrap()
}

/// Spec: R6, P2. Neither in the answer of the next attempt nor behind the end of the run.
#[tokio::test]
async fn pieces_of_an_ended_attempt_are_dropped() {
    let provider = Leaky::default();
    let agent = leaky(&provider);
    let mut live = agent.subscribe();
    let outcome = agent.run("hello").await.unwrap();
    provider.send_late();
    let mut order = Vec::new();
    while let Some(Some(item)) = live.next().now_or_never() {
        order.push(match item {
            Live::Logged(event) => event.kind.event_type().to_owned(),
            Live::Delta { attempt, piece: LivePiece::Text(text), .. } => {
                format!("{attempt} {text}")
            }
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "run.started",
        "model.requested",
        "1 Lost ",
        "model.attempted",
        "warning",
        "2 New ",
        "2 New ",
        "2 New ",
        "model.attempted",
        "model.responded",
        "run.finished",
    ];
    assert_eq!(order, expected);
    assert!(outcome.usage.input_tokens < 70, "{:?}", outcome.usage);
}

/// Spec: D14. Put together, the pieces of an answer are its text, for a late reader too.
#[tokio::test]
async fn late_reader_gets_each_piece_once() {
    let agent = leaky(&Leaky::default());
    let mut stream = agent.stream("hello");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let (mut pieces, mut text) = (String::new(), String::new());
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Delta { attempt: 2, piece: LivePiece::Text(piece), .. } => pieces += &piece,
            StreamItem::Ended(end) => text = end.unwrap().text().to_owned(),
            _ => {}
        }
    }
    assert_eq!(pieces, text);
}

/// A clock that only tools move.
#[derive(Debug, Default)]
struct Pushed(AtomicU64);

impl Clock for Pushed {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn sleep(&self, _: Duration) -> BoxFuture {
        Box::pin(std::future::pending())
    }
}

/// Blocks its thread for longer than it may take.
#[tool(timeout = "20ms")]
async fn blocks(clock: State<Arc<Pushed>>) -> Result<String, ToolError> {
    clock.0.fetch_add(60, Ordering::SeqCst);
    Ok("too late".into())
}

/// Spec: T7
#[tokio::test]
async fn late_answer_follows_the_timeout() {
    let log = Arc::new(MemoryLog::new());
    let clock = Arc::new(Pushed::default());
    let answers = vec![calls([call("c1", "blocks", json!({}))]), says("done")];
    let agent = Agent::builder(ScriptedProvider::new(answers))
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .tool(blocks)
        .state(clock)
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let outcome = agent.run("go").await.unwrap();
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    let order: Vec<_> =
        types(&events).into_iter().filter(|kind| kind.starts_with("tool.")).collect();
    assert_eq!(order, ["tool.requested", "tool.responded", "tool.late"]);
}

/// Answers in the moment in which its run is cancelled.
struct StopsAndAnswers(tokio_util::sync::CancellationToken, AtomicUsize);

#[async_trait]
impl Provider for StopsAndAnswers {
    fn name(&self) -> &str {
        "stops"
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.0.cancel();
        // The request to stop is read before the answer.
        tokio::task::yield_now().await;
        self.1.fetch_add(1, Ordering::SeqCst);
        ScriptedProvider::saying(["It is 42."]).complete(request).await
    }
}

/// Spec: B3, P2. A whole answer that is there when the run is stopped is the run's.
#[tokio::test]
async fn whole_answer_beside_a_stop_counts() {
    let stop = tokio_util::sync::CancellationToken::new();
    let provider = StopsAndAnswers(stop.clone(), AtomicUsize::new(0));
    let agent = Agent::builder(provider).stream(false).build().unwrap();
    let request = backstop_react::RunRequest::new("go").cancelled_by(stop);
    let outcome = agent.run(request).await.unwrap();
    assert_eq!(
        (outcome.stop.clone(), outcome.text()),
        (layer0::stop::Stop::Completed, "It is 42.")
    );
}
