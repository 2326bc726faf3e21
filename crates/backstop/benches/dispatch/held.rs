//! Runs in flight: their model answers when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop::layer0::message::StopReason;
use backstop::layer0::operator::{Context, Task};
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::{Agent, LocalOrchestrator, MemoryLog, Orchestrator, Provider, ProviderError};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How many runs are in flight at once.
pub(crate) const RUNS: usize = 10_000;

/// Counts how often it is asked, and answers all at once.
#[derive(Default)]
struct Gate {
    asked: AtomicUsize,
    opens: Notify,
}

struct Held(Arc<Gate>);

#[async_trait]
impl Provider for Held {
    fn name(&self) -> &str {
        "bench"
    }

    fn model(&self) -> &str {
        "bench"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let opened = self.0.opens.notified();
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        opened.await;
        Ok(ModelResponse::new("done", Arc::default(), StopReason::End, Default::default()))
    }
}

/// How runs are begun.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// By their agent.
    Alone,
    /// By its name, through one orchestrator.
    Dispatched,
}

/// Runs of one agent with a log in memory of its own, each awaited by a task of its own.
pub(crate) struct Runs {
    gate: Arc<Gate>,
    agent: Agent,
    orchestrator: Option<LocalOrchestrator>,
    begun: Vec<JoinHandle<()>>,
}

impl Runs {
    /// Makes what the runs share, and begins none.
    pub(crate) fn new(way: Way) -> Self {
        let gate = Arc::<Gate>::default();
        let agent = Agent::builder(Held(Arc::clone(&gate))).name("held").log(MemoryLog::new());
        let agent = agent.build().expect("the agent is complete");
        let orchestrator = match way {
            Way::Alone => None,
            Way::Dispatched => Some(orchestrator(&agent)),
        };
        Self { gate, agent, orchestrator, begun: Vec::with_capacity(RUNS) }
    }

    /// Begins all, and returns when the model of each was asked.
    pub(crate) fn begin(&mut self, runtime: &Runtime) {
        runtime.block_on(async {
            for _ in 0..RUNS {
                let run = match &self.orchestrator {
                    None => {
                        let agent = self.agent.clone();
                        tokio::spawn(async move {
                            let outcome = agent.run("hello").await.expect("it is answered");
                            assert_eq!(outcome.text(), "done");
                        })
                    }
                    Some(orchestrator) => {
                        let orchestrator = orchestrator.clone();
                        tokio::spawn(async move {
                            let task = Task::text("hello");
                            let answer = orchestrator.dispatch("held", task, Context::root()).await;
                            assert_eq!(answer.expect("it is answered").output, "done");
                        })
                    }
                };
                self.begun.push(run);
            }
            while self.gate.asked.load(Ordering::Relaxed) < RUNS {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Has the model answer, and waits for the end of all.
    pub(crate) fn end(self, runtime: &Runtime) {
        self.gate.opens.notify_waiters();
        runtime.block_on(async {
            for run in self.begun {
                run.await.expect("no run panics");
            }
        });
    }
}

/// Makes an orchestrator that runs as many at once as are begun.
fn orchestrator(agent: &Agent) -> LocalOrchestrator {
    let builder = LocalOrchestrator::builder().max_concurrent(RUNS).operator(agent.clone());
    builder.build().expect("the name can be called")
}
