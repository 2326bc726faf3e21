//! A subscription served by this host.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use backstop_event_log::{ActionGuard, Cursor, Feed, FeedRecord, LogError, Subscription};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::Code;
use layer0::code;
use layer0::event::{BehaviorCompleted, BehaviorDelivered, BehaviorFailed, Cause};
use layer0::failure::Failure;

use super::backlog::{Backlog, ItemId, PositionChange};
use super::deaths::{Deaths, MAX_DEATHS};
use super::reading::{NextRead, ReadState};
use super::serve::{AGAIN, Serve, is_wanted};
use super::{DeliveryPlan, EventId, SubscriptionProgress, prepare};
use crate::call::{CallEnd, call};
use crate::context::BehaviorContext;
use crate::delivery::Delivery;
use crate::segment::Segment;

/// Maximum number of concurrent deliveries of one subscription.
const MAX_AT_WORK: usize = 16;
/// Time after which the position moves although nothing was delivered, so that a host that takes over does not read the
/// same events again.
const MOVE_AFTER: Duration = Duration::from_secs(60);

type Work = Pin<Box<dyn Future<Output = DeliveryProgress> + Send>>;

/// The result of work on an event.
pub(super) enum DeliveryProgress {
    Prepared(ItemId, Box<FeedRecord>, Result<DeliveryPlan, LogError>),
    Ended(ItemId, Box<BehaviorDelivered>, CallEnd),
}

pub(super) enum SubscriptionEvent {
    Done(DeliveryProgress),
    /// This host's lease of the subscription ended.
    Lost(LogError),
    Noted,
    Read(Result<Option<FeedRecord>, LogError>),
    /// There may be more to read.
    Resumed,
    Stopped,
}

pub(super) struct ClaimedSubscription<'s> {
    serve: &'s Serve,
    segment: Segment,
    backlog: Backlog,
    deaths: Deaths,
    /// Items that wait for capacity.
    ready: VecDeque<ItemId>,
    at_work: usize,
    /// Whether the delivery in progress is a last chance, during which no other begins.
    is_alone: bool,
    reading: ReadState,
    /// Monotonic time of the last move of the position.
    moved_at: Duration,
    work: FuturesUnordered<Work>,
    /// Ended events whose end is not committed.
    ended: Vec<EventId>,
    /// Completed deliveries whose end is not committed; they count as in progress.
    made: Vec<ActionGuard>,
    /// Deliveries whose begin is noted and not committed.
    starting: Vec<(ItemId, Box<BehaviorDelivered>, Delivery, Cause)>,
}

impl<'s> ClaimedSubscription<'s> {
    pub(super) fn new(
        serve: &'s Serve,
        (segment, stands): (Segment, &Subscription),
        deaths: Deaths,
    ) -> Self {
        Self {
            serve,
            segment,
            backlog: Backlog::keeping(stands.positions.keys().cloned()),
            deaths,
            ready: VecDeque::new(),
            at_work: 0,
            is_alone: false,
            reading: ReadState::Open,
            moved_at: serve.means.clock.monotonic(),
            work: FuturesUnordered::new(),
            ended: Vec::new(),
            made: Vec::new(),
            starting: Vec::new(),
        }
    }

    /// Returns the next thing that happens.
    pub(super) async fn next(&mut self, feed: &mut Feed) -> SubscriptionEvent {
        self.report(feed.cursor());
        if let Some(error) = self.give_up() {
            return SubscriptionEvent::Lost(error);
        }
        let mut stopped = pin!(self.serve.stop.cancelled());
        let lease = self.segment.lease();
        let mut lost = pin!(async {
            match &lease {
                Some(lease) => lease.wait_for_end().await,
                None => pending().await,
            }
        });
        // Events that were read ahead are returned at once; a dropped read loses nothing.
        let mut reading = pin!(self.reading.next(feed));
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(SubscriptionEvent::Stopped);
            }
            if lost.as_mut().poll(cx).is_ready() {
                return Poll::Ready(SubscriptionEvent::Lost(LogError::LeaseEnded(
                    self.segment.run().clone(),
                )));
            }
            if let Poll::Ready(Some(done)) = self.work.poll_next_unpin(cx) {
                return Poll::Ready(SubscriptionEvent::Done(done));
            }
            if self.segment.has_notes() {
                return Poll::Ready(SubscriptionEvent::Noted);
            }
            if self.backlog.is_full() {
                return Poll::Pending;
            }
            reading.as_mut().poll(cx).map(|read| match read {
                NextRead::Event(read) => SubscriptionEvent::Read(read),
                NextRead::Resumed => SubscriptionEvent::Resumed,
            })
        })
        .await
    }

    /// Reports the progress of the subscription.
    fn report(&mut self, cursor: Cursor) {
        let progress = &self.serve.progress;
        progress.read(cursor);
        // An event that needs no note has ended.
        if !self.segment.has_notes() && !self.ended.is_empty() {
            progress.end(self.ended.drain(..), []);
        }
        let is_at_end = matches!(self.reading, ReadState::AtEnd);
        progress.set(match self.backlog.is_empty() && is_at_end && !self.segment.has_notes() {
            true => SubscriptionProgress::Behind(cursor),
            false => SubscriptionProgress::Busy,
        });
    }

    /// Returns why no event can be read any more, once all deliveries in progress have ended and are recorded.
    fn give_up(&mut self) -> Option<LogError> {
        match self.at_work == 0 && !self.segment.has_notes() {
            true => self.reading.take_failure(),
            false => None,
        }
    }

    /// Records that the end of the log was reached.
    pub(super) fn reach_end(&mut self) {
        self.reading = ReadState::AtEnd;
    }

    /// Resumes reading.
    pub(super) fn resume_reading(&mut self) {
        self.reading = ReadState::Open;
    }

    /// Pauses before the next read, or stops reading. Deliveries in progress end in both cases.
    pub(super) fn suspend_reading(&mut self, error: LogError) {
        let Serve { name, means, .. } = self.serve;
        tracing::warn!(subscription = %name, code = error.code(), "events cannot be read: {error}");
        self.reading = ReadState::after(error, || means.clock.sleep(AGAIN));
    }

    /// Adds an event that was read.
    pub(super) fn read(&mut self, record: FeedRecord, is_ended: bool) {
        let is_wanted = !is_ended && is_wanted(&*self.serve.behavior, &record);
        if is_wanted {
            self.serve.progress.open((record.run.clone(), record.record.seq));
        }
        // An unwanted event waits for the earlier events of its run.
        self.ready.extend(self.backlog.push(record, is_wanted));
        self.begin_ready();
    }

    /// Skips an event that needs no delivery.
    fn pass(&mut self, id: ItemId) {
        let (moved, next) = self.backlog.end(id);
        self.note_move(moved);
        self.ready.extend(next);
    }

    fn note_move(&mut self, PositionChange { cursor, positions }: PositionChange) {
        self.segment.move_to(cursor, positions);
    }

    fn begin_ready(&mut self) {
        while self.has_room()
            && let Some(id) = self.ready.pop_front()
        {
            let Some(event) = self.backlog.pending(id) else {
                self.pass(id);
                continue;
            };
            let is_alone = self.deaths.is_last_chance(&event);
            if is_alone && self.at_work > 0 {
                self.ready.push_front(id);
                return;
            }
            if let Some(record) = self.backlog.begin(id) {
                self.is_alone = is_alone;
                self.begin(id, record);
            }
        }
    }

    fn has_room(&self) -> bool {
        let is_alone = self.is_alone && self.at_work > 0;
        self.at_work < MAX_AT_WORK && !is_alone && !self.reading.has_failed()
    }

    fn begin(&mut self, id: ItemId, record: Box<FeedRecord>) {
        self.at_work += 1;
        let Serve { name, means, .. } = self.serve;
        let (means, name) = (Arc::clone(means), Arc::clone(name));
        self.work.push(Box::pin(async move {
            let mut verdict = prepare(&means, &name, &record).await;
            // Other deliveries continue meanwhile.
            while verdict.as_ref().is_err_and(LogError::is_retryable) {
                means.clock.sleep(AGAIN).await;
                verdict = prepare(&means, &name, &record).await;
            }
            DeliveryProgress::Prepared(id, record, verdict)
        }));
    }

    /// Handles the result of work on an event.
    pub(super) fn take(&mut self, done: DeliveryProgress) -> Result<(), LogError> {
        match done {
            DeliveryProgress::Prepared(id, record, verdict) => {
                self.take_verdict(id, &record, verdict?);
            }
            DeliveryProgress::Ended(id, delivered, end) => {
                let event = (delivered.run.clone(), delivered.seq);
                self.made.extend(end.at_work);
                match end.result {
                    Ok(()) => {
                        let BehaviorDelivered { behavior, run, seq, .. } = *delivered;
                        let completed = BehaviorCompleted::new(behavior, run, seq, end.attempts);
                        self.segment.note(completed);
                    }
                    Err(error) => {
                        let redactor = &self.serve.means.redactor;
                        self.fail(error.to_event(&delivered, end.attempts, redactor));
                    }
                }
                self.end(id, event);
            }
        }
        self.begin_ready();
        Ok(())
    }

    fn take_verdict(&mut self, id: ItemId, record: &FeedRecord, verdict: DeliveryPlan) {
        let name = Arc::clone(&self.serve.name);
        let event = (record.run.clone(), record.record.seq);
        let event_type = &*record.record.event_type;
        let mut delivered =
            Box::new(BehaviorDelivered::new(name, event.0.clone(), event.1, event_type));
        match verdict {
            DeliveryPlan::Skip => self.end(id, event),
            DeliveryPlan::Refuse { reason, message, exception_type } => {
                let code = Code::new(reason);
                self.fail(BehaviorFailed::new(&delivered, 0, exception_type, code, message));
                self.end(id, event);
            }
            DeliveryPlan::Deliver(delivery, cause) => {
                delivered.length = cause.length;
                delivered.deaths = self.deaths.count(&event);
                if delivered.deaths >= MAX_DEATHS {
                    self.fail(set_aside(&delivered));
                    self.end(id, event);
                    return;
                }
                self.segment.note((*delivered).clone());
                self.starting.push((id, delivered, *delivery, cause));
            }
        }
    }

    fn fail(&mut self, failed: BehaviorFailed) {
        let BehaviorFailed { reason, message, .. } = &failed;
        tracing::warn!(subscription = %self.serve.name, %reason, "{message}");
        self.segment.note(failed);
    }

    fn end(&mut self, id: ItemId, event: EventId) {
        self.at_work -= 1;
        self.deaths.forget(&event);
        self.ended.push(event);
        self.pass(id);
    }

    /// Writes the noted events, and starts the deliveries whose begin is now durable.
    pub(super) async fn commit(&mut self) -> Result<(), LogError> {
        let failures = self.segment.commit().await?;
        self.moved_at = self.serve.means.clock.monotonic();
        self.made.clear();
        self.serve.progress.end(self.ended.drain(..), failures);
        for (id, delivered, delivery, cause) in std::mem::take(&mut self.starting) {
            self.deliver(id, delivered, delivery, cause);
        }
        Ok(())
    }

    fn deliver(
        &self,
        id: ItemId,
        delivered: Box<BehaviorDelivered>,
        delivery: Delivery,
        cause: Cause,
    ) {
        let Serve { name, behavior, means, grants, .. } = self.serve;
        let lent = (Arc::clone(means), Arc::clone(grants));
        let context = BehaviorContext::new(lent, Arc::clone(name), cause);
        let (behavior, clock) = (Arc::clone(behavior), Arc::clone(&means.clock));
        // The delivery has its own task, so that one that blocks its thread does not block others.
        let lease = self.segment.lease();
        let made = call(behavior, delivery, context, Arc::clone(&clock), lease);
        let (done, ended) = tokio::sync::oneshot::channel();
        let made = async move { drop(done.send(made.await)) };
        let task = tokio::spawn(clock.track(Box::pin(made)));
        let task = Aborted(task);
        self.work.push(Box::pin(async move {
            let end = ended.await;
            drop(task);
            let lost = |_| CallEnd {
                attempts: 1,
                result: Err(crate::BehaviorError::other("the delivery's task was lost")),
                at_work: None,
            };
            DeliveryProgress::Ended(id, delivered, end.unwrap_or_else(lost))
        }));
    }

    /// Moves the position past the events read, if nothing is in progress and the last move is at least a minute ago.
    pub(super) async fn move_if_due(&mut self, cursor: Cursor) -> Result<(), LogError> {
        let now = self.serve.means.clock.monotonic();
        let is_due = now.saturating_sub(self.moved_at) >= MOVE_AFTER;
        if !is_due || self.segment.has_notes() || !self.backlog.is_empty() {
            return Ok(());
        }
        self.moved_at = now;
        self.segment.move_to(Some(cursor), []);
        self.segment.commit_moves().await
    }

    /// Records the ended events, and moves the position past the events read. Deliveries in progress are dropped.
    pub(super) async fn stop(mut self, cursor: Cursor) -> Result<(), LogError> {
        if self.backlog.is_empty() {
            self.segment.move_to(Some(cursor), []);
        }
        match self.segment.has_notes() {
            // Ended deliveries are recorded, so that none is repeated.
            true => self.segment.commit().await.map(drop),
            false => self.segment.commit_moves().await,
        }
    }
}

/// Returns the failure of a delivery during which the process died repeatedly.
fn set_aside(delivered: &BehaviorDelivered) -> BehaviorFailed {
    let deaths = delivered.deaths;
    let message = format!("the process died {deaths} times during this delivery");
    let code = Code::new(code::BEHAVIOR_FAILED);
    BehaviorFailed::new(delivered, deaths, "CrashLoop", code, message)
}

/// Task handle that aborts the task when dropped.
struct Aborted(tokio::task::JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}
