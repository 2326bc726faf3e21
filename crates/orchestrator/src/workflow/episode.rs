//! One episode of a workflow's run: it receives the requests of its code and the results of its child runs, and records
//! each before it acts on it.

mod end;
mod others;
mod paths;
mod signals;
mod steps;
mod underway;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, Limit};
use backstop_event_log::{EventLog, InboxMessage, InboxReader, LogError};
use backstop_redact::Redactor;
use futures_util::FutureExt;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{AgentRecord, BudgetGranted, RunWaiting, WorkflowRouted};
use layer0::id::{RunId, SessionId};
use layer0::operator::{Answer, Context, Signal, Signals, Task, Waiting};
use layer0::{Code, Operator, Orchestrator, Timestamp, text};
use tokio::sync::{mpsc, oneshot};

use super::halt::{Closing, Halt};
use super::ledger::WorkflowLedger;
use super::line::{RunChannel, RunMessage, StepName};
use crate::books::Books;
use crate::task::closing_time;
use underway::{Reply, Settled};

pub(super) use underway::Underway;

/// A running run of a workflow.
pub(super) struct Episode {
    pub(super) name: Arc<str>,
    pub(super) run: RunId,
    pub(super) session: SessionId,
    pub(super) root: RunId,
    pub(super) depth: u32,
    pub(super) max_park: Option<Duration>,
    /// Whether its steps adopt the current definitions of their agents.
    pub(super) adopts: bool,
    /// Whether its steps continue although their records have lost their tails.
    pub(super) accepts_lost_tail: bool,
    /// The workflow's definition before this episode, if it was another one.
    pub(super) before: Option<Box<AgentRecord>>,
    /// Time limit of the run, over all its episodes.
    pub(super) allowed: Option<Duration>,
    pub(super) has_caller: bool,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
    pub(super) ledger: WorkflowLedger,
    pub(super) books: Arc<Books>,
    pub(super) limit: Arc<Limit>,
    pub(super) orchestrator: Option<Arc<dyn Orchestrator>>,
    pub(super) line: RunChannel,
    pub(super) asks: mpsc::UnboundedReceiver<RunMessage>,
    /// Signals sent to the run in this process.
    pub(super) signals: Signals,
    /// Signals for its code.
    pub(super) own_signals: Signals,
    pub(super) underway: Underway,
    /// The time until which all open child runs are parked, and the reason.
    pub(super) parked: Option<(Timestamp, Option<Code>)>,
}

/// An event that the episode handles.
enum EpisodeEvent {
    Done(Result<Answer, OperatorError>),
    Asked(RunMessage),
    /// A reply from the record is ready to send.
    Recalled(Reply),
    /// Staged events are ready to commit.
    Noted,
    Settled(Settled),
    /// Nothing waits for a child run any more.
    GivenUp(usize),
    Signal(Signal),
    Rows(Vec<InboxMessage>),
    Late,
    Left,
    ClosingTime,
    /// Another process has the run.
    Lost(LogError),
}

/// Events from outside that the episode waits for.
struct OutsideEvents {
    inbox: Inbox,
    /// The time limit; `None` once it was reported.
    late: Option<BoxFuture>,
    /// Completes when all child runs wait and the run is to suspend.
    leaves: BoxFuture,
    lost: Lost,
}

type Lost = std::pin::Pin<Box<dyn Future<Output = LogError> + Send>>;
type Inbox = std::pin::Pin<Box<dyn Future<Output = (InboxReader, Vec<InboxMessage>)> + Send>>;

impl Episode {
    /// Runs the code of the workflow and records its steps.
    pub(super) async fn perform(
        mut self,
        operator: &dyn Operator,
        task: Task,
        context: Context,
    ) -> Result<Answer, OperatorError> {
        let code = AssertUnwindSafe(operator.run(task, &context)).catch_unwind();
        let mut code = Some(Box::pin(code));
        let mut outside = self.outside();
        if self.ledger.progress().is_cancelled {
            // Its process died before the run had ended.
            self.close(Closing::Cancelled);
        }
        if self.limit.time_left().is_some_and(|left| left.is_zero()) {
            // The time limit had passed before its process died: no step starts.
            self.close(Closing::Late);
        }
        loop {
            if self.underway.is_closing() {
                code = None;
                if self.underway.is_idle() {
                    return self.finish().await;
                }
            }
            let happened = poll_fn(|cx| {
                let done = code.as_mut().map(|code| code.as_mut().poll(cx));
                if let Some(Poll::Ready(done)) = done {
                    return Poll::Ready(EpisodeEvent::Done(done.unwrap_or_else(|panic| {
                        let why = format!("`{}`: {}", operator.name(), text::panic_message(panic));
                        Err(OperatorError::from_failure(OrchError::from_panic(why)))
                    })));
                }
                self.poll_next(&mut outside, cx)
            });
            let taken = match happened.await {
                EpisodeEvent::Done(result) => {
                    self.close(Closing::Done(result));
                    Ok(())
                }
                EpisodeEvent::Late => {
                    self.close(Closing::Late);
                    Ok(())
                }
                EpisodeEvent::Left => return self.leave().await,
                EpisodeEvent::Lost(error) => Err(error.into()),
                EpisodeEvent::Asked(ask) => self.take_ask(ask),
                EpisodeEvent::Recalled(reply) => {
                    reply();
                    Ok(())
                }
                EpisodeEvent::Noted => self.commit().await,
                EpisodeEvent::Settled(settled) => self.take_settled(settled),
                EpisodeEvent::GivenUp(place) => {
                    self.underway.give_up(place);
                    Ok(())
                }
                EpisodeEvent::Signal(signal) => self.take_signal(signal).map(drop),
                EpisodeEvent::Rows(messages) => self.take_rows(messages),
                EpisodeEvent::ClosingTime => {
                    let Self { underway, ledger, books, .. } = &mut self;
                    underway.stop_waiting(ledger, books).map_err(Halt::from)
                }
            };
            match taken {
                Ok(()) => {}
                Err(Halt::Diverged(diverged)) => return Err(self.diverge(diverged).await),
                Err(Halt::Storage(error)) => return Err(OperatorError::from_failure(error)),
            }
        }
    }

    fn outside(&self) -> OutsideEvents {
        let (books, line) = (Arc::clone(&self.books), self.line.clone());
        let note = move |waiting| {
            let line = line.clone();
            async move {
                line.ask(|noted| RunMessage::AllWait { waiting, noted }).await;
            }
        };
        let limit = Arc::clone(&self.limit);
        let (lease, run) = (self.ledger.lease().cloned(), self.run.clone());
        OutsideEvents {
            inbox: Box::pin(next_rows(InboxReader::new(&self.log, &self.run))),
            late: Some(Box::pin(async move { limit.wait_for_end().await })),
            leaves: Box::pin(async move { books.follow(note).await }),
            lost: Box::pin(async move {
                let Some(lease) = lease else { return std::future::pending().await };
                lease.wait_for_end().await;
                lease.loss(&run)
            }),
        }
    }

    /// Polls requests before commits, so that events staged together are written together.
    fn poll_next(
        &mut self,
        outside: &mut OutsideEvents,
        cx: &mut TaskContext<'_>,
    ) -> Poll<EpisodeEvent> {
        if let Poll::Ready(error) = outside.lost.as_mut().poll(cx) {
            return Poll::Ready(EpisodeEvent::Lost(error));
        }
        if let Poll::Ready(Some(ask)) = self.asks.poll_recv(cx) {
            return Poll::Ready(EpisodeEvent::Asked(ask));
        }
        if let Some(reply) = self.underway.next_recalled() {
            return Poll::Ready(EpisodeEvent::Recalled(reply));
        }
        if !self.may_diverge() && (self.ledger.has_notes() || self.underway.is_due()) {
            return Poll::Ready(EpisodeEvent::Noted);
        }
        if let Poll::Ready(Some(settled)) = self.underway.poll_settled(cx) {
            return Poll::Ready(EpisodeEvent::Settled(settled));
        }
        if let Some(place) = self.underway.poll_given_up(cx) {
            return Poll::Ready(EpisodeEvent::GivenUp(place));
        }
        if let Poll::Ready(signal) = self.signals.poll_take(cx) {
            return Poll::Ready(EpisodeEvent::Signal(signal));
        }
        if let Poll::Ready((inbox, messages)) = outside.inbox.as_mut().poll(cx) {
            outside.inbox = Box::pin(next_rows(inbox));
            return Poll::Ready(EpisodeEvent::Rows(messages));
        }
        if outside.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready()) {
            outside.late = None;
            return Poll::Ready(EpisodeEvent::Late);
        }
        match &mut self.underway.closing {
            Some((_, time)) => time.as_mut().poll(cx).map(|()| EpisodeEvent::ClosingTime),
            None => outside.leaves.as_mut().poll(cx).map(|()| EpisodeEvent::Left),
        }
    }

    /// Returns whether pending answers from the record may show that the adopted definition does not fit it; until then
    /// nothing is recorded.
    fn may_diverge(&self) -> bool {
        self.ledger.has_open_adoption() && self.underway.has_recalls()
    }

    /// Starts to close: nothing new starts, and open child runs are cancelled.
    pub(super) fn close(&mut self, closing: Closing) {
        if self.underway.is_closing() {
            return;
        }
        let time = self.clock.sleep(closing_time(self.depth));
        self.underway.close(closing, time, &self.books);
        self.end_others();
    }

    /// Writes the staged events together with the pending dispatches, sends the replies, and starts the dispatched
    /// runs.
    pub(super) async fn commit(&mut self) -> Result<(), Halt> {
        let has_refused = std::mem::take(&mut self.underway.has_refused);
        let mut starting = if has_refused { Vec::new() } else { self.underway.take_starting() };
        starting.retain(|start| self.is_to_start(start));
        if !starting.is_empty() {
            self.ledger.note_adoption()?;
        }
        for dispatched in starting.iter_mut().filter_map(|start| start.dispatched.take()) {
            self.ledger.note(dispatched)?;
        }
        if self.ledger.has_notes() {
            self.ledger.commit().await?;
        }
        self.underway.take_replies().into_iter().for_each(|reply| reply());
        starting.into_iter().for_each(|start| self.start(start));
        Ok(())
    }

    fn take_ask(&mut self, ask: RunMessage) -> Result<(), Halt> {
        match ask {
            RunMessage::Step(ask) => self.take_step(ask)?,
            // The code has ended.
            RunMessage::Route { .. } if self.underway.is_closing() => {}
            RunMessage::Route { step, to, answer } => self.take_route(step, to, answer)?,
            RunMessage::HasBegun { step, answer } => drop(answer.send(self.has_begun(&step))),
            RunMessage::Retry { run, attempt, noted } => {
                self.note_attempt(&run, attempt)?;
                self.tell(noted, ());
            }
            RunMessage::Wait { run, waiting, noted } => {
                self.note_wait(&run, &waiting)?;
                self.tell(noted, ());
            }
            RunMessage::More { run, given, answer } => self.give_more(run, given, answer)?,
            RunMessage::AllWait { waiting, noted } => {
                self.note_own_wait(waiting)?;
                self.tell(noted, ());
            }
            RunMessage::Granted { more, noted } => {
                self.ledger.note(BudgetGranted::new(self.run.clone(), more))?;
                self.tell(noted, ());
            }
        }
        Ok(())
    }

    fn has_begun(&self, step: &StepName) -> bool {
        let path = self.underway.paths.upcoming_step(&self.name, step);
        let progress = self.ledger.progress();
        progress.steps.contains_key(&*path) || progress.refused.contains_key(&*path)
    }

    fn note_own_wait(&mut self, waiting: Waiting) -> Result<(), Halt> {
        self.parked = waiting.until.map(|until| (until, waiting.reason));
        let waiting = RunWaiting::new(waiting.r#for, waiting.approvals);
        if self.ledger.progress().waiting.as_ref() != Some(&waiting) {
            self.ledger.note(waiting)?;
        }
        Ok(())
    }

    /// Sends a reply with the next commit.
    pub(super) fn tell<T: Send + 'static>(&mut self, who: oneshot::Sender<T>, what: T) {
        self.underway.replies.push(reply(who, what));
    }

    /// Sends a reply from the record, in the order of the recorded events, so that code that does several things at
    /// once learns of their ends in the original order.
    pub(super) fn tell_recorded<T: Send + 'static>(
        &mut self,
        place: u64,
        who: oneshot::Sender<T>,
        what: T,
    ) {
        self.underway.recalled.insert(place, Some(reply(who, what)));
    }

    fn take_route(
        &mut self,
        step: StepName,
        to: String,
        answer: oneshot::Sender<Result<String, OrchError>>,
    ) -> Result<(), Halt> {
        let path = match self.underway.paths.next_route(&self.name, &step) {
            Ok(path) => path,
            Err(error) => {
                self.tell(answer, Err(error));
                return Ok(());
            }
        };
        let recorded = self.ledger.progress().routed.get(&*path);
        match recorded {
            Some((place, taken)) => {
                let (place, taken) = (*place, taken.to_string());
                self.tell_recorded(place, answer, Ok(taken));
            }
            None => {
                self.ledger.note(WorkflowRouted::new(path, &*to))?;
                self.tell(answer, Ok(to));
            }
        }
        Ok(())
    }
}

fn reply<T: Send + 'static>(who: oneshot::Sender<T>, what: T) -> Reply {
    Box::new(move || {
        // A receiver that no longer waits needs no reply.
        let _is_waited_for = who.send(what).is_ok();
    })
}

async fn next_rows(mut inbox: InboxReader) -> (InboxReader, Vec<InboxMessage>) {
    let rows = inbox.next().await;
    (inbox, rows)
}
