//! The phase of a run.

pub(crate) mod batch;
pub(crate) mod paused;
pub(crate) mod turn;

use layer0::event::{EventKind, HookPassed};
use layer0::id::CallId;

use crate::hook::HookPoint;
use crate::io::{Finish, Misuse};
use crate::phase::batch::CallBatch;
use crate::phase::paused::{Paused, PausedStep, Stopped};
use crate::phase::turn::{OpenModelCall, PlannedModelCall};

/// The phase of a run, with the state that exists only in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum RunPhase {
    #[default]
    New,
    /// The run waits for the hooks before its next step.
    Hooking(Paused),
    /// The memory is read.
    Recalling,
    /// The run waits for more of its caller's budget.
    Short(PlannedModelCall),
    Asking(OpenModelCall),
    /// The run is parked, and calls its model again later.
    Parked(PlannedModelCall),
    Working(CallBatch),
    /// The memory is written, then the run ends in this way.
    Memorizing(Stopped),
    Done(Finish),
}

impl RunPhase {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::New => "the run has not started",
            Self::Hooking(_) => "hooks are called",
            Self::Recalling => "the memory is read",
            Self::Memorizing(_) => "the memory is written",
            Self::Short(_) => "the caller is asked for more of its budget",
            Self::Asking(_) => "the model is asked",
            Self::Parked(_) => "the run is parked",
            Self::Working(_) => "tools are at work",
            Self::Done(_) => "the run is over",
        }
    }

    /// Returns the batch whose tools are running.
    pub(crate) const fn batch(&self) -> Option<&CallBatch> {
        match self {
            Self::Working(batch) => Some(batch),
            _ => None,
        }
    }

    /// Returns the point whose hooks are called.
    pub(crate) const fn paused_at(&self) -> Option<HookPoint> {
        match self {
            Self::Hooking(paused) => Some(paused.point()),
            _ => None,
        }
    }

    /// Returns whether the run waits for its last hooks, or has ended.
    pub(crate) const fn is_ending(&self) -> bool {
        match self {
            Self::Done(_) => true,
            Self::Hooking(paused) => matches!(paused.step, PausedStep::End(_)),
            _ => false,
        }
    }

    /// Returns the seq of the cause of a fact from outside the machine.
    pub(crate) fn find_cause(&self, fact: &EventKind) -> Option<u64> {
        match (self, find_call_id(fact)) {
            (Self::Working(batch), Some(call_id)) => batch.find_cause(call_id),
            (Self::Hooking(paused), _) => {
                let of_hook = matches!(fact, EventKind::HookFailed(_) | EventKind::HookAborted(_));
                of_hook.then_some(paused.cause)
            }
            _ => None,
        }
    }

    /// Checks that these hooks let the run continue.
    pub(crate) fn check_passed(&self, passed: &HookPassed) -> Result<&Paused, Misuse> {
        match self {
            Self::Hooking(paused)
                if paused.point().as_str() == &*passed.point && passed.call_id.is_none() =>
            {
                Ok(paused)
            }
            _ => Err(Misuse::Unexpected { event: "hook.passed", state: self.name() }),
        }
    }

    /// Checks that a hook may stop the run here.
    pub(crate) fn check_hook(&self, event: &'static str, point: &str) -> Result<(), Misuse> {
        let fits = match self {
            _ if point == HookPoint::Signal.as_str() => !self.is_ending(),
            Self::Hooking(paused) => paused.point().as_str() == point,
            Self::Working(_) => [HookPoint::BeforeTool, HookPoint::AfterTool]
                .map(HookPoint::as_str)
                .contains(&point),
            _ => false,
        };
        if fits { Ok(()) } else { Err(Misuse::Unexpected { event, state: self.name() }) }
    }
}

/// Returns the id of the call that a fact belongs to.
pub(crate) const fn find_call_id(fact: &EventKind) -> Option<&CallId> {
    match fact {
        EventKind::ErrorStored(stored) => Some(&stored.call_id),
        EventKind::OperatorDispatched(dispatched) => dispatched.call_id.as_ref(),
        EventKind::HookAborted(aborted) => aborted.call_id.as_ref(),
        EventKind::HookFailed(failed) => failed.call_id.as_ref(),
        EventKind::ResultStored(stored) => Some(&stored.call_id),
        EventKind::ToolAttempted(attempted) => Some(&attempted.call_id),
        EventKind::ToolLate(late) => Some(&late.call_id),
        EventKind::ToolProbed(probed) => Some(&probed.call_id),
        _ => None,
    }
}
