//! One subscription: taken by one host at a time, and served from where it stands.

mod acquire;
mod backlog;
mod prepare;
mod progress;

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use backstop_event_log::{AtWork, Feed, FeedRecord, LogError, follow};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::event::{BehaviorCompleted, BehaviorDelivered, BehaviorFailed, Cause, EventKind};
use layer0::{Code, code};
use tokio_util::sync::CancellationToken;

use crate::behavior::Behavior;
use crate::call::{CallEnd, call};
use crate::context::{BehaviorContext, Means};
use crate::delivery::Delivery;
use crate::segment::Segment;
pub(crate) use acquire::acquire;
use backlog::{Backlog, ItemId, Moved};
pub(crate) use prepare::{Verdict, prepare};
pub(crate) use progress::{EventId, Failed, Progress, Progressing, Standing};

/// How long is waited before a subscription that another host has, or a log that fails, is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How many runs of one subscription are at work at once.
const MAX_AT_WORK: usize = 16;

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// A behaviour with what its host lends it.
pub(crate) struct Serve {
    pub(crate) name: Arc<str>,
    pub(crate) pattern: Arc<str>,
    pub(crate) behavior: Arc<dyn Behavior>,
    /// What its pack grants it.
    pub(crate) grants: Arc<[String]>,
    pub(crate) means: Arc<Means>,
    pub(crate) progress: Progressing,
    pub(crate) stop: CancellationToken,
}

/// What work on an event came to.
enum Done {
    Prepared(ItemId, Box<FeedRecord>, Result<Verdict, LogError>),
    Ended(ItemId, Box<BehaviorDelivered>, CallEnd),
}

enum Happened {
    Done(Done),
    Noted,
    /// What the log holds was read, or there is more.
    Read(Result<Option<FeedRecord>, LogError>),
    More,
    Stopped,
}

/// A subscription that this host has.
struct Held<'s> {
    serve: &'s Serve,
    segment: Segment,
    backlog: Backlog,
    /// Those whose turn it is, until there is room.
    ready: VecDeque<ItemId>,
    at_work: usize,
    /// Was all read that the log holds?
    is_at_end: bool,
    work: FuturesUnordered<Work>,
    /// What has ended, and is not committed.
    ended: Vec<EventId>,
    /// What was made counts as at work until its end is committed.
    made: Vec<AtWork>,
    /// Those whose delivery is noted and not committed.
    starting: Vec<(ItemId, Box<BehaviorDelivered>, Delivery, Cause)>,
}

impl Serve {
    /// Serves the subscription until the host stops, whenever no other host has it.
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            match self.serve_once().await {
                Ok(()) => break,
                Err(LogError::Claimed(_) | LogError::Conflict { .. } | LogError::LeaseEnded(_)) => {
                    tracing::debug!(subscription = %self.name, "another host has it");
                }
                Err(LogError::Closed) => break,
                Err(error) => {
                    let code = layer0::Failure::code(&error);
                    tracing::warn!(subscription = %self.name, code, "deliveries wait: {error}");
                }
            }
            self.progress.set(Progress::Waiting);
            let again = self.means.clock.sleep(AGAIN);
            drop(futures_util::future::select(again, pin!(self.stop.cancelled())).await);
        }
        self.progress.set(Progress::Stopped);
    }

    async fn serve_once(&self) -> Result<(), LogError> {
        let (segment, stands) =
            acquire(&*self.behavior, &self.means, (&self.name, &self.pattern)).await?;
        let log = Arc::clone(&self.means.log);
        let filter = self.behavior.patterns().event_filter();
        let mut feed = follow(log, filter, stands.cursor).await?;
        let mut held = Held {
            serve: self,
            segment,
            backlog: Backlog::keeping(stands.positions.keys().cloned()),
            ready: VecDeque::new(),
            at_work: 0,
            is_at_end: false,
            work: FuturesUnordered::new(),
            ended: Vec::new(),
            made: Vec::new(),
            starting: Vec::new(),
        };
        self.progress.begin(stands.cursor);
        loop {
            match held.next(&mut feed).await {
                // What has ended is not to be made again.
                Happened::Stopped if held.segment.has_notes() => {
                    return held.segment.commit().await.map(drop);
                }
                Happened::Stopped => return Ok(()),
                Happened::Noted => held.commit().await?,
                Happened::Done(done) => held.take(done)?,
                Happened::More => held.is_at_end = false,
                Happened::Read(read) => {
                    let Some(record) = read? else {
                        held.is_at_end = true;
                        continue;
                    };
                    let ended = stands.positions.get(&record.run);
                    let is_ended = ended.is_some_and(|seq| record.record.seq <= *seq);
                    held.read(record, is_ended);
                }
            }
        }
    }
}

impl Held<'_> {
    async fn next(&mut self, feed: &mut Feed) -> Happened {
        let progress = &self.serve.progress;
        progress.read(feed.cursor());
        // What needs no note has ended as it is.
        if !self.segment.has_notes() && !self.ended.is_empty() {
            progress.end(self.ended.drain(..), []);
        }
        progress.set(
            match self.backlog.is_empty() && self.is_at_end && !self.segment.has_notes() {
                true => Progress::Behind(feed.cursor()),
                false => Progress::Busy,
            },
        );
        let mut stopped = pin!(self.serve.stop.cancelled());
        let lease = self.segment.lease();
        let mut lost = pin!(async {
            match &lease {
                Some(lease) => lease.ended().await,
                None => pending().await,
            }
        });
        // What was read ahead is given at once; a read that is dropped loses nothing.
        let is_at_end = self.is_at_end;
        let mut reading = pin!(async {
            match is_at_end {
                true => {
                    feed.changed().await;
                    Happened::More
                }
                false => Happened::Read(feed.try_next().await),
            }
        });
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Happened::Stopped);
            }
            if lost.as_mut().poll(cx).is_ready() {
                let ended = LogError::LeaseEnded(self.segment.run().clone());
                return Poll::Ready(Happened::Read(Err(ended)));
            }
            if let Poll::Ready(Some(done)) = self.work.poll_next_unpin(cx) {
                return Poll::Ready(Happened::Done(done));
            }
            if self.segment.has_notes() {
                return Poll::Ready(Happened::Noted);
            }
            if self.backlog.is_full() {
                return Poll::Pending;
            }
            reading.as_mut().poll(cx)
        })
        .await
    }

    fn read(&mut self, record: FeedRecord, is_ended: bool) {
        let is_wanted = !is_ended && self.serve.wants(&record);
        if is_wanted {
            self.serve.progress.open((record.run.clone(), record.record.seq));
        }
        // What has none has its turn behind what is at work of its run.
        self.ready.extend(self.backlog.push(record, is_wanted));
        self.begin_ready();
    }

    /// Goes on behind an event of which nothing is to be done.
    fn pass(&mut self, id: ItemId) {
        let (moved, next) = self.backlog.end(id);
        self.moved(moved);
        self.ready.extend(next);
    }

    fn moved(&mut self, Moved { cursor, positions }: Moved) {
        self.segment.move_to(cursor, positions);
    }

    fn begin_ready(&mut self) {
        while self.at_work < MAX_AT_WORK
            && let Some(id) = self.ready.pop_front()
        {
            let Some(record) = self.backlog.begin(id) else {
                self.pass(id);
                continue;
            };
            self.at_work += 1;
            let Serve { name, means, .. } = self.serve;
            let (log, clock, name) =
                (Arc::clone(&means.log), Arc::clone(&means.clock), Arc::clone(name));
            self.work.push(Box::pin(async move {
                let mut verdict = prepare(&*log, &name, &record).await;
                // What else is at work goes on meanwhile.
                while verdict.as_ref().is_err_and(LogError::is_retryable) {
                    clock.sleep(AGAIN).await;
                    verdict = prepare(&*log, &name, &record).await;
                }
                Done::Prepared(id, record, verdict)
            }));
        }
    }

    fn take(&mut self, done: Done) -> Result<(), LogError> {
        match done {
            Done::Prepared(id, record, verdict) => self.prepared(id, &record, verdict?),
            Done::Ended(id, delivered, end) => {
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
                        let failed = error.failed(&delivered, end.attempts, redactor);
                        let BehaviorFailed { reason, message, .. } = &failed;
                        tracing::warn!(subscription = %self.serve.name, %reason, "{message}");
                        self.segment.note(failed);
                    }
                }
                self.ended(id, event);
            }
        }
        self.begin_ready();
        Ok(())
    }

    fn prepared(&mut self, id: ItemId, record: &FeedRecord, verdict: Verdict) {
        let delivered = || {
            let name = Arc::clone(&self.serve.name);
            let event = &*record.record.event_type;
            Box::new(BehaviorDelivered::new(name, record.run.clone(), record.record.seq, event))
        };
        let event = (record.run.clone(), record.record.seq);
        match verdict {
            Verdict::Skip => self.ended(id, event),
            Verdict::Refuse { reason, message, exception_type } => {
                let failed = BehaviorFailed::new(
                    &delivered(),
                    0,
                    exception_type,
                    Code::new(reason),
                    message,
                );
                self.segment.note(failed);
                self.ended(id, event);
            }
            Verdict::Deliver(delivery, cause) => {
                let mut delivered = delivered();
                delivered.length = cause.length;
                self.segment.note((*delivered).clone());
                self.starting.push((id, delivered, *delivery, cause));
            }
        }
    }

    fn ended(&mut self, id: ItemId, event: EventId) {
        self.at_work -= 1;
        self.ended.push(event);
        self.pass(id);
    }

    /// Writes what was noted, and makes the deliveries whose begin is durable.
    async fn commit(&mut self) -> Result<(), LogError> {
        let failures = self.segment.commit().await?;
        self.made.clear();
        self.serve.progress.end(self.ended.drain(..), failures);
        for (id, delivered, delivery, cause) in self.starting.drain(..) {
            let Serve { name, behavior, means, grants, .. } = self.serve;
            let lent = (Arc::clone(means), Arc::clone(grants));
            let context = BehaviorContext::new(lent, Arc::clone(name), cause);
            let (behavior, clock) = (Arc::clone(behavior), Arc::clone(&means.clock));
            // In a task of its own, so that one that holds its thread holds up no other.
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
                Done::Ended(id, delivered, end.unwrap_or_else(lost))
            }));
        }
        Ok(())
    }
}

/// Aborts a task when it is dropped.
struct Aborted(tokio::task::JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Serve {
    /// Is an event to be delivered, as far as it says so itself? Failures that end a circle are not.
    fn wants(&self, FeedRecord { run, record, .. }: &FeedRecord) -> bool {
        let is_own =
            backstop_event_log::segment_of(run).is_some_and(|(name, _)| name == &*self.name);
        let ends_a_circle = record.event_type == "behavior.failed"
            && record.payload.text().is_some_and(|text| text.contains(code::BEHAVIOR_RECURSION))
            && matches!(
                record.decode(run).map(|event| event.kind),
                Ok(EventKind::BehaviorFailed(failed)) if failed.reason == *code::BEHAVIOR_RECURSION
            );
        !is_own && !ends_a_circle && self.behavior.patterns().matches(run, record)
    }
}
