//! What goes into the machine and what comes out of it.

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

/// Something that happened: a fact for the log, and when.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Input {
    /// When it happened. A time before the last input's is taken as that.
    pub at: Timestamp,
    /// The effect it answers; `None` when it answers none, or when it is read back from a log.
    pub effect: Option<EffectId>,
    /// What happened.
    pub fact: EventKind,
}

impl Input {
    /// Makes an input that answers no effect, or whose effect is found by its call.
    pub fn fact(at: Timestamp, fact: impl Into<EventKind>) -> Self {
        Self { at, effect: None, fact: fact.into() }
    }

    /// Makes an input that answers `effect`; the machine refuses it if the effect is not open.
    pub fn answer(at: Timestamp, effect: EffectId, fact: impl Into<EventKind>) -> Self {
        Self { at, effect: Some(effect), fact: fact.into() }
    }
}

/// Names an effect, unique in a run across processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectId {
    /// Which process life of the run asked for it; answers from an earlier one are stale.
    pub epoch: u32,
    /// Counts effects, from 1.
    pub number: u32,
}

impl EffectId {
    /// Names the effect with this number of this process life.
    #[must_use]
    pub const fn new(epoch: u32, number: u32) -> Self {
        Self { epoch, number }
    }
}

/// What the machine wants next. After an input, poll until [`Output::Wait`] or [`Output::Finish`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Append this, with all others of the same drain, before any effect starts.
    Append(Entry),
    /// Perform this once everything is appended.
    Perform(Effect),
    /// Nothing until the next input.
    Wait,
    /// The run is over; every later poll gives the same.
    Finish(Finish),
}

/// A log entry to be: the envelope's seq is its place in the run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Its place in the run: 1, 2, ….
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// Who it comes from.
    pub actor: Actor,
    /// The seq of the entry that led to it.
    pub caused_by: Option<u64>,
    /// Its type and payload.
    pub kind: EventKind,
}

impl Entry {
    /// Makes an entry that nothing led to, such as one that is read back from a log.
    #[must_use]
    pub fn new(seq: u64, at: Timestamp, actor: Actor, kind: impl Into<EventKind>) -> Self {
        Self { seq, at, actor, caused_by: None, kind: kind.into() }
    }
}

/// Something to do in the world.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Effect {
    /// Ask the model. Answered by `model.responded` or `model.failed`; `model.attempted` goes before.
    CallModel(ModelCall),
    /// Decide which calls of a batch may run. Each is answered by `tool.requested` (it may),
    /// `tool.responded` (refused) or [`Machine::hold`](crate::Machine::hold) (a person decides), all
    /// in one append.
    AdmitTools(ToolBatch),
    /// Read the memory. Answered by `memory.read` or `memory.degraded`.
    ReadMemory {
        /// What the run is asked.
        input: Arc<str>,
    },
    /// Write the memory. Answered by `memory.wrote` or `memory.degraded`.
    WriteMemory {
        /// What the run was asked.
        input: Arc<str>,
        /// What it answered.
        output: Arc<str>,
    },
    /// Run a tool. Answered by `tool.responded`.
    RunTool(ToolRun),
    /// Run a tool again that was running when the process died. Answered by `tool.responded`.
    Rerun {
        /// The effect.
        id: EffectId,
        /// The call; its tool and arguments stand in its `tool.requested`.
        call_id: CallId,
    },
    /// Ask a tool whether a call happened that was running when the process died. Answered by `tool.probed`,
    /// then by `tool.responded`, or by `tool.attempted` where it runs again.
    Probe {
        /// The effect.
        id: EffectId,
        /// The call; its tool and arguments stand in its `tool.requested`.
        call_id: CallId,
    },
    /// Call the hooks of a point. Answered by `hook.passed`, or by `hook.failed` or `hook.aborted`
    /// where one of them stops the run.
    RunHooks(Pause),
    /// Ask the caller for more of its budget. Answered by `budget.granted`.
    AskBudget {
        /// How often the run was given more before.
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
    /// How many of them may run; further ones are answered as cancelled.
    pub max_executions: u32,
    /// Did a person agree to these calls, with these arguments?
    pub approved: bool,
    /// Are the arguments those of the person, which no gate has seen?
    pub changed: bool,
}

/// An approval to ask a person for: may this call run with these arguments?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Approval {
    /// Names the approval; unique among runs.
    pub id: ApprovalId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments it will get.
    pub arguments: JsonText,
    /// SHA-256 of the arguments, in hex; what the decision is bound to.
    pub arguments_hash: Arc<str>,
    /// JSON Schema of the data that goes with a yes; none is asked for where there is none.
    #[serde(default)]
    pub schema: Option<JsonText>,
    /// What the call asks, in its tool's words, where it is running already and asks for data.
    #[serde(default)]
    pub message: Option<Arc<str>>,
    /// Until when it can be decided; for ever where there is no such time.
    pub expires_at: Option<Timestamp>,
    /// Who may decide it.
    pub approvers: Approvers,
    /// The contract of the call when it was shown.
    #[serde(skip)]
    pub(crate) contract: ToolContract,
}

/// The contract of a tool: everything that decides the result of a call beyond its arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolContract {
    pub(crate) of_tool: Option<JsonText>,
    /// Of its agent, where the tool is one of a server.
    pub(crate) of_agent: Option<JsonText>,
}

impl Approval {
    /// Makes an approval that any person may decide, at any time.
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

    /// Does a call ask that is running already?
    #[must_use]
    pub const fn is_asked_by_call(&self) -> bool {
        self.message.is_some()
    }

    /// Is it too late to decide it?
    #[must_use]
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|over| over <= at)
    }

    /// Binds the decision to other arguments than those that were shown.
    pub(crate) fn change(&mut self, arguments: JsonText) {
        self.arguments_hash = arguments_hash(&arguments);
        self.arguments = arguments;
    }

    /// Returns the call as it runs once a person agreed.
    pub(crate) fn call(&self) -> ToolCall {
        ToolCall::new(self.call_id.clone(), Arc::clone(&self.tool), self.arguments.clone())
    }
}

/// A place between two steps at which hooks are called, and what they may know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Pause {
    /// The run has started.
    RunStart {
        /// What it was asked.
        input: Arc<str>,
    },
    /// The model is about to be asked.
    BeforeModel {
        /// Which call of the run.
        call: u32,
        /// What the model will be sent.
        messages: Transcript,
    },
    /// The model has answered.
    AfterModel {
        /// Which call of the run.
        call: u32,
        /// What it said.
        text: Arc<str>,
        /// What it asks for.
        tool_calls: Arc<[ToolCall]>,
        /// Why it stopped.
        stop_reason: StopReason,
    },
    /// The run is about to end like this.
    RunEnd(Finish),
}

impl Pause {
    /// Returns which hooks are called.
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
    /// Which call of the run: 1, 2, …; a resend has the number of its call.
    pub call: u32,
    /// Attempts made for this call before, so that numbers go on.
    pub attempts_before: u32,
    /// What its attempts may use.
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
    /// Which execution of the run: 1, 2, ….
    pub execution: u32,
    /// The data that a person gave with the approval of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_data: Option<JsonText>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Finish {
    /// It did not fail.
    Stopped {
        /// How it stopped.
        stop: Stop,
        /// What the model said.
        output: Arc<str>,
    },
    /// It failed.
    Failed(FailureCause),
}

/// Says why an input was refused. A refused input changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The run is over.
    #[error("`{0}` after the run ended")]
    Finished(&'static str),
    /// The input does not fit what the run waits for.
    #[error("`{event}` while {state}")]
    Unexpected {
        /// The event's type.
        event: &'static str,
        /// What the run is doing.
        state: &'static str,
    },
    /// The input is a decision, which only the machine makes.
    #[error("`{0}` is the machine's to decide")]
    Decision(&'static str),
    /// A run that is over cannot be opened again like this.
    #[error("`run.reopened` after an end that does not allow it")]
    NotReopenable(#[from] NotReopenable),
    /// The agent that the run is to go on with cannot be run.
    #[error("the agent in `run.resumed` cannot be run: {0}")]
    Agent(String),
    /// No such approval is open.
    #[error("no open approval `{0}`")]
    UnknownApproval(ApprovalId),
    /// No call of the batch has this id.
    #[error("no open call `{0}`")]
    UnknownCall(CallId),
    /// One who may not decide the approval has decided it.
    #[error("`{by}` may not decide approval `{approval}`")]
    NotApprover {
        /// The approval.
        approval: ApprovalId,
        /// Who has decided it.
        by: Arc<str>,
    },
    /// The call was already answered.
    #[error("call `{0}` was already answered")]
    AlreadyAnswered(CallId),
    /// The effect the input answers is not the open one.
    #[error("effect {number} of epoch {epoch} is not open")]
    Stale {
        /// The epoch of the effect.
        epoch: u32,
        /// Its number.
        number: u32,
    },
    /// A number in the input is not the next one.
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
