//! Inputs and outputs of the machine.

use std::sync::Arc;

use layer0::event::{Actor, EventKind};
use layer0::id::{ApprovalId, CallId};
use layer0::message::{StopReason, ToolCall, Transcript};
use layer0::stop::Stop;
use layer0::usage::Allowance;
use layer0::{Approvers, JsonText, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::denials::arguments_hash;
use crate::failure::FailureCause;
use crate::hook::HookPoint;
use crate::reopen::NotReopenable;
use layer0::code;
use layer0::failure::{Effect as WorldEffect, Facts, Failure};

/// An input: a fact for the log, with its time.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MachineInput {
    /// Time of the fact. A time before that of the last input is replaced by that.
    pub at: Timestamp,
    /// The effect that it answers; `None` if it answers none, or if it is read back from a log.
    pub effect: Option<EffectId>,
    /// The fact.
    pub fact: EventKind,
}

impl MachineInput {
    /// Returns an input that answers no effect, or whose effect is found by its call.
    pub fn fact(at: Timestamp, fact: impl Into<EventKind>) -> Self {
        Self { at, effect: None, fact: fact.into() }
    }

    /// Returns an input that answers `effect`; the machine refuses it if the effect is not open.
    pub fn answer(at: Timestamp, effect: EffectId, fact: impl Into<EventKind>) -> Self {
        Self { at, effect: Some(effect), fact: fact.into() }
    }
}

/// Id of an effect, unique in a run across processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectId {
    /// Number of the process life that requested it; answers to effects of earlier ones are stale.
    pub epoch: u32,
    /// Number of the effect, from 1.
    pub number: u32,
}

impl EffectId {
    /// Returns the id of the effect with this number in this process life.
    #[must_use]
    pub const fn new(epoch: u32, number: u32) -> Self {
        Self { epoch, number }
    }
}

/// An output of the machine. After an input, poll until [`MachineOutput::Wait`] or [`MachineOutput::Finish`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MachineOutput {
    /// Append this entry, with all others of the same drain, before any effect starts.
    Append(MachineEntry),
    /// Perform this effect once everything is appended.
    Perform(MachineAction),
    /// There is nothing to do until the next input.
    Wait,
    /// The run has ended; every later poll returns the same.
    Finish(Finish),
}

/// An entry to append to the log: its seq is its position in the run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MachineEntry {
    /// Position in the run: 1, 2, ….
    pub seq: u64,
    /// Time of the entry.
    pub at: Timestamp,
    /// Origin of the entry.
    pub actor: Actor,
    /// The seq of the entry that caused it.
    pub caused_by: Option<u64>,
    /// Type and payload.
    pub kind: EventKind,
}

impl MachineEntry {
    /// Returns an entry without a cause, such as one that is read back from a log.
    #[must_use]
    pub fn new(seq: u64, at: Timestamp, actor: Actor, kind: impl Into<EventKind>) -> Self {
        Self { seq, at, actor, caused_by: None, kind: kind.into() }
    }
}

/// An action to perform.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MachineAction {
    /// Call the model. Answered by `model.responded` or `model.failed`; `model.attempted` comes before.
    CallModel(ModelCall),
    /// Decide which calls of a batch may run. Each is answered by `tool.requested` (it may), `tool.responded` (refused)
    /// or [`Machine::hold`](crate::Machine::hold) (a person decides), all in one append.
    AdmitTools(ToolBatch),
    /// Read the memory. Answered by `memory.read` or `memory.degraded`.
    ReadMemory {
        /// Input of the run.
        input: Arc<str>,
    },
    /// Write the memory. Answered by `memory.wrote` or `memory.degraded`.
    WriteMemory {
        /// Input of the run.
        input: Arc<str>,
        /// Output of the run.
        output: Arc<str>,
    },
    /// Run a tool. Answered by `tool.responded`.
    RunTool(ToolRun),
    /// Run a tool again that was running when the process died. Answered by `tool.responded`.
    Rerun {
        /// The effect.
        id: EffectId,
        /// The call; its tool and arguments are in its `tool.requested`.
        call_id: CallId,
    },
    /// Ask a tool whether a call happened that was running when the process died. Answered by `tool.probed`, then by
    /// `tool.responded`, or by `tool.attempted` if it runs again.
    Probe {
        /// The effect.
        id: EffectId,
        /// The call; its tool and arguments are in its `tool.requested`.
        call_id: CallId,
    },
    /// Call the hooks of a point. Answered by `hook.passed`, or by `hook.failed` or `hook.aborted` if one of them stops
    /// the run.
    RunHooks(Pause),
    /// Ask the caller for more of its budget. Answered by `budget.granted`.
    AskBudget {
        /// Number of earlier answers of the caller.
        given: u32,
    },
    /// Ask a person. Answered by `approval.granted` or `approval.denied`, if ever.
    AskApproval(Approval),
}

/// Tool calls to decide on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolBatch {
    /// The calls, in the model's order.
    pub calls: Arc<[ToolCall]>,
    /// Number of them that may run; further ones are answered as cancelled.
    pub max_executions: u32,
    /// Whether a person approved these calls with these arguments.
    pub approved: bool,
    /// Whether the arguments are those of the person, which no gate has seen.
    pub changed: bool,
}

/// A request to a person for the approval of a call with these arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Approval {
    /// Id of the approval; unique across runs.
    pub id: ApprovalId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// Arguments that it will get.
    pub arguments: JsonText,
    /// SHA-256 of the arguments, in hex, to which the decision is bound.
    pub arguments_hash: Arc<str>,
    /// JSON Schema of the data in an approval; `None` if no data is requested.
    #[serde(default)]
    pub schema: Option<JsonText>,
    /// Message of the tool, if the call is already running and requests data.
    #[serde(default)]
    pub message: Option<Arc<str>>,
    /// Time at which it expires; `None` if it never does.
    pub expires_at: Option<Timestamp>,
    /// People who may decide it.
    pub approvers: Approvers,
    /// Contract of the call when it was shown.
    #[serde(skip)]
    pub(crate) contract: ToolContract,
}

/// The contract of a tool: everything besides the arguments that determines the result of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolContract {
    pub(crate) of_tool: Option<JsonText>,
    /// Contract of the agent, if the tool is from a server.
    pub(crate) of_agent: Option<JsonText>,
}

impl Approval {
    /// Returns an approval that any person may decide, at any time.
    #[must_use]
    pub fn new(id: ApprovalId, call_id: CallId, tool: Arc<str>, arguments: JsonText) -> Self {
        let arguments_hash = arguments_hash(&arguments);
        Self {
            id,
            call_id,
            tool,
            arguments,
            arguments_hash,
            schema: None,
            message: None,
            expires_at: None,
            approvers: Approvers::default(),
            contract: ToolContract::default(),
        }
    }

    /// Returns whether the request comes from a call that is already running.
    #[must_use]
    pub const fn is_asked_by_call(&self) -> bool {
        self.message.is_some()
    }

    /// Returns whether it has expired.
    #[must_use]
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|over| over <= at)
    }

    /// Binds the decision to other arguments than the shown ones.
    pub(crate) fn change(&mut self, arguments: JsonText) {
        self.arguments_hash = arguments_hash(&arguments);
        self.arguments = arguments;
    }

    /// Returns the call that runs once a person approves it.
    pub(crate) fn call(&self) -> ToolCall {
        ToolCall::new(self.call_id.clone(), Arc::clone(&self.tool), self.arguments.clone())
    }
}

/// A pause between two steps, at which hooks are called, with the data for the hooks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Pause {
    /// The run has started.
    RunStart {
        /// Input of the run.
        input: Arc<str>,
    },
    /// The model is about to be called.
    BeforeModel {
        /// Number of the model call in the run.
        call: u32,
        /// Messages that the model will receive.
        messages: Transcript,
    },
    /// The model has answered.
    AfterModel {
        /// Number of the model call in the run.
        call: u32,
        /// Text of the answer.
        text: Arc<str>,
        /// Calls that it requests.
        tool_calls: Arc<[ToolCall]>,
        /// Reason that it stopped.
        stop_reason: StopReason,
    },
    /// The run is about to end in this way.
    RunEnd(Finish),
}

impl Pause {
    /// Returns the point whose hooks are called.
    #[must_use]
    pub const fn point(&self) -> HookPoint {
        match self {
            Self::RunStart { .. } => HookPoint::RunStart,
            Self::BeforeModel { .. } => HookPoint::BeforeModel,
            Self::AfterModel { .. } => HookPoint::AfterModel,
            Self::RunEnd(_) => HookPoint::RunEnd,
        }
    }
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelCall {
    /// The effect.
    pub id: EffectId,
    /// Number of the call in the run: 1, 2, …; a resend has the number of its call.
    pub call: u32,
    /// Number of earlier attempts of this call, from which the numbering continues.
    pub attempts_before: u32,
    /// Budget of its attempts.
    pub left: Allowance,
}

/// A tool execution to perform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolRun {
    /// The effect.
    pub id: EffectId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments.
    pub arguments: JsonText,
    /// Number of the execution in the run: 1, 2, ….
    pub execution: u32,
    /// The data that a person gave with the approval of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_data: Option<JsonText>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Finish {
    /// The run did not fail.
    Stopped {
        /// The kind of stop.
        stop: Stop,
        /// Output of the model.
        output: Arc<str>,
    },
    /// The run failed.
    Failed(FailureCause),
}

/// The reason that an input was refused. A refused input changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The run has ended.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` after the run ended")]
    Finished(&'static str),
    /// The input does not fit the state of the run.
    ///
    /// Retry: never. Effect: none.
    #[error("`{event}` while {state}")]
    Unexpected {
        /// The event's type.
        event: &'static str,
        /// State of the run.
        state: &'static str,
    },
    /// The input is a decision, which only the machine makes.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` is the machine's to decide")]
    Decision(&'static str),
    /// The ended run cannot be reopened with this input.
    ///
    /// Retry: never. Effect: none.
    #[error("`run.reopened` after an end that does not allow it")]
    NotReopenable(#[from] NotReopenable),
    /// The agent of the resumed run cannot be run.
    ///
    /// Retry: never. Effect: none.
    #[error("the agent in `run.resumed` cannot be run: {0}")]
    Agent(String),
    /// No such approval is open.
    ///
    /// Retry: never. Effect: none.
    #[error("no open approval `{0}`")]
    UnknownApproval(ApprovalId),
    /// No call of the batch has this id.
    ///
    /// Retry: never. Effect: none.
    #[error("no open call `{0}`")]
    UnknownCall(CallId),
    /// The person may not decide the approval.
    ///
    /// Retry: never. Effect: none.
    #[error("`{by}` may not decide approval `{approval}`")]
    NotApprover {
        /// The approval.
        approval: ApprovalId,
        /// Person who decided it.
        by: Arc<str>,
    },
    /// The call was already answered.
    ///
    /// Retry: never. Effect: none.
    #[error("call `{0}` was already answered")]
    AlreadyAnswered(CallId),
    /// The effect the input answers is not the open one.
    ///
    /// Retry: never. Effect: none.
    #[error("effect {number} of epoch {epoch} is not open")]
    Stale {
        /// The epoch of the effect.
        epoch: u32,
        /// Its number.
        number: u32,
    },
    /// A number in the input is not the next one.
    ///
    /// Retry: never. Effect: none.
    #[error("`{event}` numbered {actual}, expected {expected}")]
    OutOfOrder {
        /// The event's type.
        event: &'static str,
        /// The number in the input.
        actual: u32,
        /// The number that is next.
        expected: u32,
    },
}

impl Failure for Misuse {
    fn facts(&self) -> Facts {
        match self {
            Self::Finished(_)
            | Self::Unexpected { .. }
            | Self::Decision(_)
            | Self::NotReopenable(_)
            | Self::Agent(_)
            | Self::UnknownApproval(_)
            | Self::UnknownCall(_)
            | Self::NotApprover { .. }
            | Self::AlreadyAnswered(_)
            | Self::Stale { .. }
            | Self::OutOfOrder { .. } => Facts::never(code::INPUT_INVALID, WorldEffect::None),
        }
    }
}
