//! Other people's code at points of a run: observers look on, gates may say no.

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

/// Looks on at points of a run. It changes nothing, and is asked after the gates of its point.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Returns the name that stands in events and errors.
    fn name(&self) -> &str;

    /// Returns where it is called.
    fn points(&self) -> &[HookPoint];

    /// Does the run go on when it fails? Failing is an error, a panic or no answer within the
    /// agent's hook timeout. Code that blocks its thread holds the run up until it is done; its
    /// answer is void then.
    fn fail_open(&self) -> bool {
        true
    }

    /// Looks on.
    ///
    /// # Errors
    ///
    /// Any error; what comes of it is up to [`Observer::fail_open`].
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the hook timeout, and when the run is stopped.
    async fn observe(&self, moment: Moment<'_>, context: &HookContext) -> Result<(), BoxError>;
}

/// Decides at points of a run whether it goes on.
#[async_trait]
pub trait Gate: Send + Sync {
    /// Returns the name that stands in events, errors and what the model reads.
    fn name(&self) -> &str;

    /// Returns where it is called.
    fn points(&self) -> &[HookPoint];

    /// Does the run go on when it fails? As [`Observer::fail_open`].
    fn fail_open(&self) -> bool {
        true
    }

    /// Decides.
    ///
    /// # Errors
    ///
    /// Any error; what comes of it is up to [`Gate::fail_open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Observer::observe`].
    async fn judge(&self, moment: Moment<'_>, context: &HookContext) -> Result<Verdict, BoxError>;
}

/// What a gate says.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Do not. Before a tool, the call is answered as skipped and the run goes on; anywhere else
    /// the run fails as aborted.
    Abort(String),
    /// Before a tool: go on with these arguments instead. Anywhere else the gate has failed.
    ReplaceArguments(JsonText),
}

/// Whose run it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookContext {
    /// The run.
    pub run: RunId,
    /// The session.
    pub session: SessionId,
}

/// What is about to happen, or just did.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Moment<'a> {
    /// The run has started.
    #[non_exhaustive]
    RunStart {
        /// What it was asked.
        input: &'a str,
    },
    /// The model is about to be asked.
    #[non_exhaustive]
    BeforeModel {
        /// Which call of the run.
        call: u32,
        /// What it will be sent.
        messages: &'a Transcript,
    },
    /// The model has answered.
    #[non_exhaustive]
    AfterModel {
        /// Which call of the run.
        call: u32,
        /// What it said.
        text: &'a str,
        /// What it asks for.
        tool_calls: &'a [ToolCall],
        /// Why it stopped.
        stop_reason: &'a StopReason,
    },
    /// The model asks for a tool. Gates see the model's arguments, or what the gate before them made
    /// of these; observers see the arguments the tool will get.
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
        /// Did it succeed?
        ok: bool,
        /// Its output as it goes into the log.
        output: &'a JsonText,
    },
    /// A signal came that is neither `cancel` nor `input`, and is recorded; the run itself makes nothing of
    /// it. A signal that came when the process died is not shown again.
    #[non_exhaustive]
    Signal {
        /// Its name.
        name: &'a str,
        /// What it says.
        data: &'a Value,
    },
    /// The run is about to end.
    #[non_exhaustive]
    RunEnd {
        /// How.
        outcome: Outcome,
        /// The code of the failure or stop.
        reason: Option<&'a Code>,
        /// What the model said.
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

    /// Returns the tool it is about, at the points around tools.
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

/// Says how a hook failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HookError {
    /// It reported an error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("{}", backstop_react_machine::text::HOOK_FAILED)]
    Failed(#[source] BoxError),
    /// Its code panicked; the panic was caught.
    ///
    /// Retry: never. Effect: unknown.
    #[error("hook panicked: {0}")]
    Panicked(String),
    /// It did not answer in time.
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
    /// Makes [`HookError::Timeout`].
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

/// A hook of either kind, with what it says of itself.
#[derive(Clone)]
pub(crate) struct Hook {
    code: HookCode,
    record: HookRecord,
}

/// What is called.
#[derive(Clone)]
pub(crate) enum HookCode {
    Gate(Arc<dyn Gate>),
    Observer(Arc<dyn Observer>),
}

impl Hook {
    /// Asks a hook about itself, which may panic.
    pub(crate) fn of(code: HookCode) -> Self {
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

    /// Returns what the agent's definition says of it.
    pub(crate) fn record(&self) -> HookRecord {
        self.record.clone()
    }

    pub(crate) async fn call(
        &self,
        moment: Moment<'_>,
        context: &HookContext,
    ) -> Result<Verdict, BoxError> {
        match &self.code {
            HookCode::Gate(gate) => gate.judge(moment, context).await,
            HookCode::Observer(observer) => {
                observer.observe(moment, context).await.map(|()| Verdict::Continue)
            }
        }
    }
}
