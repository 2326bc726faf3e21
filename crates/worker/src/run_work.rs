//! One run in this process.

use backstop_event_log::{EventLog, LogError, RunSummary};
use backstop_orchestrator::LocalOrchestrator;
use backstop_store_postgres::{Queue, Ready, StartRefusal, TakenRun};
use layer0::error::OrchError;
use layer0::failure::{Failure, Retry};
use layer0::id::RunId;
use layer0::operator::{Context, Task};
use layer0::{Orchestrator, code};

use crate::report::RunChange;

/// A run to perform.
pub(crate) struct RunWork {
    pub(crate) run: RunId,
    pub(crate) agent: String,
    task: Task,
    context: Context,
}

impl RunWork {
    /// Returns the work for a run of the queue without a record.
    pub(crate) fn from_queue(taken: TakenRun, adopts: bool) -> Self {
        let TakenRun { run, agent, session, task, labels, .. } = taken;
        let mut context = context(&run, adopts);
        context.session = Some(session);
        context.labels = std::sync::Arc::new(labels);
        Self { run, agent, task, context }
    }

    /// Returns the work for a run with a record.
    pub(crate) fn ready(ready: Ready, adopts: bool) -> Self {
        let Ready { run, agent, .. } = ready;
        let mut context = context(&run, adopts);
        context.is_recorded = true;
        // The record has the task.
        Self { run, agent, task: Task::text(""), context }
    }

    pub(crate) const fn is_recorded(&self) -> bool {
        self.context.is_recorded
    }

    /// Performs the run until it has ended, waits or is parked, and gives it back.
    pub(crate) async fn perform(
        self,
        orchestrator: LocalOrchestrator,
        log: &dyn EventLog,
        queue: &Queue,
    ) -> Result<RunChange, LogError> {
        let Self { run, agent, task, context } = self;
        let ended = orchestrator.dispatch(&agent, task, context).await;
        let summary = log.summary(&run).await?;
        let report = match (ended, summary) {
            (Ok(_), None) => {
                // An operator without a record, which `build` accepted as one with a record.
                let why = "it has ended and left no record".to_owned();
                refuse(queue, &run, code::OPERATOR_NON_RETRYABLE.to_owned(), why).await?
            }
            (Err(error), None) => not_begun(queue, &run, &error).await?,
            // A store that this process has left stops the run: another process continues it.
            (Err(error), Some(summary))
                if summary.is_open() && error.code() != code::STORE_CLOSED =>
            {
                put_off(queue, &run, &error).await?
            }
            (_, Some(summary)) => leave_run(queue, &run, summary).await?,
        };
        Ok(report)
    }
}

fn context(run: &RunId, adopts: bool) -> Context {
    let mut context = Context::root();
    (context.run, context.goes_on, context.adopts) = (Some(run.clone()), true, adopts);
    context
}

async fn leave_run(queue: &Queue, run: &RunId, summary: RunSummary) -> Result<RunChange, LogError> {
    queue.give_back(run).await?;
    let RunSummary { state, reason, .. } = summary;
    Ok(RunChange::Left { run: run.clone(), state, reason })
}

/// Gives back an open run that is blocked: this or another worker tries again.
async fn put_off(queue: &Queue, run: &RunId, error: &OrchError) -> Result<RunChange, LogError> {
    queue.give_back(run).await?;
    let (code, message) = (error.code().to_owned(), layer0::failure::Chain(error).to_string());
    Ok(RunChange::PutOff { run: run.clone(), code, message })
}

/// Gives back a run that did not start if a retry can help, and refuses it otherwise.
async fn not_begun(queue: &Queue, run: &RunId, error: &OrchError) -> Result<RunChange, LogError> {
    // Another run of its session, or another process, blocks it for a while.
    let is_in_the_way =
        matches!(error.code(), code::RUN_EXISTS | code::RUN_OPEN | code::RUN_FOLLOWED);
    // Another process interfered, or the server does not answer for the moment.
    let is_of_store = error.code() == code::LOG_APPEND_FAILED || error.code().starts_with("store.");
    if error.facts().retry != Retry::Never || is_in_the_way || is_of_store {
        return put_off(queue, run, error).await;
    }
    let message = layer0::failure::Chain(error).to_string();
    refuse(queue, run, error.code().to_owned(), message).await
}

async fn refuse(
    queue: &Queue,
    run: &RunId,
    code: String,
    message: String,
) -> Result<RunChange, LogError> {
    queue.refuse(run, &StartRefusal::new(code.clone(), message.clone())).await?;
    Ok(RunChange::Refused { run: run.clone(), code, message })
}
