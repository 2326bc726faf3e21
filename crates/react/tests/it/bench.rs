//! An agent on a virtual clock, with a log and an error store that can be looked into.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_error_store::{ErrorStore, MemoryErrorStore};
use backstop_event_log::{EventLog, MemoryLog, read_events};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::{Agent, AgentBuilder, RunFailure, RunOutcome};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::Event;
use layer0::id::RunId;
use layer0::message::Message;
use serde_json::Value;

pub(crate) fn call(id: &str, name: &str, arguments: Value) -> ScriptedToolCall {
    ScriptedToolCall::new(id, name, arguments)
}

pub(crate) fn calls(calls: impl IntoIterator<Item = ScriptedToolCall>) -> ScriptedAnswer {
    ScriptedAnswer::default().tool_calls(calls)
}

pub(crate) fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

pub(crate) fn fails(kind: ErrorKind) -> ScriptedAnswer {
    ScriptedAnswer::failing(kind)
}

/// An agent on a virtual clock with a log and an error store that can be looked into.
pub(crate) struct Bench {
    pub(crate) clock: VirtualClock,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) errors: Arc<MemoryErrorStore>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        Self { clock, log: Arc::default(), errors: Arc::default() }
    }

    pub(crate) fn agent(&self, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Agent::builder(ScriptedProvider::new(answers).with_clock(Arc::clone(&clock)))
            .clock(clock)
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .shared_error_store(Arc::clone(&self.errors) as Arc<dyn ErrorStore>)
    }

    pub(crate) async fn run(&self, agent: AgentBuilder) -> Result<RunOutcome, RunFailure> {
        let agent = agent.build().unwrap();
        on(self, async move { agent.run("input").await }).await
    }

    pub(crate) async fn events(&self, run: &RunId) -> Vec<Event> {
        read_events(&*self.log, run).await.unwrap().1
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since("2026-01-01T00:00:00Z".parse().unwrap())
    }
}

/// Awaits work while the bench's clock runs.
pub(crate) async fn on<T: Send + 'static>(
    bench: &Bench,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(bench.clock.track(Box::pin(async move {
        let _ = done.send(work.await);
    })));
    result.await.unwrap()
}

pub(crate) fn types(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.event_type()).collect()
}

pub(crate) fn tool_texts(outcome: &RunOutcome) -> Vec<(String, bool)> {
    let text = |message: &Arc<Message>| match &**message {
        Message::Tool { content, is_error, .. } => Some((content.to_string(), *is_error)),
        _ => None,
    };
    outcome.transcript.messages().iter().filter_map(text).collect()
}

/// Add two integers.
#[tool(idempotent)]
pub(crate) async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

/// Fails as asked.
#[tool]
pub(crate) async fn broken(how: String, context: &ToolContext) -> Result<String, ToolError> {
    match how.as_str() {
        "panic" => panic!("index 7 out of range for {}", context.call_id),
        "long" => Err(ToolError::ExecutionFailed(format!("first line\n{}", "trace\n".repeat(500)))
            .with_code("SQL_ERROR")),
        "short" => Err(ToolError::ExecutionFailed("Short error".into())),
        "key" => Err(ToolError::ExecutionFailed("refused: api_key=abcdef0123456789".into())),
        other => Ok(other.to_owned()),
    }
}
