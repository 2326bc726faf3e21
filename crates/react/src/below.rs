//! A run below a run, as the tool that starts it and the step around it share it.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_react_machine::{Grant, NothingLeft};
use backstop_tool::{ToolContext, ToolError};
use futures_util::future::{Either, select};
use layer0::event::OperatorReturned;
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, code};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::RunFailure;
use crate::journal::Child;
use crate::outcome::RunOutcome;

/// How long a run that was given up has to close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// What a tool needs of its run to start another one.
pub(crate) struct Caller {
    pub(crate) run: RunId,
    /// The run at the head of its callers.
    pub(crate) root: RunId,
    grant: Result<Grant, NothingLeft>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) reporter: Reporter,
}

/// The caller's end of a run below it.
pub(crate) struct Below {
    operator: Arc<str>,
    run: RunId,
    cancellation: CancellationToken,
    state: watch::Receiver<State>,
}

/// How far a run below another one is.
#[derive(Debug, Clone, Default)]
struct State {
    usage: Usage,
    end: Option<(Outcome, Option<Code>)>,
}

/// The own end of a run below another one.
#[derive(Debug, Clone)]
pub(crate) struct Reporter(Arc<watch::Sender<State>>);

/// Makes both ends of a run that a call starts; there is none where nothing is left for it.
pub(crate) fn open(child: Child) -> (Caller, Option<Below>) {
    let Child { run, operator, root, grant } = child;
    let (state, reported) = watch::channel(State::default());
    let cancellation = CancellationToken::new();
    let below = grant.is_ok().then(|| Below {
        operator,
        run: run.clone(),
        cancellation: cancellation.clone(),
        state: reported,
    });
    (Caller { run, root, grant, cancellation, reporter: Reporter(Arc::new(state)) }, below)
}

impl Caller {
    /// Finds what the run that called a tool left for another one; `None` outside of a run.
    pub(crate) fn of(context: &ToolContext) -> Option<&Self> {
        context.runtime.as_ref()?.downcast_ref()
    }

    /// Returns what the run may use.
    ///
    /// # Errors
    ///
    /// The budget's code, when nothing is left to give.
    pub(crate) fn grant(&self) -> Result<Grant, ToolError> {
        self.grant.clone().map_err(|NothingLeft { reason, message, .. }| {
            ToolError::ExecutionFailed(format!("not started: {message}")).with_code(reason.as_str())
        })
    }
}

impl Reporter {
    /// Says what the run has used so far.
    pub(crate) fn used(&self, usage: Usage) {
        self.0.send_modify(|state| state.usage = usage);
    }

    /// Says how the run ended.
    pub(crate) fn ended(&self, result: &Result<RunOutcome, RunFailure>) {
        let (usage, outcome, reason) = match result {
            Ok(outcome) => (outcome.usage, outcome.stop.outcome(), outcome.stop.reason()),
            Err(failure) => (failure.usage, Outcome::Failed, Some(Code::new(failure.code()))),
        };
        self.0.send_replace(State { usage, end: Some((outcome, reason)) });
    }
}

impl Below {
    /// Waits for the end; a run that its tool does not wait for any more is told to end.
    pub(crate) async fn returned(mut self, clock: &Arc<dyn Clock>) -> OperatorReturned {
        self.cancellation.cancel();
        let ended = Box::pin(self.state.wait_for(|state| state.end.is_some()));
        let state = match select(ended, clock.sleep(CLOSING)).await {
            Either::Left((Ok(state), _)) => Some(state.clone()),
            Either::Left((Err(_), _)) | Either::Right(_) => None,
        };
        let State { usage, end } = state.unwrap_or_else(|| self.state.borrow().clone());
        // One that never began, or does not end, was stopped.
        let stopped = || (Outcome::Cancelled, Some(Code::new(code::RUN_CANCELLED)));
        let (outcome, reason) = end.unwrap_or_else(stopped);
        OperatorReturned::new(self.operator, self.run, outcome, reason, usage)
    }
}
