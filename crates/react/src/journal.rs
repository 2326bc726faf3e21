//! The seam between a run and everything outside of it.
//!
//! A run learns of the world by [`Journal::next`] alone, in the journal's order, and changes it by
//! [`Journal::append`] and [`Journal::start`] alone. So a journal that remembers what it answered can run
//! the same run again from its start, and it comes to the same record.
//!
//! No step waits for another, and none is raced against anything outside of it: one that is told to stop
//! ends by itself, and what it says then comes by `next` as well.

mod any;
mod ask;
mod note;
mod step;

use async_trait::async_trait;
use backstop_event_log::{InboxMessage, LogError, Seed};
use backstop_react_machine::Entry;
use layer0::Timestamp;
use layer0::event::{Event, ToolLate};
use layer0::id::RunId;
use layer0::operator::Signal;
use serde::{Deserialize, Serialize};

pub(crate) use any::AnyJournal;
pub(crate) use ask::{Ask, AskId, PersonAsk, Told, Wanted};
pub(crate) use note::{Note, Notes};
pub(crate) use step::{
    Attempt, AttemptEnd, Child, End, Execution, ExecutionEnd, Gated, Parking, Said, Step, StopFact,
};

/// Names a step; unique in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct StepId(pub(crate) u64);

/// What is written in one append.
#[derive(Debug)]
pub(crate) struct Batch {
    /// What the salts of the entries are made of; it is not recorded.
    pub(crate) seed: Seed,
    /// What was decided, in order.
    pub(crate) entries: Vec<Entry>,
    /// The rows of the inbox that are recorded with it.
    pub(crate) taken: Vec<u64>,
    /// What was written.
    pub(crate) written: Vec<Event>,
}

impl Batch {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { seed, entries: Vec::new(), taken: Vec::new(), written: Vec::new() }
    }
}

/// Something that a run learns.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// A step has ended.
    Ended(StepId, End),
    /// The time that was asked for has come.
    Timer,
    /// Rows of the inbox, each told once. No rows end a run that waits for people only.
    Inbox(Vec<InboxMessage>),
    /// The caller in this process wants the run to stop.
    Cancelled,
    /// A tool that was given up answered after all.
    Late(ToolLate),
    /// A signal that the caller in this process sent.
    Signal(Signal),
    /// A step asks for something while it is at work.
    Asked(AskId, Ask),
}

/// The way of one run to the outside.
#[async_trait]
pub(crate) trait Journal: Send {
    /// Returns the time; asked when a run starts or is resumed, afterwards `next` says it.
    async fn now(&mut self) -> Timestamp;

    /// Makes the id of a run that is dispatched; when a run starts or is resumed, the seed of its salts.
    async fn new_id(&mut self) -> RunId;

    /// Writes what was decided, durably; afterwards it stands as `written`, and nothing else. An error means
    /// that nothing was written, or that it is not known.
    async fn append(&mut self, batch: &mut Batch) -> Result<(), LogError>;

    /// Starts a step.
    fn start(&mut self, step: Step) -> StepId;

    /// Tells a step to end. It still says how it ended.
    fn stop(&mut self, step: StepId);

    /// Answers what a step asked.
    fn answer(&mut self, ask: AskId, told: Told);

    /// Wants to hear when this time has come; the last call counts.
    fn timer(&mut self, at: Option<Timestamp>);

    /// Asks what is in the run's inbox now. Later rows come unasked. A journal that keeps a waiting run
    /// alive need not answer before there is one.
    fn watch(&mut self);

    /// Waits for what happens next, puts it behind `facts`, and says when that was. An error means that
    /// what happened could not be kept.
    async fn next(&mut self, facts: &mut Vec<Fact>) -> Result<Timestamp, LogError>;
}
