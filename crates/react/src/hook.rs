//! Hooks: other people's code at points of a run. Observers only observe; gates can stop a run or a call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_react_machine::{HookPoint, HookRecord};
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure, Seconds};
use layer0::id::{CallId, RunId, SessionId};
use layer0::message::{StopReason, ToolCall, Transcript};
use layer0::stop::Outcome;
use layer0::{Code, JsonText, code};
use serde_json::Value;
use thiserror::Error;

/// A hook that observes points of a run. It changes nothing, and is called after the gates of its point.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Returns the name, which events and errors contain.
    fn name(&self) -> &str;

    /// Returns the points at which it is called.
    fn points(&self) -> &[HookPoint];

    /// Returns whether the run continues if the hook fails: by an error, a panic or no answer within the agent's hook
    /// timeout. Code that blocks its thread delays the run until it is done; its answer is void then.
    fn fail_open(&self) -> bool {
        true
    }

    /// Observes a moment.
    ///
    /// # Errors
    ///
    /// Any error; [`Observer::fail_open`] decides whether the run continues.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the hook timeout, and when the run is stopped.
    async fn observe(&self, moment: Moment<'_>, context: &HookContext) -> Result<(), BoxError>;
}

/// A hook that decides at points of a run whether it continues.
#[async_trait]
pub trait Gate: Send + Sync {
    /// Returns the name, which events, errors and the model's texts contain.
    fn name(&self) -> &str;

    /// Returns the points at which it is called.
    fn points(&self) -> &[HookPoint];

    /// Returns whether the run continues if the gate fails, as [`Observer::fail_open`].
    fn fail_open(&self) -> bool {
        true
    }

    /// Decides on a moment.
    ///
    /// # Errors
    ///
    /// Any error; [`Gate::fail_open`] decides whether the run continues.
    ///
    /// # Cancel safety
    ///
    /// As [`Observer::observe`].
    async fn judge(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<GateVerdict, BoxError>;
}

/// The verdict of a gate.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum GateVerdict {
    /// Continue.
    Continue,
    /// Stop. Before a tool, the call is answered as skipped and the run continues; at other points the run fails as
    /// aborted.
    Abort(String),
    /// Before a tool: continue with these arguments instead. At other points, the gate has failed.
    ReplaceArguments(JsonText),
}

/// The run that a hook is called for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookContext {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionId,
}

/// An event of a run that is about to happen, or just did.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Moment<'a> {
    /// The run has started.
    #[non_exhaustive]
    RunStart {
        /// The run's input.
        input: &'a str,
    },
    /// The model is about to be called.
    #[non_exhaustive]
    BeforeModel {
        /// Number of the call in the run.
        call: u32,
        /// The messages to send.
        messages: &'a Transcript,
    },
    /// The model has answered.
    #[non_exhaustive]
    AfterModel {
        /// Number of the call in the run.
        call: u32,
        /// The text of the answer.
        text: &'a str,
        /// The requested tool calls.
        tool_calls: &'a [ToolCall],
        /// The reason for the end of the answer.
        stop_reason: &'a StopReason,
    },
    /// The model requests a tool. Gates see the model's arguments, as changed by the gates before them; observers see
    /// the arguments that the tool will get.
    #[non_exhaustive]
    BeforeTool {
        /// The call.
        call: &'a ToolCall,
    },
    /// A tool has run.
    #[non_exhaustive]
    AfterTool {
        /// The call.
        call_id: &'a CallId,
        /// The tool.
        tool: &'a str,
        /// Whether it succeeded.
        ok: bool,
        /// Its output in the form that the log has.
        output: &'a JsonText,
    },
    /// A signal other than `cancel` and `input` was received and recorded; the run itself ignores it. A signal that
    /// arrived when the process died is not shown again.
    #[non_exhaustive]
    Signal {
        /// The signal's name.
        name: &'a str,
        /// The signal's data.
        data: &'a Value,
    },
    /// The run is about to end.
    #[non_exhaustive]
    RunEnd {
        /// The outcome.
        outcome: Outcome,
        /// The code of the failure or stop.
        reason: Option<&'a Code>,
        /// The last text of the model.
        output: &'a str,
    },
}

impl Moment<'_> {
    /// Returns the point of the run.
    #[must_use]
    pub const fn point(&self) -> HookPoint {
        match self {
            Self::RunStart { .. } => HookPoint::RunStart,
            Self::BeforeModel { .. } => HookPoint::BeforeModel,
            Self::AfterModel { .. } => HookPoint::AfterModel,
            Self::BeforeTool { .. } => HookPoint::BeforeTool,
            Self::AfterTool { .. } => HookPoint::AfterTool,
            Self::Signal { .. } => HookPoint::Signal,
            Self::RunEnd { .. } => HookPoint::RunEnd,
        }
    }

    /// Returns the tool of the call, at the points around tools.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::BeforeTool { call } => Some(&call.name),
            Self::AfterTool { tool, .. } => Some(tool),
            _ => None,
        }
    }

    pub(crate) const fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::BeforeTool { call } => Some(&call.id),
            Self::AfterTool { call_id, .. } => Some(call_id),
            _ => None,
        }
    }
}

/// The error of a hook.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HookError {
    /// The hook reported an error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", backstop_react_machine::text::HOOK_FAILED)]
    Failed(#[source] BoxError),
    /// The hook panicked; the panic was caught.
    ///
    /// Retry: never. Effect: unknown.
    #[error("hook panicked: {0}")]
    Panicked(String),
    /// The hook did not answer in time.
    ///
    /// Retry: never. Effect: unknown.
    #[error("hook gave no answer within {}", Seconds(*after))]
    #[non_exhaustive]
    Timeout {
        /// The limit.
        after: Duration,
    },
}

impl HookError {
    /// Returns [`HookError::Timeout`].
    #[must_use]
    pub const fn timeout(after: Duration) -> Self {
        Self::Timeout { after }
    }
}

impl Failure for HookError {
    fn facts(&self) -> Facts {
        match self {
            Self::Failed(_) => Facts::never(code::HOOK_FAILED, Effect::Unknown),
            Self::Panicked(_) => Facts::never(code::HOOK_PANICKED, Effect::Unknown),
            Self::Timeout { .. } => Facts::never(code::HOOK_TIMEOUT, Effect::Unknown),
        }
    }
}

/// A hook of either kind, with its own description.
#[derive(Clone)]
pub(crate) struct Hook {
    code: HookCode,
    record: HookRecord,
}

/// The code of a hook.
#[derive(Clone)]
pub(crate) enum HookCode {
    Gate(Arc<dyn Gate>),
    Observer(Arc<dyn Observer>),
}

impl Hook {
    /// Reads the description of a hook from its code, which may panic.
    pub(crate) fn from_code(code: HookCode) -> Self {
        let (name, points, fail_open) = match &code {
            HookCode::Gate(gate) => (gate.name(), gate.points(), gate.fail_open()),
            HookCode::Observer(observer) => {
                (observer.name(), observer.points(), observer.fail_open())
            }
        };
        let record = HookRecord::new(name, points.to_vec(), fail_open);
        Self { code, record }
    }

    pub(crate) const fn is_gate(&self) -> bool {
        matches!(self.code, HookCode::Gate(_))
    }

    pub(crate) fn name(&self) -> &str {
        &self.record.name
    }

    pub(crate) fn points(&self) -> &[HookPoint] {
        &self.record.points
    }

    pub(crate) const fn fail_open(&self) -> bool {
        self.record.fail_open
    }

    /// Returns the description of the hook in the agent's definition.
    pub(crate) fn record(&self) -> HookRecord {
        self.record.clone()
    }

    pub(crate) async fn call(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<GateVerdict, BoxError> {
        match &self.code {
            HookCode::Gate(gate) => gate.judge(moment, context).await,
            HookCode::Observer(observer) => {
                observer.observe(moment, context).await.map(|()| GateVerdict::Continue)
            }
        }
    }
}
