//! The record of a workflow's run while it is written.

use std::sync::Arc;

use backstop_clock::{Clock, RunClock};
use backstop_event_log::{Lease, LogError, RunSummary, RunWriter, Seed};
use layer0::Timestamp;
use layer0::event::{Actor, EventKind, RunResumed};
use layer0::usage::Usage;

use super::diverged::Diverged;
use super::progress::WorkflowProgress;
use crate::ids::new_run_id;

/// Writer of the record. A staged event counts once it is committed.
pub(super) struct WorkflowLedger {
    writer: RunWriter,
    clock: RunClock,
    seed: Seed,
    progress: WorkflowProgress,
    has_notes: bool,
    adoption: Adoption,
}

/// State of the adoption of another definition by this episode.
#[derive(Default)]
enum Adoption {
    /// No adoption, or a recorded one.
    #[default]
    Settled,
    /// To be recorded with the first event that follows from it.
    Deferred(Box<RunResumed>),
    /// To be recorded with the next commit.
    Noted,
}

impl WorkflowLedger {
    pub(super) fn new(
        writer: RunWriter,
        clock: &Arc<dyn Clock>,
        progress: WorkflowProgress,
    ) -> Self {
        let mut clock = RunClock::new(Arc::clone(clock));
        if writer.summary().last_seq > 0 {
            clock.not_before(progress.last_at());
        }
        let seed = Seed::new(new_run_id(clock.now()).as_str());
        Self { writer, clock, seed, progress, has_notes: false, adoption: Adoption::default() }
    }

    pub(super) const fn progress(&self) -> &WorkflowProgress {
        &self.progress
    }

    pub(super) const fn summary(&self) -> &RunSummary {
        self.writer.summary()
    }

    /// Returns the lease of the run's claim, if any.
    pub(super) fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.writer.lease()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) const fn has_notes(&self) -> bool {
        self.has_notes
    }

    /// Adopts a definition once an event is recorded that follows from it.
    pub(super) fn adopt_later(&mut self, resumed: RunResumed) {
        self.adoption = Adoption::Deferred(Box::new(resumed));
    }

    /// Stages a deferred adoption for the next commit.
    pub(super) fn note_adoption(&mut self) -> Result<(), Diverged> {
        match std::mem::take(&mut self.adoption) {
            Adoption::Deferred(resumed) => {
                self.adoption = Adoption::Noted;
                self.note(*resumed)
            }
            adoption => {
                self.adoption = adoption;
                Ok(())
            }
        }
    }

    /// Returns whether the adoption of a definition is not recorded yet.
    pub(super) const fn has_open_adoption(&self) -> bool {
        !matches!(self.adoption, Adoption::Settled)
    }

    /// Stages an event for the next commit, after a deferred adoption.
    pub(super) fn note(&mut self, kind: impl Into<EventKind>) -> Result<(), Diverged> {
        self.note_adoption()?;
        let (kind, at, last) = (kind.into(), self.clock.now(), self.writer.summary().last_seq);
        let cause = self.progress.find_cause(&kind).or((last > 0).then_some(last));
        self.progress.apply(last + 1, at, &kind)?;
        let actor = match &kind {
            EventKind::SignalReceived(_) => Actor::Person,
            EventKind::BudgetExhausted(_)
            | EventKind::RunFailed(_)
            | EventKind::RunFinished(_)
            | EventKind::RunWaiting(_) => Actor::Machine,
            _ => Actor::Runtime,
        };
        self.writer.stage(&self.seed, at, actor, cause, kind);
        self.has_notes = true;
        Ok(())
    }

    /// Removes a row of the inbox with the next commit.
    pub(super) fn take_row(&mut self, row: u64) {
        self.writer.take(row);
    }

    /// Writes the staged events.
    pub(super) async fn commit(&mut self) -> Result<(), LogError> {
        self.has_notes = false;
        if matches!(self.adoption, Adoption::Noted) {
            self.adoption = Adoption::Settled;
        }
        for event in self.writer.commit().await? {
            tracing::debug!(seq = event.seq, event = event.kind.event_type(), "logged");
        }
        Ok(())
    }

    /// Returns the usage of the run until now, including its child runs.
    pub(super) fn usage(&self) -> Usage {
        let summary = self.writer.summary();
        let (since, before) = summary.reopened.unwrap_or((summary.started_at, 0));
        // time of day: the clock of a run continues its record, and is not set.
        let elapsed = self.now().since(since).as_millis();
        let mut usage = summary.usage;
        usage.wall_ms = u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_add(before);
        usage
    }
}
