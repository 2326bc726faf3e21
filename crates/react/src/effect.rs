//! What a run does in the world. Each effect is a function of its step's data: none knows the run
//! beyond its name.

mod approval;
mod failure;
mod hooks;
mod large_result;
mod late;
mod memory;
mod model;
mod tool;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use layer0::id::RunId;
use provider::ProviderError;
use tokio_util::sync::CancellationToken;

use crate::feed::Feed;
use crate::guarded::drop_guarded;
use crate::hook::{HookContext, HookError};
use crate::inner::Inner;
use crate::journal::{End, Step};

pub(crate) use failure::Failing;
pub(crate) use hooks::has_hooks;
pub(crate) use tool::admit;

/// The work of a step.
pub(crate) type Work = Pin<Box<dyn Future<Output = End> + Send>>;

/// Performs the steps of one run.
pub(crate) struct Effects {
    agent: Arc<Inner>,
    context: HookContext,
    /// Where the stream of the run is fed from; `None` where none is read.
    feed: Option<Arc<Feed>>,
    late: Arc<late::Late>,
    errors: LiveErrors,
}

/// The errors of steps with their sources. The record has them as data.
#[derive(Default)]
struct LiveErrors {
    model: Mutex<Option<ProviderError>>,
    hook: Mutex<Option<HookError>>,
}

impl Effects {
    pub(crate) fn new(agent: Arc<Inner>, context: HookContext, feed: Option<Arc<Feed>>) -> Self {
        Self { agent, context, feed, late: Arc::default(), errors: LiveErrors::default() }
    }

    pub(crate) const fn run(&self) -> &RunId {
        &self.context.run
    }

    /// Returns the answers of tools that were given up.
    pub(crate) fn late(&self) -> &late::Late {
        &self.late
    }

    /// Takes the error that the last model attempt failed with in this process.
    pub(crate) fn take_model_error(&self) -> Option<ProviderError> {
        self.errors.model.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the error of the hook that stopped the run in this process.
    pub(crate) fn take_hook_error(&self) -> Option<HookError> {
        self.errors.hook.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep_model_error(&self, error: ProviderError) {
        *self.errors.model.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn keep_hook_error(&self, error: HookError) {
        *self.errors.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Makes the work of a step, which ends soon after `stop` is cancelled.
    pub(crate) fn perform(self: &Arc<Self>, step: Step, stop: CancellationToken) -> Work {
        let effects = Arc::clone(self);
        match step {
            Step::Attempt(attempt) => Box::pin(model::attempt(effects, attempt, stop)),
            Step::Execution(execution) => Box::pin(tool::execution(effects, execution, stop)),
            Step::Hooks(pause) => {
                stoppable(stop, async move { hooks::pause(&effects, pause).await })
            }
            Step::Gates(calls) => {
                stoppable(stop, async move { hooks::gates(&effects, &calls).await })
            }
            Step::Observers(calls) => {
                stoppable(stop, async move { hooks::observers(&effects, &calls).await })
            }
            Step::Approval(approval) => {
                stoppable(stop, async move { approval::ask(&effects, approval).await })
            }
            Step::ReadMemory(input) => {
                stoppable(stop, async move { memory::read(&effects, input).await })
            }
            Step::WriteMemory { input, output } => {
                stoppable(stop, async move { memory::write(&effects, input, output).await })
            }
        }
    }
}

/// Waits for the application's code, unless it is told to end before.
fn stoppable(stop: CancellationToken, work: impl Future<Output = End> + Send + 'static) -> Work {
    let mut work: Work = Box::pin(work);
    Box::pin(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            end = &mut work => return end,
        }
        drop_guarded(work);
        End::Stopped
    })
}
