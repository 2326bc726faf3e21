//! A step that waits for the hooks of its point.

use std::sync::Arc;

use layer0::message::{Message, ProviderState, StopReason, ToolCall};
use layer0::stop::Stop;

use crate::failure::FailureCause;
use crate::hook::HookPoint;
use crate::io::Finish;
use crate::phase::turn::{OpenModelCall, PlannedModelCall};

/// A step, with its cause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Paused {
    /// The seq of the cause of the step.
    pub(crate) cause: u64,
    pub(crate) step: PausedStep,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PausedStep {
    Start,
    Ask(PlannedModelCall),
    Read(UnreadAnswer),
    End(PlannedEnd),
}

/// A model answer that is about to be read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnreadAnswer {
    pub(crate) turn: OpenModelCall,
    pub(crate) text: Arc<str>,
    /// The final answer, if it is a part of the text.
    pub(crate) output: Option<Arc<str>>,
    pub(crate) calls: Arc<[ToolCall]>,
    pub(crate) state: Option<ProviderState>,
    pub(crate) stop_reason: StopReason,
    /// Whether it is part of the transcript.
    pub(crate) is_said: bool,
}

/// The planned end of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedEnd {
    Stopped(Stopped),
    Failed(FailureCause),
}

/// An end without a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stopped {
    pub(crate) stop: Stop,
    pub(crate) output: Arc<str>,
    /// The provider's name of an unknown stop reason.
    pub(crate) unknown_reason: Option<Arc<str>>,
}

impl Paused {
    pub(crate) const fn point(&self) -> HookPoint {
        match self.step {
            PausedStep::Start => HookPoint::RunStart,
            PausedStep::Ask(_) => HookPoint::BeforeModel,
            PausedStep::Read(_) => HookPoint::AfterModel,
            PausedStep::End(_) => HookPoint::RunEnd,
        }
    }
}

impl UnreadAnswer {
    /// Returns the answer as a message of the transcript.
    pub(crate) fn message(&self) -> Message {
        Message::Assistant {
            content: Arc::clone(&self.text),
            tool_calls: Arc::clone(&self.calls),
            provider_state: self.state.clone(),
        }
    }

    /// Returns whether it has neither text nor calls.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.text.trim().is_empty()
    }
}

impl Stopped {
    pub(crate) const fn new(stop: Stop, output: Arc<str>) -> Self {
        Self { stop, output, unknown_reason: None }
    }
}

impl PlannedEnd {
    /// Returns the end in the form for the driver.
    pub(crate) fn finish(&self) -> Finish {
        match self {
            Self::Stopped(Stopped { stop, output, .. }) => {
                Finish::Stopped { stop: stop.clone(), output: Arc::clone(output) }
            }
            Self::Failed(failure) => Finish::Failed(failure.clone()),
        }
    }
}
