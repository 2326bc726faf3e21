//! The journal of a run in this process: its log, and its own futures.

mod accepting;
mod acting;
mod alarm;
mod steps;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use backstop_clock::RunClock;
use backstop_event_log::{EventLog, InboxMessage, InboxReader, Lease, LogError, RunWriter};
use backstop_orchestrator::new_run_id;
use backstop_react_machine::CANCEL;
use layer0::Timestamp;
use layer0::id::RunId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::accepting::{Unwritten, is_decision, mark_written, write};
use self::acting::Acting;
use self::alarm::Alarm;
use self::steps::RunningSteps;
use crate::effect::{Effects, StopFlag};
use crate::journal::{AppendContents, AskId, Fact, Step, StepEnd, StepId, StepReply, StepRequest};

/// A journal that performs steps as futures of the run's own task, and keeps the record in the log.
pub(crate) struct LocalJournal {
    writer: RunWriter,
    effects: Arc<Effects>,
    clock: RunClock,
    steps: RunningSteps,
    /// Time of the timer.
    timer: Option<Timestamp>,
    alarm: Alarm,
    /// Token of the caller in this process; `None` once its cancellation was delivered.
    cancellation: Option<CancellationToken>,
    inbox: Option<InboxReader>,
    /// Whether the rows of the inbox were requested.
    is_asked: bool,
    /// Number of requests, and the ones without an answer.
    asks: u64,
    unanswered: Vec<(AskId, oneshot::Sender<StepReply>)>,
    /// Steps that act on the world, until their end is recorded.
    acting: Acting,
    /// Decisions that could not be written into the inbox.
    unwritten: Unwritten,
}

impl LocalJournal {
    /// Returns the journal of a run whose record this writer writes.
    pub(crate) fn new(
        writer: RunWriter,
        effects: Arc<Effects>,
        clock: RunClock,
        log: Option<&Arc<dyn EventLog>>,
        cancellation: CancellationToken,
    ) -> Self {
        let inbox = log.map(|log| InboxReader::new(log, effects.run()));
        if let Some(lease) = writer.lease() {
            effects.act_under(Arc::clone(lease));
        }
        Self {
            writer,
            effects,
            clock,
            steps: RunningSteps::default(),
            timer: None,
            alarm: Alarm::default(),
            cancellation: Some(cancellation),
            inbox,
            is_asked: false,
            asks: 0,
            unanswered: Vec::new(),
            acting: Acting::default(),
            unwritten: Unwritten::default(),
        }
    }

    async fn next_fact(&mut self) -> Fact {
        if self.is_asked {
            // The caller's cancellation is delivered first.
            if self.take_cancellation() {
                self.cancellation = None;
                return Fact::Cancelled;
            }
            self.is_asked = false;
            return Fact::Inbox(self.read_inbox().await);
        }
        let Self { steps, alarm, timer, clock, cancellation, inbox, effects, .. } = self;
        let mut asked = None;
        let fact = {
            let mut cancelled = pin!(async {
                match cancellation {
                    Some(token) => token.cancelled().await,
                    None => std::future::pending().await,
                }
            });
            let mut rows = pin!(async {
                match inbox {
                    Some(inbox) => inbox.next().await,
                    None => std::future::pending().await,
                }
            });
            let mut rings = pin!(alarm.rings_at(*timer, clock));
            // Facts that stop a run are checked before those it waits for.
            poll_fn(|context: &mut Context<'_>| {
                if cancelled.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Fact::Cancelled);
                }
                if let Some(Poll::Ready(signal)) =
                    effects.signals().map(|signals| signals.poll_take(context))
                {
                    return Poll::Ready(match signal.name == CANCEL {
                        true => Fact::Cancelled,
                        false => Fact::Signal(signal),
                    });
                }
                if let Poll::Ready(rows) = rows.as_mut().poll(context) {
                    return Poll::Ready(Fact::Inbox(rows));
                }
                if rings.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Fact::Timer);
                }
                if let Poll::Ready(late) = effects.late().poll_next(context) {
                    return Poll::Ready(Fact::Late(late));
                }
                if let Poll::Ready((id, end)) = steps.poll_next(context) {
                    return Poll::Ready(Fact::Ended(id, end));
                }
                // A step can send a request when it is polled.
                effects.asks().poll_next(context).map(|(ask, answer)| {
                    asked = Some(answer);
                    Fact::Asked(AskId(0), ask)
                })
            })
            .await
        };
        match &fact {
            Fact::Cancelled => self.cancellation = None,
            Fact::Timer => self.timer = None,
            Fact::Asked(_, ask) => {
                let ask = ask.clone();
                return self.register_ask(ask, asked);
            }
            Fact::Ended(..) | Fact::Inbox(_) | Fact::Late(_) | Fact::Signal(_) => {}
        }
        fact
    }

    /// Writes a decision into the inbox before the run gets it, so that the inbox determines which decision counts. A
    /// decision that could not be written is written again after a delay, without asking the person again.
    async fn accept(&mut self, fact: Fact) -> Result<Option<Fact>, LogError> {
        let (id, end) = match fact {
            Fact::Ended(id, end) if is_decision(&end) => (id, end),
            fact => return Ok(Some(fact)),
        };
        match write(&self.effects, &end).await {
            Ok(is_in_inbox) => {
                self.unwritten.forget(id);
                Ok(Some(Fact::Ended(id, mark_written(end, is_in_inbox))))
            }
            Err(error) if error.is_retryable() => self.accept_later(id, end, error).map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// Repeats the end of a step after a delay.
    fn accept_later(&mut self, id: StepId, end: StepEnd, error: LogError) -> Result<(), LogError> {
        let clock = self.clock.clock();
        let Some(wait) = self.unwritten.next_wait(id, clock.monotonic()) else { return Err(error) };
        tracing::warn!(%error, "a decision could not be written; it is tried again");
        let waits = clock.sleep(wait);
        self.steps.begin(id, |stop: StopFlag| {
            Box::pin(async move {
                tokio::select! {
                    () = stop.wait() => StepEnd::Stopped,
                    () = waits => end,
                }
            })
        });
        Ok(())
    }

    /// Keeps the sender for the answer.
    fn register_ask(
        &mut self,
        ask: StepRequest,
        answer: Option<oneshot::Sender<StepReply>>,
    ) -> Fact {
        self.asks += 1;
        let id = AskId(self.asks);
        self.unanswered.retain(|(_, answer)| !answer.is_closed());
        self.unanswered.extend(answer.map(|answer| (id, answer)));
        Fact::Asked(id, ask)
    }

    fn perform(&mut self, id: StepId, step: Step) {
        // A step that could not be recorded must not act; the next call of `next` returns the error.
        if self.writer.is_closed() {
            return;
        }
        let Some(lease) = self.writer.lease().map(Arc::clone) else {
            return self.steps.begin(id, |stop| self.effects.perform(step, stop));
        };
        // Counted before the check whether it may start: a step that may not is not counted afterwards.
        let acts = step.acts();
        let at_work = if acts { lease.at_work() } else { None };
        if lease.may_start() {
            self.acting.begin(id, at_work);
            return self.steps.begin(id, |stop| self.effects.perform(step, stop));
        }
        drop(at_work);
        let (effects, acting) = (Arc::clone(&self.effects), self.acting.clone());
        self.steps.begin(id, |stop| {
            Box::pin(async move {
                loop {
                    tokio::select! {
                        // The step determines its own end.
                        () = stop.wait() => break,
                        () = lease.until_may_start() => {}
                    }
                    let at_work = if acts { lease.at_work() } else { None };
                    if lease.may_start() {
                        acting.begin(id, at_work);
                        break;
                    }
                }
                effects.perform(step, stop).await
            })
        });
    }

    async fn read_inbox(&mut self) -> Vec<InboxMessage> {
        let Some(inbox) = &mut self.inbox else { return Vec::new() };
        inbox.read().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the inbox cannot be read");
            Vec::new()
        })
    }

    /// Returns whether the caller cancels the run, by its token or by a signal, which is taken.
    fn take_cancellation(&self) -> bool {
        let is_cancelled = self.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled);
        is_cancelled
            || self.effects.signals().is_some_and(|signals| signals.take_named(CANCEL).is_some())
    }
}

/// The methods of [`Journal`](crate::journal::Journal).
impl LocalJournal {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn new_id(&self) -> RunId {
        new_run_id(self.clock.clock().now())
    }

    pub(crate) async fn append(&mut self, batch: &mut AppendContents) -> Result<(), LogError> {
        for entry in batch.entries.drain(..) {
            self.writer.stage(&batch.seed, entry.at, entry.actor, entry.caused_by, entry.kind);
        }
        for row in batch.taken.drain(..) {
            self.writer.take(row);
        }
        let written = self.writer.commit().await;
        batch.written.extend(written.inspect_err(|_| self.effects.asks().detach())?);
        self.acting.mark_recorded();
        Ok(())
    }

    pub(crate) fn start(&mut self, step: Step) -> StepId {
        let id = self.steps.next_id();
        self.perform(id, step);
        id
    }

    pub(crate) fn stop(&self, step: StepId) {
        self.steps.stop(step);
    }

    pub(crate) fn answer(&mut self, ask: AskId, told: StepReply) {
        if let Some(place) = self.unanswered.iter().position(|(id, _)| *id == ask) {
            // The step may have ended meanwhile.
            drop(self.unanswered.swap_remove(place).1.send(told));
        }
    }

    pub(crate) const fn timer(&mut self, at: Option<Timestamp>) {
        self.timer = at;
    }

    pub(crate) const fn watch(&mut self) {
        self.is_asked = true;
    }

    pub(crate) async fn next(&mut self, facts: &mut Vec<Fact>) -> Result<Timestamp, LogError> {
        if self.writer.is_closed() {
            return Err(LogError::WriterClosed(self.effects.run().clone()));
        }
        let lease = self.writer.lease().cloned();
        // Steps that ended without anything to record.
        self.acting.mark_recorded();
        loop {
            let acting = self.acting.clone();
            let ended = async {
                match &lease {
                    Some(lease) => acting.until_lost(&**lease).await,
                    None => std::future::pending().await,
                }
            };
            let fact = tokio::select! {
                biased;
                // Running steps are dropped with the run.
                () = ended => {
                    self.effects.asks().detach();
                    return Err(build_loss_error(lease.as_deref(), self.effects.run()));
                }
                fact = self.next_fact() => fact,
            };
            if let Some(fact) = self.accept(fact).await? {
                if let Fact::Ended(id, _) = &fact {
                    self.acting.mark_delivered(*id);
                }
                facts.push(fact);
                return Ok(self.clock.now());
            }
        }
    }
}

/// Returns the error of a run that belongs to another process.
fn build_loss_error(lease: Option<&dyn Lease>, run: &RunId) -> LogError {
    lease.map_or_else(|| LogError::LeaseEnded(run.clone()), |lease| lease.loss(run))
}

impl Drop for LocalJournal {
    fn drop(&mut self) {
        self.effects.asks().close();
    }
}
