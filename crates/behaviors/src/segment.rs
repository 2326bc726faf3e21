//! Writer of a subscription's record.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, RunClock};
use backstop_event_log::{
    Claim, Cursor, EventLog, Lease, LogError, Moves, RunSummary, RunWriter, Seed, Subscription,
    segment_id,
};
use layer0::event::{Actor, EventKind, SubscriptionOpened};
use layer0::id::RunId;

use crate::subscription::DeliveryFailure;

/// Limits of a segment: number of events and age.
const MAX_EVENTS: u64 = 10_000;
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The newest segment of a subscription, under this host's claim.
pub(crate) struct Segment {
    log: Arc<dyn EventLog>,
    clock: RunClock,
    seed: Seed,
    writer: RunWriter,
    moves: Moves,
    /// The recorded position of the subscription in the log.
    stands: Option<Cursor>,
    has_notes: bool,
}

impl Segment {
    /// Starts the first segment of a subscription, with its position at `cursor`.
    pub(crate) async fn first(
        log: &Arc<dyn EventLog>,
        clock: &Arc<dyn Clock>,
        (name, pattern): (&Arc<str>, &Arc<str>),
        cursor: Cursor,
    ) -> Result<Self, LogError> {
        let writer = RunWriter::new(Arc::clone(log), segment_id(name, 1));
        let mut moves = Moves::new(Arc::clone(name), Arc::clone(pattern), 1);
        moves.cursor = Some(cursor);
        let mut segment = Self::new(log, clock, writer, moves);
        let opened = SubscriptionOpened::new(Arc::clone(name), Arc::clone(pattern));
        segment.open(opened);
        drop(segment.commit().await?);
        Ok(segment)
    }

    /// Resumes a segment under a claim.
    pub(crate) async fn resume(
        log: &Arc<dyn EventLog>,
        clock: &Arc<dyn Clock>,
        (summary, claim): (RunSummary, Claim),
        subscription: &Subscription,
    ) -> Result<Self, LogError> {
        let Subscription { name, pattern, segment, cursor, .. } = subscription;
        let moves = Moves::new(Arc::clone(name), Arc::clone(pattern), *segment);
        let records = log.records(&summary.run, summary.last_seq).await?;
        let last_at = records.last().map(|record| record.at);
        let (started_at, writer) =
            (summary.started_at, RunWriter::resume(Arc::clone(log), summary, claim));
        let mut segment = Self::new(log, clock, writer, moves);
        segment.stands = Some(*cursor);
        segment.clock.not_before(last_at.unwrap_or(started_at));
        Ok(segment)
    }

    fn new(
        log: &Arc<dyn EventLog>,
        clock: &Arc<dyn Clock>,
        writer: RunWriter,
        moves: Moves,
    ) -> Self {
        let seed = Seed::new(&uuid::Uuid::now_v7().to_string());
        let (log, clock) = (Arc::clone(log), RunClock::new(Arc::clone(clock)));
        Self { log, clock, seed, writer, moves, stands: None, has_notes: false }
    }

    pub(crate) const fn has_notes(&self) -> bool {
        self.has_notes
    }

    /// Returns the lease under which deliveries are made, if there is one.
    pub(crate) fn lease(&self) -> Option<Arc<dyn Lease>> {
        self.writer.lease().cloned()
    }

    pub(crate) const fn run(&self) -> &RunId {
        &self.writer.summary().run
    }

    /// Adds an event to the next commit.
    pub(crate) fn note(&mut self, kind: impl Into<EventKind>) {
        self.writer.stage(&self.seed, self.clock.now(), Actor::Runtime, None, kind.into());
        self.has_notes = true;
    }

    /// Sets the position of the subscription in the next commit.
    pub(crate) fn move_to(
        &mut self,
        cursor: Option<Cursor>,
        positions: impl IntoIterator<Item = (RunId, Option<u64>)>,
    ) {
        let cursor = cursor.filter(|cursor| Some(*cursor) != self.stands);
        self.moves.cursor = cursor.or(self.moves.cursor);
        for (run, position) in positions {
            self.moves.positions.retain(|(other, _)| *other != run);
            self.moves.positions.push((run, position));
        }
    }

    /// Writes the noted events and the new position in one write. Returns the failures among the events.
    pub(crate) async fn commit(&mut self) -> Result<Vec<DeliveryFailure>, LogError> {
        self.has_notes = false;
        self.writer.move_subscription(self.moves.clone());
        let mut failures = Vec::new();
        for event in self.writer.commit().await? {
            tracing::debug!(seq = event.seq, event = event.kind.event_type(), "logged");
            if let EventKind::BehaviorFailed(failed) = &event.kind {
                let of = (failed.run.clone(), failed.seq);
                failures.push(DeliveryFailure { of, recorded: (event.run.clone(), event.seq) });
            }
        }
        self.finish_move();
        if self.is_full() {
            self.roll(None).await?;
        }
        Ok(failures)
    }

    /// Writes the new position without an event, if the position changed.
    pub(crate) async fn commit_moves(&mut self) -> Result<(), LogError> {
        if self.moves.cursor.is_some() || !self.moves.positions.is_empty() {
            self.writer.move_subscription_alone(self.moves.clone()).await?;
            self.finish_move();
        }
        Ok(())
    }

    fn finish_move(&mut self) {
        self.stands = self.moves.cursor.take().or(self.stands);
        self.moves.positions.clear();
    }

    /// Notes the first event, sealed with the log's key if there is one.
    fn open(&mut self, mut opened: SubscriptionOpened) {
        opened.key_id = self.log.key().map(|key| key.id().into());
        opened.row_sealed = self.log.seals_rows();
        self.note(opened);
    }

    fn is_full(&self) -> bool {
        let summary = self.writer.summary();
        // time of day: a clock that was set rolls the segment too early or too late, and loses nothing.
        let age = self.clock.now().since(summary.started_at);
        summary.last_seq >= MAX_EVENTS || age >= MAX_AGE
    }

    /// Starts the next segment, with another pattern if one is given.
    pub(crate) async fn roll(&mut self, pattern: Option<Arc<str>>) -> Result<(), LogError> {
        let summary = self.writer.summary();
        let (follows, head) = (summary.run.clone(), summary.head);
        self.moves.segment += 1;
        self.moves.pattern = pattern.unwrap_or_else(|| Arc::clone(&self.moves.pattern));
        let (name, pattern) = (Arc::clone(&self.moves.name), Arc::clone(&self.moves.pattern));
        let run = segment_id(&name, self.moves.segment);
        let next = RunWriter::new(Arc::clone(&self.log), run);
        // The claim of the old segment is held until the new segment is written.
        let before = std::mem::replace(&mut self.writer, next);
        let mut opened = SubscriptionOpened::new(name, pattern);
        (opened.follows, opened.head) = (Some(follows), Some(head));
        self.open(opened);
        self.has_notes = false;
        self.writer.move_subscription(self.moves.clone());
        drop(self.writer.commit().await?);
        drop(before);
        Ok(())
    }
}
