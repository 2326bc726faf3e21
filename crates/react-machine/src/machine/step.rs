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
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, CallIndex, HeldCall, Sorted};
use crate::phase::paused::{Paused, Stopped};
use crate::phase::turn::OpenModelCall;
use crate::text;

/// A fact that fits, with the state that it changes.
pub(super) enum Transition<'p> {
    Start(RunStarted),
    ModelAttempted(&'p mut OpenModelCall, ModelAttempted),
    ModelResponded(OpenModelCall, ModelResponded),
    ModelFailed(OpenModelCall, ModelFailed),
    /// The next attempt was refused by a spend limit.
    Limited(OpenModelCall, BudgetExhausted),
    ToolRequested(&'p mut CallBatch, CallIndex, ToolRequested),
    ToolAttempted(&'p mut CallBatch, CallIndex, ToolAttempted),
    ToolResponded(&'p mut CallBatch, CallIndex, ToolResponded),
    ErrorStored(&'p mut CallBatch, CallIndex, ErrorStored),
    Dispatched(u64, CallId, OperatorDispatched),
    /// The caller gave more, or has nothing left.
    Granted(&'p mut RunPhase, BudgetGranted),
    WaitingBelow(OperatorWaiting),
    GrantedBelow(BudgetGranted),
    Returned(OperatorReturned),
    MemoryRead(MemoryRead),
    /// The memory could not be read.
    MemoryUnread(MemoryDegraded),
    /// The memory was written, or could not be.
    MemoryWrote(&'p Stopped, EventKind),
    HookPassed(&'p Paused, HookPassed),
    HookStopped(&'p mut RunPhase, HookStop),
    /// A running call asks a person.
    Asked(&'p mut CallBatch, CallIndex, ApprovalRequested),
    ApprovalGranted(&'p mut CallBatch, HeldCall, ApprovalGranted),
    ApprovalDenied(&'p mut CallBatch, HeldCall, ApprovalDenied),
    /// With the places of the calls that do not simply run again.
    Recovered(&'p mut RunPhase, Sorted, RunRecovered),
    /// With another definition of the agent, if it adopts one.
    Resumed(&'p mut RunPhase, RunResumed, Option<CheckedDefinition>),
    Parked(OpenModelCall, RunParked),
    /// The run waits for parked child runs.
    ParkedBelow(RunParked),
    /// With its end.
    Reopened(Finish, RunReopened),
    /// A person settled a call without an answer.
    Settled(&'p mut CallBatch, CallIndex, ToolResolved),
    /// A person settled a call after its answer.
    SettledLate(ToolResolved),
    /// A probe settled a call after its answer.
    ProbedLate(ToolProbed),
    Cancelled(&'p mut RunPhase, SignalReceived),
    Input(SignalReceived),
    /// A fact that is only recorded.
    Noted(Option<u64>, EventKind),
}

impl Transition<'_> {
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

impl Transition<'_> {
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
