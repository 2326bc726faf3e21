//! One episode of a workflow's run: it takes in what its code asks for and what those below come to, and
//! notes each before anything follows from it.

mod end;
mod others;
mod paths;
mod steps;
mod underway;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, Limit};
use backstop_event_log::{EventLog, InboxMessage, InboxReader, InboxRequest, LogError};
use backstop_redact::Redactor;
use futures_util::FutureExt;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{AgentRecord, BudgetGranted, RunWaiting, SignalReceived, WorkflowRouted};
use layer0::id::{RunId, SessionId};
use layer0::operator::{Answer, Context, Signal, Signals, Task, Waiting};
use layer0::{Code, JsonText, Operator, Orchestrator, Timestamp, text};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::halt::{Closing, Halt};
use super::ledger::Ledger;
use super::line::{Ask, Line, StepName};
use crate::books::Books;
use crate::task::closing_time;
use underway::{Reply, Settled};

pub(super) use underway::Underway;

/// A run of a workflow that is at work.
pub(super) struct Episode {
    pub(super) name: Arc<str>,
    pub(super) run: RunId,
    pub(super) session: SessionId,
    pub(super) root: RunId,
    pub(super) depth: u32,
    pub(super) max_park: Option<Duration>,
    /// Do its steps go on with their agents as those are defined now?
    pub(super) adopts: bool,
    /// Whether its steps continue although their records have lost their tails.
    pub(super) accepts_lost_tail: bool,
    /// What the workflow was until this episode, where that was something else.
    pub(super) before: Option<Box<AgentRecord>>,
    /// How long the run may be at work, all episodes together.
    pub(super) allowed: Option<Duration>,
    pub(super) has_caller: bool,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
    pub(super) ledger: Ledger,
    pub(super) books: Arc<Books>,
    pub(super) limit: Arc<Limit>,
    pub(super) orchestrator: Option<Arc<dyn Orchestrator>>,
    pub(super) line: Line,
    pub(super) asks: mpsc::UnboundedReceiver<Ask>,
    /// What is sent to the run in this process.
    pub(super) signals: Signals,
    /// What its code is told.
    pub(super) own_signals: Signals,
    pub(super) underway: Underway,
    /// Until when all that is open below is parked, and why.
    pub(super) parked: Option<(Timestamp, Option<Code>)>,
}

/// What happened.
enum Happened {
    Done(Result<Answer, OperatorError>),
    Asked(Ask),
    /// A reply from the record is to be sent.
    Recalled(Reply),
    /// What was noted is to be committed.
    Noted,
    Settled(Settled),
    /// A run below is not waited for any more.
    GivenUp(usize),
    Signal(Signal),
    Rows(Vec<InboxMessage>),
    Late,
    Left,
    ClosingTime,
    /// Another process has the run.
    Lost(LogError),
}

/// What is waited for from outside.
struct Outside {
    inbox: Inbox,
    /// The time is over; nothing once it was told.
    late: Option<BoxFuture>,
    /// All below do nothing but wait, and the run is to leave.
    leaves: BoxFuture,
    lost: Lost,
}

type Lost = std::pin::Pin<Box<dyn Future<Output = LogError> + Send>>;
type Inbox = std::pin::Pin<Box<dyn Future<Output = (InboxReader, Vec<InboxMessage>)> + Send>>;

impl Episode {
    /// Lets the code of the workflow do its work, and writes down what comes of it.
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
            // Its process died before it had ended.
            self.close(Closing::Cancelled);
        }
        if self.limit.left().is_some_and(|left| left.is_zero()) {
            // Its time had passed before its process died: no step begins.
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
                    return Poll::Ready(Happened::Done(done.unwrap_or_else(|panic| {
                        let why = format!("`{}`: {}", operator.name(), text::panicked(panic));
                        Err(OperatorError::failed(OrchError::panicked(why)))
                    })));
                }
                self.poll_next(&mut outside, cx)
            });
            let taken = match happened.await {
                Happened::Done(result) => {
                    self.close(Closing::Done(result));
                    Ok(())
                }
                Happened::Late => {
                    self.close(Closing::Late);
                    Ok(())
                }
                Happened::Left => return self.leave().await,
                Happened::Lost(error) => Err(error.into()),
                Happened::Asked(ask) => self.take_ask(ask),
                Happened::Recalled(reply) => {
                    reply();
                    Ok(())
                }
                Happened::Noted => self.commit().await,
                Happened::Settled(settled) => self.take_settled(settled),
                Happened::GivenUp(place) => {
                    self.underway.give_up(place);
                    Ok(())
                }
                Happened::Signal(signal) => self.take_signal(signal),
                Happened::Rows(messages) => self.take_rows(messages),
                Happened::ClosingTime => {
                    let Self { underway, ledger, books, .. } = &mut self;
                    underway.stop_waiting(ledger, books).map_err(Halt::from)
                }
            };
            match taken {
                Ok(()) => {}
                Err(Halt::Diverged(diverged)) => return Err(self.diverge(diverged).await),
                Err(Halt::Storage(error)) => return Err(OperatorError::failed(error)),
            }
        }
    }

    fn outside(&self) -> Outside {
        let (books, line) = (Arc::clone(&self.books), self.line.clone());
        let note = move |waiting| {
            let line = line.clone();
            async move {
                line.ask(|noted| Ask::AllWait { waiting, noted }).await;
            }
        };
        let limit = Arc::clone(&self.limit);
        let (lease, run) = (self.ledger.lease().cloned(), self.run.clone());
        Outside {
            inbox: Box::pin(next_rows(InboxReader::new(&self.log, &self.run))),
            late: Some(Box::pin(async move { limit.passed().await })),
            leaves: Box::pin(async move { books.follow(note).await }),
            lost: Box::pin(async move {
                let Some(lease) = lease else { return std::future::pending().await };
                lease.ended().await;
                lease.loss(&run)
            }),
        }
    }

    /// What was asked for goes first, so that what is noted together is written together.
    fn poll_next(&mut self, outside: &mut Outside, cx: &mut TaskContext<'_>) -> Poll<Happened> {
        if let Poll::Ready(error) = outside.lost.as_mut().poll(cx) {
            return Poll::Ready(Happened::Lost(error));
        }
        if let Poll::Ready(Some(ask)) = self.asks.poll_recv(cx) {
            return Poll::Ready(Happened::Asked(ask));
        }
        if let Some(reply) = self.underway.next_recalled() {
            return Poll::Ready(Happened::Recalled(reply));
        }
        if !self.may_diverge() && (self.ledger.has_notes() || self.underway.is_due()) {
            return Poll::Ready(Happened::Noted);
        }
        if let Poll::Ready(Some(settled)) = self.underway.poll_settled(cx) {
            return Poll::Ready(Happened::Settled(settled));
        }
        if let Some(place) = self.underway.poll_given_up(cx) {
            return Poll::Ready(Happened::GivenUp(place));
        }
        if let Poll::Ready(signal) = self.signals.poll_take(cx) {
            return Poll::Ready(Happened::Signal(signal));
        }
        if let Poll::Ready((inbox, messages)) = outside.inbox.as_mut().poll(cx) {
            outside.inbox = Box::pin(next_rows(inbox));
            return Poll::Ready(Happened::Rows(messages));
        }
        if outside.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready()) {
            outside.late = None;
            return Poll::Ready(Happened::Late);
        }
        match &mut self.underway.closing {
            Some((_, time)) => time.as_mut().poll(cx).map(|()| Happened::ClosingTime),
            None => outside.leaves.as_mut().poll(cx).map(|()| Happened::Left),
        }
    }

    /// Returns whether pending answers from the record may show that the adopted definition does not fit it: nothing is
    /// recorded before.
    fn may_diverge(&self) -> bool {
        self.ledger.has_open_adoption() && self.underway.has_recalls()
    }

    /// Begins to end: nothing new is begun, and what is open below is told to end.
    pub(super) fn close(&mut self, closing: Closing) {
        if self.underway.is_closing() {
            return;
        }
        let time = self.clock.sleep(closing_time(self.depth));
        self.underway.close(closing, time, &self.books);
        self.end_others();
    }

    /// Writes what was noted with the dispatches that are asked for, tells who waits for that, and starts what was
    /// dispatched.
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

    fn take_ask(&mut self, ask: Ask) -> Result<(), Halt> {
        match ask {
            Ask::Step(ask) => self.take_step(ask)?,
            // Its code is not at work any more.
            Ask::Route { .. } if self.underway.is_closing() => {}
            Ask::Route { step, to, answer } => self.take_route(step, to, answer)?,
            Ask::Retry { run, attempt, noted } => {
                self.note_attempt(&run, attempt)?;
                self.tell(noted, ());
            }
            Ask::Wait { run, waiting, noted } => {
                self.note_wait(&run, &waiting)?;
                self.tell(noted, ());
            }
            Ask::More { run, given, answer } => self.give_more(run, given, answer)?,
            Ask::AllWait { waiting, noted } => {
                self.note_own_wait(waiting)?;
                self.tell(noted, ());
            }
            Ask::Granted { more, noted } => {
                self.ledger.note(BudgetGranted::new(self.run.clone(), more))?;
                self.tell(noted, ());
            }
        }
        Ok(())
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

    /// Sends a reply that an event of the record has, in the order of those events: code that does several things at
    /// once learns of their ends in the order that it first did.
    pub(super) fn tell_recorded<T: Send + 'static>(
        &mut self,
        place: u64,
        who: oneshot::Sender<T>,
        what: T,
    ) {
        self.underway.recalled.insert(place, Some(reply(who, what)));
    }

    fn take_signal(&mut self, Signal { name, data, cause, .. }: Signal) -> Result<(), Halt> {
        let data = self.redactor.redact_held_json(JsonText::from(data)).value();
        let name = self.redactor.redact_held(&name).into_owned();
        let mut received = SignalReceived::new(&*name, data.clone());
        received.cause = cause;
        self.ledger.note(received)?;
        match name.as_str() {
            Signal::CANCEL => self.close(Closing::Cancelled),
            _ => self.own_signals.push(Signal::new(name, data)),
        }
        Ok(())
    }

    fn take_rows(&mut self, messages: Vec<InboxMessage>) -> Result<(), Halt> {
        for InboxMessage { id, request, .. } in messages {
            self.ledger.take_row(id);
            let signal = match request {
                InboxRequest::Cancel { .. } => Signal::cancel(),
                InboxRequest::Input { text, .. } => Signal::new("input", Value::from(&*text)),
                InboxRequest::Signal { name, data, cause, .. } => {
                    let mut signal = Signal::new(&*name, data.read().unwrap_or_default());
                    signal.cause = cause;
                    signal
                }
                // A workflow asks nothing of people itself.
                _ => continue,
            };
            self.take_signal(signal)?;
        }
        Ok(())
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
        // One that does not wait any more need not know.
        let _is_waited_for = who.send(what).is_ok();
    })
}

async fn next_rows(mut inbox: InboxReader) -> (InboxReader, Vec<InboxMessage>) {
    let rows = inbox.next().await;
    (inbox, rows)
}
