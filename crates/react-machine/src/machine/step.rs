//! Steps: facts that fit, each with the state that it changes.

use std::sync::Arc;

use layer0::code;
use layer0::event::{
    ApprovalDenied, ApprovalGranted, ApprovalRequested, BudgetExhausted, BudgetGranted,
    ErrorStored, EventKind, HookAborted, HookFailed, HookPassed, MemoryDegraded, MemoryRead,
    ModelAttempted, ModelFailed, ModelResponded, OperatorDispatched, OperatorReturned,
    OperatorWaiting, RunParked, RunRecovered, RunReopened, RunResumed, RunStarted, SignalReceived,
    ToolAttempted, ToolProbed, ToolRequested, ToolResolved, ToolResponded,
};
use layer0::id::CallId;

use crate::definition::CheckedDefinition;
use crate::failure::FailureCause;
use crate::hook::HookPoint;
use crate::io::Finish;
use crate::phase::Phase;
use crate::phase::batch::{Batch, Held, Place, Sorted};
use crate::phase::paused::{Paused, Stopped};
use crate::phase::turn::Turn;
use crate::text;

/// A fact that fits, with the state that it changes.
pub(super) enum Step<'p> {
    Start(RunStarted),
    ModelAttempted(&'p mut Turn, ModelAttempted),
    ModelResponded(Turn, ModelResponded),
    ModelFailed(Turn, ModelFailed),
    /// The next attempt was refused by a spend limit.
    Limited(Turn, BudgetExhausted),
    ToolRequested(&'p mut Batch, Place, ToolRequested),
    ToolAttempted(&'p mut Batch, Place, ToolAttempted),
    ToolResponded(&'p mut Batch, Place, ToolResponded),
    ErrorStored(&'p mut Batch, Place, ErrorStored),
    Dispatched(u64, CallId, OperatorDispatched),
    /// The caller gave more, or has nothing left.
    Granted(&'p mut Phase, BudgetGranted),
    WaitingBelow(OperatorWaiting),
    GrantedBelow(BudgetGranted),
    Returned(OperatorReturned),
    MemoryRead(MemoryRead),
    /// The memory could not be read.
    MemoryUnread(MemoryDegraded),
    /// The memory was written, or could not be.
    MemoryWrote(&'p Stopped, EventKind),
    HookPassed(&'p Paused, HookPassed),
    HookStopped(&'p mut Phase, HookStop),
    /// A running call asks a person.
    Asked(&'p mut Batch, Place, ApprovalRequested),
    ApprovalGranted(&'p mut Batch, Held, ApprovalGranted),
    ApprovalDenied(&'p mut Batch, Held, ApprovalDenied),
    /// With the places of the calls that do not simply run again.
    Recovered(&'p mut Phase, Sorted, RunRecovered),
    /// With another definition of the agent, if it adopts one.
    Resumed(&'p mut Phase, RunResumed, Option<CheckedDefinition>),
    Parked(Turn, RunParked),
    /// The run waits for parked child runs.
    ParkedBelow(RunParked),
    /// With its end.
    Reopened(Finish, RunReopened),
    /// A person settled a call without an answer.
    Settled(&'p mut Batch, Place, ToolResolved),
    /// A person settled a call after its answer.
    SettledLate(ToolResolved),
    /// A probe settled a call after its answer.
    ProbedLate(ToolProbed),
    Cancelled(&'p mut Phase, SignalReceived),
    Input(SignalReceived),
    /// A fact that is only recorded.
    Noted(Option<u64>, EventKind),
}

impl Step<'_> {
    /// Returns whether a step was completed, so that a process that dies from now on dies at another step.
    pub(super) const fn is_progress(&self) -> bool {
        match self {
            Self::ModelAttempted(..)
            | Self::ModelResponded(..)
            | Self::ModelFailed(..)
            | Self::Limited(..)
            | Self::ToolAttempted(..)
            | Self::ToolResponded(..)
            | Self::MemoryRead(_)
            | Self::MemoryUnread(_)
            | Self::MemoryWrote(..)
            | Self::HookPassed(..)
            | Self::HookStopped(..)
            | Self::ApprovalGranted(..)
            | Self::ApprovalDenied(..)
            | Self::Granted(..)
            | Self::Parked(..)
            | Self::Reopened(..) => true,
            Self::Start(_)
            | Self::ToolRequested(..)
            | Self::ErrorStored(..)
            | Self::Asked(..)
            | Self::Dispatched(..)
            | Self::WaitingBelow(_)
            | Self::GrantedBelow(_)
            | Self::Recovered(..)
            | Self::Resumed(..)
            | Self::ParkedBelow(_)
            // The answer of its call counts as progress.
            | Self::Returned(_)
            | Self::Settled(..)
            | Self::SettledLate(_)
            | Self::ProbedLate(_)
            | Self::Cancelled(..)
            | Self::Input(_)
            | Self::Noted(..) => false,
        }
    }
}

impl Step<'_> {
    /// Returns whether it can come while no process has the run.
    pub(super) const fn is_settlement(&self) -> bool {
        matches!(self, Self::Settled(..) | Self::SettledLate(_) | Self::ProbedLate(_))
    }
}

/// A stop of a run by a hook.
pub(super) enum HookStop {
    Aborted(HookAborted),
    Failed(HookFailed),
}

impl HookStop {
    pub(super) fn failure(&self) -> FailureCause {
        match self {
            Self::Aborted(HookAborted { hook, message, .. }) => {
                FailureCause::Aborted { hook: Arc::clone(hook), reason: Arc::clone(message) }
            }
            Self::Failed(HookFailed { hook, reason, message, .. }) => {
                let message = match reason.as_str() {
                    code::HOOK_FAILED => format!("{}: {message}", text::HOOK_FAILED).into(),
                    _ => Arc::clone(message),
                };
                FailureCause::HookRejected { hook: Arc::clone(hook), message }
            }
        }
    }

    /// Returns the call that the hook saw after it ran, before its answer.
    pub(super) fn after_tool(&self) -> Option<&CallId> {
        let (point, call) = match self {
            Self::Aborted(HookAborted { point, call_id, .. })
            | Self::Failed(HookFailed { point, call_id, .. }) => (point, call_id),
        };
        call.as_ref().filter(|_| **point == *HookPoint::AfterTool.as_str())
    }

    pub(super) fn into_event(self) -> EventKind {
        match self {
            Self::Aborted(aborted) => aborted.into(),
            Self::Failed(failed) => failed.into(),
        }
    }
}
