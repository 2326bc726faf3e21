//! The interface between a run and the outside.
//!
//! A run learns of the world only by [`Journal::next`], in the journal's order, and changes it only by
//! [`Journal::append`] and [`Journal::start`]. A journal that remembers its answers can therefore run the same run
//! again from its start, with the same record as result.
//!
//! No step waits for another, and none is raced against anything outside: a stopped step ends by itself, and its
//! end comes by `next` as well.

mod any;
mod ask;
mod note;
mod step;

use async_trait::async_trait;
use backstop_event_log::{InboxMessage, LogError, Seed};
use backstop_react_machine::MachineEntry;
use layer0::Timestamp;
use layer0::event::{Event, ToolLate};
use layer0::id::RunId;
use layer0::operator::Signal;
use serde::{Deserialize, Serialize};

pub(crate) use any::AnyJournal;
pub(crate) use ask::{AskId, DispatchRequest, PersonAsk, StepReply, StepRequest};
pub(crate) use note::{PendingEvent, PendingEvents};
pub(crate) use step::{
    ApprovalReply, AttemptEnd, Child, Execution, ExecutionEnd, Gated, ModelAttempt, Parking, Step,
    StepEnd, StopFact,
};

/// The id of a step; unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct StepId(pub(crate) u64);

/// The contents of one append.
#[derive(Debug)]
pub(crate) struct AppendContents {
    /// Seed of the entries' salts; it is not recorded.
    pub(crate) seed: Seed,
    /// Decisions to record, in order.
    pub(crate) entries: Vec<MachineEntry>,
    /// Rows of the inbox that the append takes.
    pub(crate) taken: Vec<u64>,
    /// The written events.
    pub(crate) written: Vec<Event>,
}

impl AppendContents {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { seed, entries: Vec::new(), taken: Vec::new(), written: Vec::new() }
    }
}

/// A fact that a run learns.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// A step has ended.
    Ended(StepId, StepEnd),
    /// The time of the timer has come.
    Timer,
    /// Rows of the inbox, each delivered once. An empty list ends a run that only waits for people.
    Inbox(Vec<InboxMessage>),
    /// The caller in this process stops the run.
    Cancelled,
    /// A tool that was given up has answered.
    Late(ToolLate),
    /// A signal of the caller in this process.
    Signal(Signal),
    /// A running step sends a request.
    Asked(AskId, StepRequest),
}

/// The connection of one run to the outside.
#[async_trait]
pub(crate) trait Journal: Send {
    /// Returns the time, when a run starts or is resumed; afterwards, `next` returns it.
    async fn now(&mut self) -> Timestamp;

    /// Returns the id of a new child run; when a run starts or is resumed, the seed of its salts.
    async fn new_id(&mut self) -> RunId;

    /// Writes decisions durably; afterwards `written` holds exactly the written events. After an error, either nothing
    /// was written, or it is unknown.
    async fn append(&mut self, batch: &mut AppendContents) -> Result<(), LogError>;

    /// Starts a step.
    fn start(&mut self, step: Step) -> StepId;

    /// Stops a step. Its end still comes by `next`.
    fn stop(&mut self, step: StepId);

    /// Answers the request of a step.
    fn answer(&mut self, ask: AskId, told: StepReply);

    /// Sets the time of the timer; the last call counts.
    fn timer(&mut self, at: Option<Timestamp>);

    /// Requests the current rows of the run's inbox. Later rows come without a request. A journal that keeps a waiting
    /// run alive need not answer before there is a row.
    fn watch(&mut self);

    /// Waits for the next facts, appends them to `facts`, and returns their time. An error means that facts could not
    /// be kept.
    async fn next(&mut self, facts: &mut Vec<Fact>) -> Result<Timestamp, LogError>;
}
