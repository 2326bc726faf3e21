//! Operators made of closures, and processes that die.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::VirtualClock;
use backstop_event_log::{EventLog, MemoryLog, RunFilter, RunWriter, Runs, Seed, read_events};
use backstop_orchestrator::LocalOrchestrator;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{Event, EventKind};
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Task};
use layer0::{Operator, code};

use crate::on;

type Work = std::pin::Pin<Box<dyn Future<Output = Result<Answer, OperatorError>> + Send>>;
type Code = dyn Fn(Task, Context) -> Work + Send + Sync;

/// An operator without a record that runs a closure.
pub(crate) struct Own(&'static str, Box<Code>);

pub(crate) fn own<W>(
    name: &'static str,
    code: impl Fn(Task, Context) -> W + Send + Sync + 'static,
) -> Own
where
    W: Future<Output = Result<Answer, OperatorError>> + Send + 'static,
{
    Own(name, Box::new(move |task, context| Box::pin(code(task, context))))
}

#[async_trait]
impl Operator for Own {
    fn name(&self) -> &str {
        self.0
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        (self.1)(task, context.clone()).await
    }
}

/// A request whose answer was lost.
#[derive(Debug, thiserror::Error)]
#[error("the answer was lost")]
pub(crate) struct Lost;

impl Failure for Lost {
    fn facts(&self) -> Facts {
        Facts::backoff(code::TOOL_TIMEOUT, Effect::Unknown)
    }
}

/// An endpoint that is away.
#[derive(Debug, thiserror::Error)]
#[error("nobody there")]
pub(crate) struct Away;

impl Failure for Away {
    fn facts(&self) -> Facts {
        Facts::backoff(code::OPERATOR_RETRYABLE, Effect::None)
    }
}

/// Returns the log that a process leaves when it dies: the records as they are, those of `operator` up to `upto`, and
/// none of its later child runs.
pub(crate) async fn died(
    log: &MemoryLog,
    operator: &str,
    upto: impl Fn(&Event) -> bool,
) -> Arc<MemoryLog> {
    let copy = Arc::new(MemoryLog::new());
    let mut runs = log.runs(RunFilter::new()).await.unwrap();
    runs.sort_by_key(|run| run.parent.is_some());
    let mut later: Vec<RunId> = Vec::new();
    for run in runs {
        let (_, mut events) = read_events(log, &run.run).await.unwrap();
        if *run.agent == *operator {
            let end = events.iter().position(&upto).expect("it came so far") + 1;
            for event in events.drain(end..) {
                if let EventKind::OperatorDispatched(it) = event.kind {
                    later.push(it.run);
                }
            }
        }
        if later.contains(&run.run) {
            continue;
        }
        let mut writer = RunWriter::new(Arc::clone(&copy) as Arc<dyn EventLog>, run.run.clone());
        for event in events {
            writer.stage(&Seed::new("s"), event.at, event.actor, event.caused_by, event.kind);
        }
        writer.commit().await.unwrap();
    }
    copy
}

pub(crate) async fn run_of(log: &MemoryLog, operator: &str) -> RunId {
    let runs = log.runs(RunFilter::new().agent(operator)).await.unwrap();
    assert_eq!(runs.len(), 1, "{operator}");
    runs[0].run.clone()
}

pub(crate) async fn record(log: &MemoryLog, operator: &str) -> Vec<Event> {
    read_events(log, &run_of(log, operator).await).await.unwrap().1
}

pub(crate) async fn resume(
    clock: &VirtualClock,
    orchestrator: &LocalOrchestrator,
    operator: &'static str,
    run: RunId,
) -> Result<Answer, OrchError> {
    let orchestrator = orchestrator.clone();
    on(clock, async move { orchestrator.resume(operator, run).await }).await
}
