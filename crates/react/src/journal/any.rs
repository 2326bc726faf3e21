//! The journal of a run.

use backstop_event_log::LogError;
use layer0::Timestamp;
use layer0::id::RunId;

use super::{AppendContents, AskId, Fact, Journal, Step, StepId, StepReply};
use crate::local_journal::LocalJournal;

/// A journal. The local one has its own variant, so that its futures need no box.
pub(crate) enum AnyJournal {
    Local(Box<LocalJournal>),
    #[cfg_attr(not(test), expect(dead_code, reason = "only the local journal ships"))]
    Other(Box<dyn Journal>),
}

impl AnyJournal {
    pub(crate) async fn now(&mut self) -> Timestamp {
        match self {
            // time of day: a journal's is the clock of its run, which is not set.
            Self::Local(journal) => journal.now(),
            Self::Other(journal) => journal.now().await, // time of day: see above.
        }
    }

    pub(crate) async fn new_id(&mut self) -> RunId {
        match self {
            Self::Local(journal) => journal.new_id(),
            Self::Other(journal) => journal.new_id().await,
        }
    }

    pub(crate) async fn append(&mut self, batch: &mut AppendContents) -> Result<(), LogError> {
        match self {
            Self::Local(journal) => journal.append(batch).await,
            Self::Other(journal) => journal.append(batch).await,
        }
    }

    pub(crate) fn start(&mut self, step: Step) -> StepId {
        match self {
            Self::Local(journal) => journal.start(step),
            Self::Other(journal) => journal.start(step),
        }
    }

    pub(crate) fn stop(&mut self, step: StepId) {
        match self {
            Self::Local(journal) => journal.stop(step),
            Self::Other(journal) => journal.stop(step),
        }
    }

    pub(crate) fn answer(&mut self, ask: AskId, told: StepReply) {
        match self {
            Self::Local(journal) => journal.answer(ask, told),
            Self::Other(journal) => journal.answer(ask, told),
        }
    }

    pub(crate) fn timer(&mut self, at: Option<Timestamp>) {
        match self {
            Self::Local(journal) => journal.timer(at),
            Self::Other(journal) => journal.timer(at),
        }
    }

    pub(crate) fn watch(&mut self) {
        match self {
            Self::Local(journal) => journal.watch(),
            Self::Other(journal) => journal.watch(),
        }
    }

    pub(crate) async fn next(&mut self, facts: &mut Vec<Fact>) -> Result<Timestamp, LogError> {
        match self {
            Self::Local(journal) => journal.next(facts).await,
            Self::Other(journal) => journal.next(facts).await,
        }
    }
}
