//! Errors of resuming a run.

use std::borrow::Cow;

use backstop_event_log::{LogError, RunState};
use backstop_react_machine::{Divergence, NotReopenable};
use layer0::code;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure, InnerError};
use layer0::id::{CallId, RunId};
use thiserror::Error;

use crate::error::RunFailure;

/// The error of a run that cannot be resumed, copied or replayed, or that failed after resuming.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// A required text is blank.
    ///
    /// Retry: never. Effect: none.
    #[error("the request has a blank `{0}`")]
    Blank(&'static str),
    /// The call is not open: its outcome is known, or the run made no such call.
    ///
    /// Retry: never. Effect: none.
    #[error("call `{call}` of run `{run}` is not open")]
    #[non_exhaustive]
    CallNotOpen {
        /// The run.
        run: RunId,
        /// The call.
        call: CallId,
        /// The open calls of the run.
        open: Vec<CallId>,
    },
    /// The call is still running in another process and may act, so it cannot be settled as not done.
    ///
    /// Retry: backoff. Effect: none.
    #[error("call `{call}` of run `{run}` is running in another process")]
    #[non_exhaustive]
    CallRunning {
        /// The run.
        run: RunId,
        /// The call.
        call: CallId,
    },
    /// Another settlement of the call was accepted before. If it is not recorded yet, the next owner of the run records it.
    ///
    /// Retry: never. Effect: none.
    #[error("call `{call}` of run `{run}` is settled already")]
    #[non_exhaustive]
    CallSettled {
        /// The run.
        run: RunId,
        /// The call.
        call: CallId,
    },
    /// The record does not follow from this agent, or was written by another version.
    ///
    /// Retry: as the divergence says. Effect: as it says.
    #[error("the record is not this agent's")]
    Diverged(#[source] InnerError<Divergence>),
    /// A caller of the run is open; resuming the caller resumes all its child runs.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` belongs to run `{root}`, which is open")]
    #[non_exhaustive]
    CallerOpen {
        /// The run.
        run: RunId,
        /// The open run at the head of its callers.
        root: RunId,
    },
    /// The run belongs to a workflow, which its own code resumes through its orchestrator.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` is of the workflow `{workflow}`, not of an agent")]
    #[non_exhaustive]
    OfWorkflow {
        /// The run.
        run: RunId,
        /// The workflow.
        workflow: Box<str>,
    },
    /// The copy is open at its last event: it continues within its budget, which cannot be increased.
    ///
    /// Retry: never. Effect: none.
    #[error("the copy of run `{run}` is open at event {at}: it takes no more budget")]
    #[non_exhaustive]
    CopyOpen {
        /// The run to copy.
        run: RunId,
        /// The last event to copy.
        at: u64,
    },
    /// The copy has ended at its last event, and there is no new input for its model.
    ///
    /// Retry: never. Effect: none.
    #[error("the copy of run `{run}` is over at event {at}: it needs an input to go on")]
    #[non_exhaustive]
    CopyOver {
        /// The run to copy.
        run: RunId,
        /// The last event to copy.
        at: u64,
    },
    /// The record cannot be read, or another process is writing to it.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the run cannot be taken over")]
    Log(#[from] LogError),
    /// The run has no such event.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` has no event {seq}, its last one is {last}")]
    #[non_exhaustive]
    NoSuchEvent {
        /// The run.
        run: RunId,
        /// The event.
        seq: u64,
        /// The run's last event.
        last: u64,
    },
    /// The run cannot be reopened.
    ///
    /// Retry: as the reason says. Effect: as it says.
    #[error("run `{run}` cannot be reopened")]
    #[non_exhaustive]
    NotReopenable {
        /// The run.
        run: RunId,
        /// The reason.
        #[source]
        why: NotReopenable,
    },
    /// The run is open, so it cannot be reopened.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("run `{run}` is open: {}", state.as_str())]
    #[non_exhaustive]
    Open {
        /// The run.
        run: RunId,
        /// The state of the run.
        state: RunState,
    },
    /// The run failed after it resumed, or had failed before.
    ///
    /// Retry: as the failure says. Effect: as the failure says.
    #[error("agent failed")]
    Run(#[source] InnerError<RunFailure>),
}

impl ResumeError {
    pub(crate) const fn call_not_open(run: RunId, call: CallId, open: Vec<CallId>) -> Self {
        Self::CallNotOpen { run, call, open }
    }

    pub(crate) const fn call_running(run: RunId, call: CallId) -> Self {
        Self::CallRunning { run, call }
    }

    pub(crate) const fn call_settled(run: RunId, call: CallId) -> Self {
        Self::CallSettled { run, call }
    }

    pub(crate) const fn caller_open(run: RunId, root: RunId) -> Self {
        Self::CallerOpen { run, root }
    }

    pub(crate) const fn not_reopenable(run: RunId, why: NotReopenable) -> Self {
        Self::NotReopenable { run, why }
    }

    pub(crate) const fn open(run: RunId, state: RunState) -> Self {
        Self::Open { run, state }
    }

    pub(crate) const fn copy_open(run: RunId, at: u64) -> Self {
        Self::CopyOpen { run, at }
    }

    pub(crate) const fn copy_over(run: RunId, at: u64) -> Self {
        Self::CopyOver { run, at }
    }

    pub(crate) const fn no_such_event(run: RunId, seq: u64, last: u64) -> Self {
        Self::NoSuchEvent { run, seq, last }
    }
}

impl From<Divergence> for ResumeError {
    fn from(divergence: Divergence) -> Self {
        Self::Diverged(divergence.into())
    }
}

impl From<RunFailure> for ResumeError {
    fn from(failure: RunFailure) -> Self {
        Self::Run(failure.into())
    }
}

/// Maps a failed run to the failure of the operator; no other error of a resume is one.
impl From<ResumeError> for OperatorError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Run(failure) => failure.into_inner().into(),
            error => Self::from_failure(error),
        }
    }
}

impl From<ResumeError> for OrchError {
    fn from(error: ResumeError) -> Self {
        Self::OperatorError(error.into())
    }
}

impl Failure for ResumeError {
    fn facts(&self) -> Facts {
        match self {
            Self::Blank(_)
            | Self::CopyOpen { .. }
            | Self::CopyOver { .. }
            | Self::NoSuchEvent { .. } => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::CallNotOpen { .. } | Self::CallSettled { .. } => {
                Facts::never(code::RUN_CALL_NOT_OPEN, Effect::None)
            }
            Self::OfWorkflow { .. } => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::CallerOpen { .. } => Facts::never(code::RUN_OPEN, Effect::None),
            Self::Diverged(divergence) => divergence.facts(),
            Self::Log(error) => error.facts(),
            Self::NotReopenable { why, .. } => why.facts(),
            Self::CallRunning { .. } | Self::Open { .. } => {
                Facts::backoff(code::RUN_OPEN, Effect::None)
            }
            Self::Run(failure) => failure.facts(),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::CallNotOpen { open, .. } if open.is_empty() => {
                Some("the run has no call of unknown outcome: `backstop trace RUN`".into())
            }
            Self::CallNotOpen { open, .. } => {
                let open: Vec<_> = open.iter().map(|call| format!("`{call}`")).collect();
                Some(format!("its calls of unknown outcome: {}", open.join(", ")).into())
            }
            Self::CallRunning { run, .. } => {
                Some(format!("wait for its end, or stop the run: `backstop cancel {run}`").into())
            }
            Self::CallSettled { run, .. } => {
                Some(format!("the first settlement counts: `backstop trace {run}`").into())
            }
            Self::OfWorkflow { .. } => Some(
                "go on with it in the program that has its code: `LocalOrchestrator::resume`"
                    .into(),
            ),
            Self::CallerOpen { root, .. } => {
                Some(format!("go on with that run: `backstop resume {root}`").into())
            }
            Self::CopyOpen { .. } => {
                Some("copy it to its end, or leave the budget out: `fork RUN --at SEQ`".into())
            }
            Self::CopyOver { .. } => Some("say something to its model: `--input TEXT`".into()),
            Self::Open { state: RunState::WaitingApproval, .. } => {
                Some("decide what it waits for (`backstop approvals`), then resume it".into())
            }
            Self::Open { .. } => {
                Some("wait for it, or resume it without `--reopen` if its process died".into())
            }
            Self::NotReopenable { why, .. } => why.hint(),
            Self::Log(error) => error.hint(),
            Self::Run(failure) => Failure::hint(&**failure),
            Self::Diverged(divergence) => Failure::hint(&**divergence),
            Self::Blank(_) | Self::NoSuchEvent { .. } => None,
        }
    }
}

/// Rejects blank texts.
pub(crate) fn check_words(by: &str, message: Option<&str>) -> Result<(), ResumeError> {
    if by.trim().is_empty() {
        return Err(ResumeError::Blank("by"));
    }
    match message {
        Some(message) if message.trim().is_empty() => Err(ResumeError::Blank("message")),
        _ => Ok(()),
    }
}
