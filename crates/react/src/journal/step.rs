//! The actions that a run requests, and their results, as data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::Decision;
use backstop_react_machine::{Approval, Grant, ModelCall, NothingLeft, Pause, ToolRun};
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

use super::note::{Note, Notes};
use crate::pool::{LeftProvider, PoolFailures};

/// Something to do in the world.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Ask one provider once.
    Attempt(Box<Attempt>),
    /// Run a tool once.
    Execution(Box<Execution>),
    /// Ask a tool what became of a call that was running when the process died. It ends as an execution.
    Probe(Box<Execution>),
    /// Ask a tool what became of a call that has its answer, of a run that is over. It ends as an execution that
    /// answers nothing.
    LateProbe(Box<Execution>),
    /// Call the hooks of a pause.
    Hooks(Pause),
    /// Show a signal to the hooks. It ends as those of a pause.
    Signal(Box<SignalReceived>),
    /// Ask the gates about calls, and the tools what people are to see of them.
    Gates {
        calls: Arc<[ToolCall]>,
        /// Are the arguments those of a person, which no gate may change?
        changed: bool,
    },
    /// Show the observers calls that are about to run.
    Observers(Vec<ToolCall>),
    /// Ask a person in this process.
    Approval(Box<Approval>),
    /// Say that an approval was not decided in time.
    Expiry(Box<Approval>),
    /// Read the memory for this input.
    ReadMemory(Arc<str>),
    /// Write an answer into the memory.
    WriteMemory { input: Arc<str>, output: Arc<str> },
    /// Tell the caller that the run can do nothing but wait.
    Wait(Waiting),
    /// Ask the caller for more of its budget, which gave more so often.
    More(u32),
}

impl Step {
    /// Does it act on the world? What a dispatched run does, that run does itself; a model can be asked again.
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

/// How a step ended.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum End {
    Attempt(AttemptEnd),
    Execution(ExecutionEnd),
    /// What to record of the hooks of a pause or a signal, and what stops the run.
    Hooks(Notes, Option<StopFact>),
    /// What the gates say, call by call; or what they left in the record, and what stops the run.
    Gates(Result<Vec<Gated>, (Notes, StopFact)>),
    /// What to record of the observers, call by call; or what they left there, and what stops the run.
    Observers(Result<Vec<Notes>, (Notes, StopFact)>),
    Approval(Box<Approval>, Said),
    /// The approval was not decided in time; where that is sent to the inbox, what is there counts.
    Expiry(Box<Approval>, bool),
    Memory(Box<Note>),
    /// The caller wants the run to leave.
    Left,
    /// What the caller gave beside what it gave before.
    More(Option<Allowance>),
    /// It was told to end, and has nothing to say.
    Stopped,
}

/// What a person in this process said of an approval.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    /// This; the journal sends it to the inbox, where there is one.
    Decision(Decision),
    /// The inbox has the decision that counts.
    InInbox,
    /// Nothing: the approval stays open.
    Nothing,
    /// Only decisions that do not count, and why the last one does not.
    Refused(String),
}

/// The event of a hook that stops the run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StopFact(pub(crate) Box<Note>);

/// A call as the gates left it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Gated {
    pub(crate) call: ToolCall,
    /// What to record of its hooks.
    pub(crate) notes: Notes,
    /// The gate that skips it, and why.
    pub(crate) skipped: Option<(String, String)>,
    /// Its answer, where its tool says that no person need be asked.
    pub(crate) answer: Option<Box<Note>>,
}

impl Gated {
    pub(crate) const fn new(call: ToolCall) -> Self {
        Self { call, notes: Notes(Vec::new()), skipped: None, answer: None }
    }
}

/// One attempt of a model call, with what was tried before it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) call: ModelCall,
    pub(crate) messages: Transcript,
    pub(crate) tools: Arc<[ToolSpec]>,
    /// What the final answer has to fit.
    #[serde(default)]
    pub(crate) output_schema: Option<JsonText>,
    /// Those of the run.
    #[serde(default)]
    pub(crate) labels: Arc<BTreeMap<String, String>>,
    /// Which of the agent's providers is asked.
    pub(crate) provider: usize,
    /// Attempts of the call that this process made, at all providers.
    pub(crate) made: u32,
    /// Those of them at this provider.
    pub(crate) made_here: u32,
    /// The time of the call: attempts, and waits between and before them.
    pub(crate) elapsed: Duration,
    /// The time of the call at which the first attempt at this provider began.
    #[serde(default)]
    pub(crate) began: Duration,
    /// What attempts were billed.
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

impl Attempt {
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

/// How an attempt ended.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum AttemptEnd {
    /// It was not made: whether a spend limit allows it is not known.
    Unreserved(Box<ModelFailed>),
    /// It was not made: runs have spent together what they may.
    Limited(Box<BudgetExhausted>),
    /// It was stopped before it began.
    NotBegun,
    /// It was stopped; the provider may have billed it.
    Cut(Box<ModelAttempted>),
    Answered(Box<(ModelAttempted, ModelResponded)>),
    /// Another attempt follows, after this wait.
    Again(Box<ModelAttempted>, Duration, Box<Attempt>),
    /// The endpoint wants to be left alone for long: the run waits, without a process.
    Parked(Box<(ModelAttempted, Parking)>),
    Failed {
        attempted: Box<(ModelAttempted, ModelFailed)>,
        /// Is there no further attempt only because the run's budget allows none?
        is_limited: bool,
    },
}

/// Codes of attempts that were sent, and whose answer did not come whole.
const LOST: [&str; 3] =
    [code::PROVIDER_TIMEOUT, code::PROVIDER_STREAM_TRUNCATED, code::PROVIDER_STREAM_INTERRUPTED];

impl AttemptEnd {
    /// Returns what the attempt was billed, in billionths of a US dollar; 0 where none was made. `None` where that
    /// is not known: it was cut, or lost its answer, before the provider said.
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

/// For how long an endpoint wants to be left alone, and how it says so.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Parking {
    pub(crate) wait: Duration,
    pub(crate) reason: Code,
    pub(crate) message: String,
}

/// One execution of a tool, with what was tried before it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Execution {
    pub(crate) run: ToolRun,
    /// What admission found: the tool, and its arguments as it takes them. Another process looks again.
    #[serde(skip)]
    pub(crate) admitted: Option<Admitted>,
    /// The sessions whose stored texts the call may read.
    pub(crate) sessions: Arc<[SessionId]>,
    /// How many dispatches are above the run.
    pub(crate) depth: u32,
    /// How often it was tried before, and the time since that began.
    pub(crate) tried: u32,
    pub(crate) elapsed: Duration,
    /// Does the budget allow another execution after this one?
    pub(crate) may_repeat: bool,
    /// The run that the call starts, or why it does not start.
    pub(crate) child: Option<Result<Box<Child>, NothingLeft>>,
}

/// A run that a call starts, or goes on with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) run: RunId,
    pub(crate) operator: Arc<str>,
    pub(crate) root: RunId,
    /// Which attempt at it: 1, 2, ….
    pub(crate) attempt: u32,
    /// May there be a record of it? A journal that performs a step again, in another process, says so.
    pub(crate) goes_on: bool,
    /// Was there one?
    #[serde(default)]
    pub(crate) is_recorded: bool,
    /// Does it keep no record?
    #[serde(default)]
    pub(crate) unrecorded: bool,
    /// What it may use.
    pub(crate) grant: Grant,
    /// What it is filed under, as its caller is.
    #[serde(default)]
    pub(crate) labels: Arc<BTreeMap<String, String>>,
}

/// The end of an execution. One that was stopped before its tool returned has no facts.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ExecutionEnd {
    /// What the runs that it started came to.
    pub(crate) returned: Vec<OperatorReturned>,
    /// Did a run that it started leave? Then the call stays open.
    pub(crate) is_left: bool,
    /// What to record; the answer is the last.
    pub(crate) facts: Notes,
    /// It is tried again, after this wait.
    pub(crate) again: Option<(Duration, Box<Execution>)>,
}
