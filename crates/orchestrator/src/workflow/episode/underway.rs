//! What is at work below a workflow.

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
use crate::workflow::ledger::Ledger;
use crate::workflow::line::{StepAsk, Target};

type Work = Pin<Box<dyn Future<Output = Settled> + Send>>;
type Reply = Box<dyn FnOnce() + Send>;
pub(super) type AnswerSender = oneshot::Sender<Result<Answer, OrchError>>;

/// What is at work for a run.
#[derive(Default)]
pub(in crate::workflow) struct Underway {
    /// Those whose dispatch is not durable.
    pub(super) starting: Vec<Start>,
    pub(super) open: Vec<OpenStep>,
    /// Those that left, to be taken up with the run; their answers are waited for until then.
    pub(super) left: Vec<OpenStep>,
    /// What is told once what was noted is committed.
    pub(super) replies: Vec<Reply>,
    pub(super) paths: Paths,
    /// Steps that are never answered: their code gave them up before, and does so again.
    pub(super) unanswered: Vec<AnswerSender>,
    /// Whether a refusal is noted that its code has not been told: what it then gives up is not begun.
    pub(super) has_refused: bool,
    /// The number of pending answers from the record.
    pub(super) recalls: usize,
    pub(super) closing: Option<(Closing, BoxFuture)>,
    work: FuturesUnordered<Work>,
}

/// A run that is about to start.
pub(super) struct Start {
    pub(super) step: OpenStep,
    /// What is to be noted before; none where it is.
    pub(super) dispatched: Option<OperatorDispatched>,
    pub(super) task: Task,
    pub(super) attempt: u32,
    pub(super) goes_on: bool,
    pub(super) given: Option<Allowance>,
}

/// A run below that has not ended.
pub(super) struct OpenStep {
    pub(super) run: RunId,
    pub(super) operator: Arc<str>,
    pub(super) target: Target,
    pub(super) unrecorded: bool,
    pub(super) signals: Signals,
    /// Who waits for it; none once it was given up.
    pub(super) answer: Option<AnswerSender>,
}

/// What work came to.
pub(super) enum Settled {
    /// A run below has ended.
    Ended(RunId, Result<Answer, OrchError>),
    /// A step is answered from what was recorded.
    Told(AnswerSender, Result<Answer, OrchError>),
    /// A run below is given more.
    More(RunId, Option<Allowance>, oneshot::Sender<Option<Allowance>>),
    /// There is more to be had for a step that could not begin; or the code of what is used up.
    Refilled(Box<StepAsk>, Arc<str>, Result<(), &'static str>),
}

impl Underway {
    pub(super) fn push(&self, work: impl Future<Output = Settled> + Send + 'static) {
        self.work.push(Box::pin(work));
    }

    /// Waits for a step to end that its code does not wait for.
    pub(super) fn end_other<W>(&mut self, step: OpenStep, end: impl FnOnce(RunId, Target) -> W)
    where
        W: Future<Output = Settled> + Send + 'static,
    {
        self.push(end(step.run.clone(), step.target.clone()));
        self.open.push(step);
    }

    /// Is a run below at work?
    pub(super) fn is_open(&self, run: &RunId) -> bool {
        self.open.iter().any(|step| step.run == *run)
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

    /// Is nothing open below?
    pub(super) const fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether a step is to be started now: none is before the code has all answers that are recorded, since
    /// what it asks for next may show that it is other code than began the run.
    pub(super) const fn may_start(&self) -> bool {
        !self.starting.is_empty() && self.recalls == 0
    }

    /// Takes the steps that are to be started now.
    pub(super) fn take_starting(&mut self) -> Vec<Start> {
        match self.may_start() {
            true => std::mem::take(&mut self.starting),
            false => Vec::new(),
        }
    }

    /// Begins to end: what is not durable is not begun, and what is open below is told to end.
    pub(super) fn close(&mut self, closing: Closing, time: BoxFuture, books: &Books) {
        self.closing = Some((closing, time));
        self.starting.drain(..).for_each(|start| books.end(&start.step.run, None, false));
        (0..self.open.len()).for_each(|place| self.give_up(place));
    }

    /// Returns why the run ends.
    pub(crate) fn take_end(&mut self) -> Option<Closing> {
        self.closing.take().map(|(closing, _)| closing)
    }

    /// Finds a run below that is not waited for any more, and was not told so.
    pub(super) fn poll_given_up(&mut self, cx: &mut TaskContext<'_>) -> Option<usize> {
        self.open.iter_mut().position(|step| {
            let answer = step.answer.as_mut();
            answer.is_some_and(|answer| answer.poll_closed(cx).is_ready())
        })
    }

    pub(super) fn give_up(&mut self, place: usize) {
        if let Some(step) = self.open.get_mut(place) {
            step.answer = None;
            step.signals.push(Signal::cancel());
        }
    }

    /// Notes those that did not end in time as stopped.
    pub(super) fn stop_waiting(
        &mut self,
        ledger: &mut Ledger,
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

/// A run that ends has nothing open below. One that stops short of an end leaves its steps to another process.
impl Drop for Underway {
    fn drop(&mut self) {
        self.open.iter().for_each(|step| step.signals.detach());
    }
}
