//! Steps that a run requests, and their results, as data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::Decision;
use backstop_react_machine::{Approval, Grant, ModelCall, NoBudgetLeft, Pause, ToolRun};
use backstop_tool::Admitted;
use layer0::event::{
    BudgetExhausted, ModelAttempted, ModelFailed, ModelResponded, OperatorReturned, SignalReceived,
};
use layer0::id::{RunId, SessionId};
use layer0::message::{ToolCall, Transcript};
use layer0::operator::Waiting;
use layer0::usage::{Allowance, Usage};
use layer0::{Code, JsonText, ToolSpec, code};
use serde::{Deserialize, Serialize};

use super::note::{PendingEvent, PendingEvents};
use crate::pool::{LeftProvider, PoolFailures};

/// An action on the world.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Send one request to a provider.
    Attempt(Box<ModelAttempt>),
    /// Run a tool once.
    Execution(Box<Execution>),
    /// Probe a call that was running when the process died. It ends as an execution.
    Probe(Box<Execution>),
    /// Probe a call that has its answer, of a finished run. It ends as an execution without an answer.
    LateProbe(Box<Execution>),
    /// Call the hooks of a pause.
    Hooks(Pause),
    /// Show a signal to the hooks. It ends as the hooks of a pause.
    Signal(Box<SignalReceived>),
    /// Ask the gates about calls, and the tools for their proposals.
    Gates {
        calls: Arc<[ToolCall]>,
        /// Whether a person set the arguments, which no gate may change then.
        changed: bool,
    },
    /// Show the observers calls that are about to run.
    Observers(Vec<ToolCall>),
    /// Ask a person in this process.
    Approval(Box<Approval>),
    /// Expire an approval that was not decided in time.
    Expiry(Box<Approval>),
    /// Read the memory for this input.
    ReadMemory(Arc<str>),
    /// Write an answer into the memory.
    WriteMemory { input: Arc<str>, output: Arc<str> },
    /// Report to the caller that the run only waits.
    Wait(Waiting),
    /// Ask the caller for more budget, after so many earlier grants.
    More(u32),
}

impl Step {
    /// Returns whether the step acts on the world. Actions of a child run are its own; a model call can be repeated.
    pub(crate) fn acts(&self) -> bool {
        match self {
            Self::Execution(execution) | Self::LateProbe(execution) | Self::Probe(execution) => {
                execution.child.is_none()
            }
            Self::Hooks(_)
            | Self::Signal(_)
            | Self::Gates { .. }
            | Self::Observers(_)
            | Self::WriteMemory { .. } => true,
            Self::Attempt(_)
            | Self::Approval(_)
            | Self::Expiry(_)
            | Self::ReadMemory(_)
            | Self::Wait(_)
            | Self::More(_) => false,
        }
    }
}

/// The end of a step.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum StepEnd {
    Attempt(AttemptEnd),
    Execution(ExecutionEnd),
    /// Entries of the hooks of a pause or a signal, and the event that stops the run.
    Hooks(PendingEvents, Option<StopFact>),
    /// The gates' verdicts, one per call; or their entries and the event that stops the run.
    Gates(Result<Vec<Gated>, (PendingEvents, StopFact)>),
    /// The entries of the observers, one per call; or their entries and the event that stops the run.
    Observers(Result<Vec<PendingEvents>, (PendingEvents, StopFact)>),
    Approval(Box<Approval>, ApprovalReply),
    /// The approval was not decided in time. With `true`, the expiry was sent to the inbox, and the row there counts.
    Expiry(Box<Approval>, bool),
    Memory(Box<PendingEvent>),
    /// The caller wants the run to be suspended.
    Left,
    /// The caller's grant in addition to earlier ones.
    More(Option<Allowance>),
    /// The step was stopped, and has no result.
    Stopped,
}

/// The answer of a person in this process to an approval.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum ApprovalReply {
    /// A decision; the journal sends it to the inbox, if there is one.
    Decision(Decision),
    /// The inbox has the decision that counts.
    InInbox,
    /// No decision: the approval stays open.
    Nothing,
    /// Only refused decisions, with the reason of the last refusal.
    Refused(String),
}

/// The event of a hook that stops the run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StopFact(pub(crate) Box<PendingEvent>);

/// A call after the gates.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Gated {
    pub(crate) call: ToolCall,
    /// Entries of its hooks.
    pub(crate) notes: PendingEvents,
    /// The gate that skips it, and the reason.
    pub(crate) skipped: Option<(String, String)>,
    /// Its answer, if its tool refuses it without asking a person.
    pub(crate) answer: Option<Box<PendingEvent>>,
}

impl Gated {
    pub(crate) const fn new(call: ToolCall) -> Self {
        Self { call, notes: PendingEvents(Vec::new()), skipped: None, answer: None }
    }
}

/// One attempt of a model call, with the attempts before it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ModelAttempt {
    pub(crate) call: ModelCall,
    pub(crate) messages: Transcript,
    pub(crate) tools: Arc<[ToolSpec]>,
    /// Schema of the final answer.
    #[serde(default)]
    pub(crate) output_schema: Option<JsonText>,
    /// The run's labels.
    #[serde(default)]
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    /// Index of the agent's provider.
    pub(crate) provider: usize,
    /// Attempts of the call by this process, at all providers.
    pub(crate) made: u32,
    /// Those of them at this provider.
    pub(crate) made_here: u32,
    /// The time of the call: attempts, and waits between and before them.
    pub(crate) elapsed: Duration,
    /// The time of the call at which the first attempt at this provider began.
    #[serde(default)]
    pub(crate) began: Duration,
    /// Billed usage of the attempts.
    pub(crate) spent: Usage,
    /// The attempts at each endpoint of this provider.
    #[serde(default)]
    pub(crate) endpoints: PoolFailures,
    /// The providers that failed, and were left for another.
    #[serde(default)]
    pub(crate) left: Vec<LeftProvider>,
    /// Provider and endpoint whose retry budget paid for this attempt.
    #[serde(default)]
    pub(crate) paid_by: Option<(usize, usize)>,
}

impl ModelAttempt {
    pub(crate) fn first(
        call: ModelCall,
        messages: Transcript,
        tools: Arc<[ToolSpec]>,
        output_schema: Option<JsonText>,
        labels: Arc<BTreeMap<String, String>>,
    ) -> Self {
        Self {
            call,
            messages,
            tools,
            output_schema,
            labels,
            provider: 0,
            made: 0,
            made_here: 0,
            elapsed: Duration::ZERO,
            began: Duration::ZERO,
            spent: Usage::default(),
            endpoints: PoolFailures::default(),
            left: Vec::new(),
            paid_by: None,
        }
    }

    /// Returns the number of this attempt: 1, 2, ….
    pub(crate) const fn number(&self) -> u32 {
        self.call.attempts_before.saturating_add(self.made).saturating_add(1)
    }
}

/// The end of an attempt.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum AttemptEnd {
    /// It was not made: it is unknown whether a spend limit allows it.
    Unreserved(Box<ModelFailed>),
    /// It was not made: the runs have reached a spend limit together.
    Limited(Box<BudgetExhausted>),
    /// It was stopped before it began.
    NotBegun,
    /// It was stopped; the provider may have billed it.
    Cut(Box<ModelAttempted>),
    Answered(Box<(ModelAttempted, ModelResponded)>),
    /// Another attempt follows, after this delay.
    Again(Box<ModelAttempted>, Duration, Box<ModelAttempt>),
    /// The endpoint is unavailable for long: the run waits, without a process.
    Parked(Box<(ModelAttempted, Parking)>),
    Failed {
        attempted: Box<(ModelAttempted, ModelFailed)>,
        /// Whether only the run's budget prevents another attempt.
        is_limited: bool,
    },
}

/// Codes of attempts that were sent and did not receive a whole answer.
const LOST: [&str; 3] =
    [code::PROVIDER_TIMEOUT, code::PROVIDER_STREAM_TRUNCATED, code::PROVIDER_STREAM_INTERRUPTED];

impl AttemptEnd {
    /// Returns the bill of the attempt, in billionths of a US dollar; 0 if none was made. `None` if it is unknown: the
    /// attempt was stopped, or lost its answer, before the provider reported its usage.
    pub(crate) fn billed_nanousd(&self) -> Option<u64> {
        let attempted = match self {
            Self::NotBegun | Self::Limited(_) | Self::Unreserved(_) => return Some(0),
            Self::Cut(attempted) | Self::Again(attempted, ..) => attempted,
            Self::Answered(answered) => &answered.0,
            Self::Parked(parked) => &parked.0,
            Self::Failed { attempted, .. } => &attempted.0,
        };
        let is_lost = match &attempted.code {
            None => true,
            Some(code) => LOST.iter().any(|lost| *code == **lost),
        };
        let is_unknown = attempted.usage.is_none() && is_lost;
        (!is_unknown).then(|| attempted.cost_nanousd.unwrap_or_default())
    }
}

/// The wait that an endpoint asks for, and its reason.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Parking {
    pub(crate) wait: Duration,
    pub(crate) reason: Code,
    pub(crate) message: String,
}

/// One execution of a tool, with the executions before it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) run: ToolRun,
    /// The admitted tool and arguments. Another process admits the call again.
    #[serde(skip)]
    pub(crate) admitted: Option<Admitted>,
    /// The sessions whose stored texts the call may read.
    pub(crate) sessions: Arc<[SessionId]>,
    /// Number of dispatches between the run and its root.
    pub(crate) depth: u32,
    /// Number of earlier executions, and the time since the first began.
    pub(crate) tried: u32,
    pub(crate) elapsed: Duration,
    /// Whether the budget allows another execution after this one.
    pub(crate) may_repeat: bool,
    /// The child run of the call, or the reason why it does not start.
    pub(crate) child: Option<Result<Box<Child>, NoBudgetLeft>>,
}

/// A child run that a call starts or resumes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) run: RunId,
    pub(crate) operator: Arc<str>,
    pub(crate) root: RunId,
    /// Number of the attempt: 1, 2, ….
    pub(crate) attempt: u32,
    /// Whether it may have a record. A journal that performs a step again, in another process, sets it.
    pub(crate) goes_on: bool,
    /// Whether it had a record.
    #[serde(default)]
    pub(crate) is_recorded: bool,
    /// Whether it keeps no record.
    #[serde(default)]
    pub(crate) unrecorded: bool,
    /// Its budget.
    pub(crate) grant: Grant,
    /// Its labels, the same as its caller's.
    #[serde(default)]
    pub(crate) labels: Arc<BTreeMap<String, String>>,
}

/// The end of an execution. An execution that was stopped before its tool returned has no facts.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ExecutionEnd {
    /// Outcomes of its child runs.
    pub(crate) returned: Vec<OperatorReturned>,
    /// Whether a child run was suspended; the call stays open then.
    pub(crate) is_left: bool,
    /// Events to record, the answer last.
    pub(crate) facts: PendingEvents,
    /// Its retry, after this delay.
    pub(crate) again: Option<(Duration, Box<Execution>)>,
}
