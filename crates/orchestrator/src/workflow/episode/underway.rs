//! The running child runs of a workflow.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use backstop_clock::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::error::OrchError;
use layer0::event::{OperatorDispatched, OperatorReturned};
use layer0::id::RunId;
use layer0::operator::{Answer, Signal, Signals, Task};
use layer0::stop::Outcome;
use layer0::usage::Allowance;
use layer0::{Code, code};
use tokio::sync::oneshot;

use super::paths::Paths;
use crate::books::Books;
use crate::workflow::diverged::Diverged;
use crate::workflow::halt::Closing;
use crate::workflow::ledger::WorkflowLedger;
use crate::workflow::line::{StepAsk, StepTarget};

type Work = Pin<Box<dyn Future<Output = Settled> + Send>>;
pub(super) type Reply = Box<dyn FnOnce() + Send>;
pub(super) type AnswerSender = oneshot::Sender<Result<Answer, OrchError>>;

/// The child runs and pending replies of a run.
#[derive(Default)]
pub(in crate::workflow) struct Underway {
    /// Child runs whose dispatch is not yet durable.
    pub(super) starting: Vec<ChildStart>,
    pub(super) open: Vec<OpenStep>,
    /// Suspended child runs, to be resumed with the run; their answers stay pending until then.
    pub(super) left: Vec<OpenStep>,
    /// Replies to send with the next commit.
    pub(super) replies: Vec<Reply>,
    pub(super) paths: Paths,
    /// Steps that are never answered: their code dropped them before, and does so again.
    pub(super) unanswered: Vec<AnswerSender>,
    /// Whether a refusal is recorded that the code has not received: steps that it then drops are not started.
    pub(super) has_refused: bool,
    /// Replies from the record that the code has not received, by the number of their event; `None` while the record of
    /// a child run is read.
    pub(super) recalled: BTreeMap<u64, Option<Reply>>,
    pub(super) closing: Option<(Closing, BoxFuture)>,
    work: FuturesUnordered<Work>,
}

/// A child run that is about to start.
pub(super) struct ChildStart {
    pub(super) step: OpenStep,
    /// Event to record first; `None` once recorded.
    pub(super) dispatched: Option<OperatorDispatched>,
    pub(super) task: Task,
    pub(super) attempt: u32,
    pub(super) goes_on: bool,
    pub(super) given: Option<Allowance>,
}

/// A child run that has not ended.
pub(super) struct OpenStep {
    pub(super) run: RunId,
    pub(super) operator: Arc<str>,
    pub(super) target: StepTarget,
    pub(super) unrecorded: bool,
    pub(super) signals: Signals,
    /// Sender of the answer; `None` once the step was given up.
    pub(super) answer: Option<AnswerSender>,
}

impl OpenStep {
    fn give_up(&mut self) {
        self.answer = None;
        self.signals.push(Signal::cancel());
    }
}

/// A result of background work.
pub(super) enum Settled {
    /// A child run has ended.
    Ended(RunId, Result<Answer, OrchError>),
    /// The answer of a step was read from the record; the number is that of its event.
    Recalled(u64, AnswerSender, Result<Answer, OrchError>),
    /// A child run is given more budget.
    More(RunId, Option<Allowance>, oneshot::Sender<Option<Allowance>>),
    /// There is more budget for a step that could not start; or the code of the budget that is used up.
    Refilled(Box<StepAsk>, Arc<str>, Result<(), &'static str>),
}

impl Underway {
    pub(super) fn push(&self, work: impl Future<Output = Settled> + Send + 'static) {
        self.work.push(Box::pin(work));
    }

    /// Waits for the end of a step that the code does not wait for.
    pub(super) fn end_other<W>(&mut self, step: OpenStep, end: impl FnOnce(RunId, StepTarget) -> W)
    where
        W: Future<Output = Settled> + Send + 'static,
    {
        self.push(end(step.run.clone(), step.target.clone()));
        self.open.push(step);
    }

    /// Returns whether a child run is running, or about to start.
    pub(super) fn is_open(&self, run: &RunId) -> bool {
        let starting = self.starting.iter().map(|start| &start.step);
        self.open.iter().chain(starting).any(|step| step.run == *run)
    }

    pub(super) fn poll_settled(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Settled>> {
        self.work.poll_next_unpin(cx)
    }

    pub(super) fn take(&mut self, run: &RunId) -> Option<OpenStep> {
        let place = self.open.iter().position(|step| step.run == *run)?;
        Some(self.open.swap_remove(place))
    }

    pub(super) const fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Returns whether no child run is open.
    pub(super) const fn is_idle(&self) -> bool {
        self.open.is_empty() && self.starting.is_empty()
    }

    pub(super) fn has_recalls(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// Takes the next reply from the record, if it was read.
    pub(super) fn next_recalled(&mut self) -> Option<Reply> {
        let first = self.recalled.first_entry()?;
        first.get().is_some().then(|| first.remove())?
    }

    /// Returns whether a step may start now: not before the code has all recorded answers, because its next request may
    /// show that it is not the code that began the run.
    fn may_start(&self) -> bool {
        !self.starting.is_empty() && !self.has_recalls()
    }

    /// Returns whether a commit has something to send or to start.
    pub(super) fn is_due(&self) -> bool {
        self.may_start() || (!self.replies.is_empty() && !self.has_recalls())
    }

    /// Takes the replies that a commit sends; none before those from the record.
    pub(super) fn take_replies(&mut self) -> Vec<Reply> {
        match self.has_recalls() {
            true => Vec::new(),
            false => std::mem::take(&mut self.replies),
        }
    }

    /// Takes the steps that may start now.
    pub(super) fn take_starting(&mut self) -> Vec<ChildStart> {
        match self.may_start() {
            true => std::mem::take(&mut self.starting),
            false => Vec::new(),
        }
    }

    /// Starts to close: child runs whose dispatch is not durable do not start, and open ones are cancelled. A child run
    /// that an earlier process dispatched is started only to be cancelled, unless it has no record: then only the dead
    /// process knows whether it acted.
    pub(super) fn close(&mut self, closing: Closing, time: BoxFuture, books: &Books) {
        self.closing = Some((closing, time));
        self.recalled.clear();
        self.starting.retain_mut(|start| {
            let is_begun = start.dispatched.is_none() && !start.step.unrecorded;
            match is_begun {
                true => start.step.give_up(),
                false => books.end(&start.step.run, None, false),
            }
            is_begun
        });
        (0..self.open.len()).for_each(|place| self.give_up(place));
    }

    /// Returns the reason of the run's end.
    pub(crate) fn take_end(&mut self) -> Option<Closing> {
        self.closing.take().map(|(closing, _)| closing)
    }

    /// Returns a child run that nothing waits for any more and that was not cancelled yet.
    pub(super) fn poll_given_up(&mut self, cx: &mut TaskContext<'_>) -> Option<usize> {
        self.open.iter_mut().position(|step| {
            let answer = step.answer.as_mut();
            answer.is_some_and(|answer| answer.poll_closed(cx).is_ready())
        })
    }

    pub(super) fn give_up(&mut self, place: usize) {
        if let Some(step) = self.open.get_mut(place) {
            step.give_up();
        }
    }

    /// Records child runs that did not end in time as stopped.
    pub(super) fn stop_waiting(
        &mut self,
        ledger: &mut WorkflowLedger,
        books: &Books,
    ) -> Result<(), Diverged> {
        for OpenStep { run, operator, .. } in self.open.drain(..) {
            books.end(&run, None, false);
            let used = ledger.progress().used_since(&run, &books.used_by(&run));
            let reason = Some(Code::new(code::RUN_CANCELLED));
            let mut returned =
                OperatorReturned::new(operator, run, Outcome::Cancelled, reason, used);
            returned.superseded = true;
            ledger.note(returned)?;
        }
        Ok(())
    }
}

/// A run that ended has no open child runs. A run that stops without an end leaves its steps to another process.
impl Drop for Underway {
    fn drop(&mut self) {
        self.open.iter().for_each(|step| step.signals.detach());
    }
}
