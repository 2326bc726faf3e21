//! Databases, agents and workers for tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Log, RunState, RunSummary};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder};
use backstop_store_postgres::{Database, Enqueue, Options, QueueFilter};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use backstop_worker::{Worker, WorkerBuilder, WorkerEnd, WorkerReport};
use layer0::id::RunId;
use layer0::message::Message;
use layer0::operator::Task;
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Opens a database as another process would.
pub(crate) async fn open(url: &str) -> Database {
    open_with_lease(url, Duration::from_secs(3)).await
}

pub(crate) async fn open_with_lease(url: &str, lease: Duration) -> Database {
    let options = Options::new(url).unwrap().connections(4).lease(lease);
    Database::connect_with(options).await.unwrap()
}

/// An agent that answers at once.
pub(crate) fn answering(database: &Database, name: &str) -> Agent {
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
    Agent::builder(model).name(name).log(database.log()).build().unwrap()
}

/// An agent that calls a tool once, and answers then.
pub(crate) fn calling(database: &Database, tool: impl Tool + 'static) -> Agent {
    caller(database, tool).build().unwrap()
}

pub(crate) fn caller(database: &Database, tool: impl Tool + 'static) -> AgentBuilder {
    let name = Arc::clone(&tool.spec().name);
    let model = ScriptedProvider::from_fn(move |request| {
        match request.messages.messages().last().map(|it| &**it) {
            Some(Message::Tool { .. }) => ScriptedAnswer::saying("done"),
            // Another agent as a tool needs an input.
            _ => ScriptedAnswer::calling(&*name, json!({"input": "go"})),
        }
    });
    Agent::builder(model).name("agent").tool(tool).log(database.log())
}

/// A tool that reports its start, and ends when it may.
pub(crate) struct Gate {
    spec: ToolSpec,
    pub(crate) begun: Arc<Semaphore>,
    pub(crate) open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let closed = || Arc::new(Semaphore::new(0));
        Self {
            spec: ToolSpec::new("gate", "Waits.", json!({"type": "object"})),
            begun: closed(),
            open: closed(),
        }
    }

    /// Lets a person agree to each call, within this time.
    pub(crate) fn needs_approval(&mut self, within: Duration) {
        self.spec = self.spec.clone().expires_after(within);
    }

    pub(crate) fn again(&self) -> Self {
        let (begun, open) = (Arc::clone(&self.begun), Arc::clone(&self.open));
        Self { spec: self.spec.clone(), begun, open }
    }

    /// Waits until so many calls have begun.
    pub(crate) async fn has_begun(&self, calls: u32) {
        self.begun.acquire_many(calls).await.unwrap().forget();
    }
}

#[async_trait]
impl Tool for Gate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        self.begun.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Ok(JsonText::from(&json!("through")))
    }
}

/// A running worker.
pub(crate) struct AtWork {
    stop: CancellationToken,
    task: JoinHandle<WorkerEnd>,
}

impl AtWork {
    pub(crate) fn start(builder: WorkerBuilder) -> Self {
        Self::subscribe(builder).0
    }

    /// Starts a worker, and subscribes to its reports from the start.
    pub(crate) fn subscribe(builder: WorkerBuilder) -> (Self, Receiver<WorkerReport>) {
        let worker: Worker = builder.build().unwrap();
        let reports = worker.subscribe();
        let stop = CancellationToken::new();
        let stops = stop.clone();
        let task = tokio::spawn(async move { worker.run(stops).await.unwrap() });
        (Self { stop, task }, reports)
    }

    pub(crate) async fn stop(self) -> WorkerEnd {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

pub(crate) fn asking(agent: &str) -> Enqueue {
    Enqueue::new(agent, Task::text("go"))
}

pub(crate) async fn put(database: &Database, request: &Enqueue) -> RunId {
    database.queue().enqueue(request).await.unwrap().run
}

pub(crate) async fn summary(database: &Database, run: &RunId) -> Option<RunSummary> {
    database.log().summary(run).await.unwrap()
}

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks before a test gives up: two minutes, more than a loaded machine takes.
const MAX_LOOKS: u32 = 2_400;

/// Waits until a run is in this state.
pub(crate) async fn is_in(database: &Database, run: &RunId, state: RunState) -> RunSummary {
    let mut seen = None;
    for _ in 0..MAX_LOOKS {
        // On a loaded machine the pool of all tests may have no free connection for a while.
        match database.log().summary(run).await {
            Ok(Some(summary)) if summary.state == state => return summary,
            other => seen = Some(other),
        }
        SystemClock.sleep(LOOK_EVERY).await;
    }
    let queued = database.queue().list(&QueueFilter::new()).await;
    panic!("{run} is not in state {state:?}, but: {seen:?}; the queue: {queued:?}");
}

/// Waits until a condition holds.
pub(crate) async fn until<T>(is_so: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..MAX_LOOKS {
        if let Some(found) = is_so().await {
            return found;
        }
        SystemClock.sleep(LOOK_EVERY).await;
    }
    panic!("it takes too long");
}
