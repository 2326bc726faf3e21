//! Steps of a workflow: start, answer from the record, wait, further budget, end.

use std::sync::Arc;

use backstop_event_log::task_digest;
use backstop_tool::ToolError;
use layer0::code;
use layer0::error::{OperatorError, OrchError};
use layer0::event::{
    BudgetGranted, OperatorDispatched, OperatorRefused, OperatorReturned, OperatorWaiting, WaitFor,
};
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Context, Signals, Waiting};
use layer0::stop::{Outcome, Stop};
use layer0::usage::{Allowance, Usage};
use layer0::{Code, JsonText, Orchestrator};
use thiserror::Error;
use tokio::sync::oneshot;

use super::Episode;
use super::underway::{AnswerSender, ChildStart, OpenStep, Settled};
use crate::between::{CallerBudgetExhausted, UNKNOWN_SHARES};
use crate::books::DispatchOpening;
use crate::books::callers::ChildCaller;
use crate::ids::new_run_id;
use crate::workflow::diverged::Diverged;
use crate::workflow::halt::Halt;
use crate::workflow::line::{StepAsk, StepCaller, StepTarget};
use crate::workflow::recorded;

impl Episode {
    /// Starts a step, or answers it from the record.
    pub(super) fn take_step(&mut self, ask: Box<StepAsk>) -> Result<(), Halt> {
        if self.underway.is_closing() {
            return Ok(());
        }
        let path = match self.underway.paths.next_step(&self.name, &ask.name) {
            Ok(path) => path,
            Err(error) => {
                self.tell(ask.answer, Err(error));
                return Ok(());
            }
        };
        let Some(step) = self.ledger.progress().steps.get(&*path) else {
            return self.take_new_step(ask, path);
        };
        let digest = task_digest(&ask.task);
        let recorded = [&*step.dispatched.operator, &*step.dispatched.input_digest];
        let asked = [ask.target.name(), &*digest];
        if let Some((expected, actual)) = recorded.iter().zip(asked).find(|(one, two)| *one != two)
        {
            return Err(Diverged::at_step(&path, *expected, actual).into());
        }
        let may_repeat = ask.task.idempotent;
        match step.end().or_else(|| step.final_failure().filter(|_| !may_repeat)) {
            // Its code dropped the step before its end, and does so again.
            Some(returned) if returned.superseded => {
                self.underway.unanswered.push(ask.answer);
                Ok(())
            }
            Some(returned) => {
                let (place, returned) = (step.returned_at, returned.clone());
                self.answer_from_record(*ask, place, returned);
                Ok(())
            }
            None => self.begin_again(*ask, &path),
        }
    }

    /// Starts a step without a record, unless it was refused before.
    fn take_new_step(&mut self, ask: Box<StepAsk>, path: Arc<str>) -> Result<(), Halt> {
        match self.ledger.progress().refused.get(&path) {
            Some((place, refused)) => {
                let (place, error) = (*place, recorded::refusal_error(refused));
                self.tell_recorded(place, ask.answer, Err(error));
                Ok(())
            }
            None if self.may_have_acted(&ask) => self.interrupt_lost_step(*ask, path),
            None => self.begin_step(ask, path),
        }
    }

    /// Returns whether a step without a record may have been dispatched in lost events, and cannot be repeated.
    fn may_have_acted(&self, ask: &StepAsk) -> bool {
        self.ledger.progress().lost_steps > 0 && !ask.task.idempotent
    }

    /// Records a step that may have acted in lost events as interrupted, and returns that failure to its code.
    fn interrupt_lost_step(&mut self, ask: StepAsk, path: Arc<str>) -> Result<(), Halt> {
        let (operator, run) = (Arc::<str>::from(ask.target.name()), new_run_id(self.clock.now()));
        let digest = task_digest(&ask.task);
        let allowance = Box::new(Allowance::without_bounds());
        let mut dispatched =
            OperatorDispatched::new(Arc::clone(&operator), run.clone(), 1, digest, allowance);
        (dispatched.step, dispatched.unrecorded) = (Some(path), true);
        self.ledger.note(dispatched)?;
        let error = OrchError::from(OperatorError::from_failure(ToolError::Interrupted));
        let returned = self.build_returned((&operator, &run), Usage::free(), Err(&error), true);
        let error = recorded::noted_failure(&returned);
        self.ledger.note(returned)?;
        self.tell(ask.answer, Err(error));
        Ok(())
    }

    /// Records that a step does not start, and returns the failure to its code.
    fn refuse(&mut self, ask: StepAsk, path: Arc<str>, error: &OrchError) -> Result<(), Halt> {
        let messages = recorded::messages(error, &self.redactor);
        let refused = OperatorRefused::new(ask.target.name(), path, error.code(), messages);
        let error = recorded::refusal_error(&refused);
        self.ledger.note(refused)?;
        self.underway.has_refused = true;
        self.tell(ask.answer, Err(error));
        Ok(())
    }

    fn begin_step(&mut self, ask: Box<StepAsk>, path: Arc<str>) -> Result<(), Halt> {
        let can_go_on = match self.check(&ask.target) {
            Ok(can_go_on) => can_go_on,
            Err(error) => return self.refuse(*ask, path, &error),
        };
        let (run, signals) = (new_run_id(self.clock.now()), Signals::default());
        let (shares, at_most) = (ask.shares.unwrap_or(UNKNOWN_SHARES), ask.task.allowance);
        let opening = DispatchOpening {
            run: run.clone(),
            signals: signals.clone(),
            at_most,
            is_recorded: can_go_on,
        };
        let given = match (self.books.begin(opening, shares), self.books.request_count()) {
            (Ok(given), _) => given,
            (Err(code), Some(asked)) => {
                let books = Arc::clone(&self.books);
                self.underway.push(async move {
                    let is_refilled = books.refill(asked).await;
                    Settled::Refilled(ask, path, if is_refilled { Ok(()) } else { Err(code) })
                });
                return Ok(());
            }
            (Err(code), None) => {
                let error = CallerBudgetExhausted::new_error(ask.target.name(), code);
                return self.refuse(*ask, path, &error);
            }
        };
        let operator: Arc<str> = ask.target.name().into();
        let allowance = Box::new(given.unwrap_or_else(Allowance::without_bounds));
        let digest = task_digest(&ask.task);
        let mut dispatched =
            OperatorDispatched::new(Arc::clone(&operator), run.clone(), 1, digest, allowance);
        (dispatched.step, dispatched.unrecorded) = (Some(path), !can_go_on);
        dispatched.at_most = at_most.map(Box::new);
        let StepAsk { target, task, answer, .. } = *ask;
        let answer = Some(answer);
        let step = OpenStep { run, operator, target, unrecorded: !can_go_on, signals, answer };
        self.underway.starting.push(ChildStart {
            step,
            dispatched: Some(dispatched),
            task,
            attempt: 1,
            goes_on: false,
            given,
        });
        Ok(())
    }

    /// Returns whether the operator of a step keeps a record, or the reason that it cannot be started.
    fn check(&self, target: &StepTarget) -> Result<bool, OrchError> {
        let Some(orchestrator) = &self.orchestrator else {
            let why = "the workflow is not in an orchestrator".to_owned();
            return Err(OrchError::DispatchFailed(why));
        };
        let (is_priced, can_go_on) = match target {
            StepTarget::Named(name) => {
                if let Some(unknown) = orchestrator.unknown(name) {
                    return Err(OrchError::OperatorNotFound(unknown.name.into()));
                }
                (orchestrator.is_priced(name), orchestrator.can_go_on(name))
            }
            StepTarget::AtHand(operator) => (operator.is_priced(), operator.can_go_on()),
        };
        match !is_priced && self.books.bounds_cost() {
            true => Err(CallerBudgetExhausted::new_error(target.name(), code::ORCH_PRICE_UNKNOWN)),
            false => Ok(can_go_on),
        }
    }

    /// Continues a step that was begun before.
    fn begin_again(&mut self, ask: StepAsk, path: &str) -> Result<(), Halt> {
        let Some(step) = self.ledger.progress().steps.get(path) else { return Ok(()) };
        let (mut dispatched, given) = (step.dispatched.clone(), step.total_allowance());
        // A child run without a record does not know its grants: it asks for each again.
        let known = if dispatched.unrecorded { step.first_allowance() } else { given };
        let (run, operator) = (dispatched.run.clone(), Arc::clone(&dispatched.operator));
        let (unrecorded, is_tried_again) = (dispatched.unrecorded, step.is_tried_again);
        let StepAsk { target, task, answer, .. } = ask;
        let did_nothing = step.did_nothing();
        if unrecorded && !task.idempotent && !did_nothing {
            let error = OrchError::from(OperatorError::from_failure(ToolError::Interrupted));
            let used = self.books.used_by(&run);
            let returned = self.build_returned((&operator, &run), used, Err(&error), unrecorded);
            let error = recorded::noted_failure(&returned);
            self.ledger.note(returned)?;
            self.tell(answer, Err(error));
            return Ok(());
        }
        if is_tried_again {
            dispatched.attempt = dispatched.attempt.saturating_add(1);
        }
        let signals = Signals::default();
        let opening = DispatchOpening {
            run: run.clone(),
            signals: signals.clone(),
            at_most: dispatched.at_most.as_deref().copied(),
            is_recorded: !unrecorded,
        };
        self.books.begin_again(opening, given);
        let answer = Some(answer);
        let step = OpenStep { run, operator, target, unrecorded, signals, answer };
        let (attempt, goes_on) = (dispatched.attempt, true);
        let dispatched = is_tried_again.then_some(dispatched);
        let start = ChildStart { step, dispatched, task, attempt, goes_on, given: known };
        self.underway.starting.push(start);
        Ok(())
    }

    /// Returns whether a run still has to be started: if its code dropped it before its dispatch was recorded, it never
    /// starts.
    pub(super) fn is_to_start(&self, start: &ChildStart) -> bool {
        let is_given_up = start.step.answer.as_ref().is_none_or(AnswerSender::is_closed);
        let is_dropped = is_given_up && start.dispatched.is_some();
        if is_dropped {
            self.books.end(&start.step.run, None, false);
        }
        !is_dropped
    }

    /// Starts a run whose dispatch is durable.
    pub(super) fn start(&mut self, start: ChildStart) {
        let ChildStart { step, task, attempt, goes_on, given, .. } = start;
        let Some(orchestrator) = self.orchestrator.clone() else { return };
        let mut context = self.below(&orchestrator);
        (context.run, context.signals) = (Some(step.run.clone()), step.signals.clone());
        (context.attempt, context.goes_on, context.allowance) = (attempt, goes_on, given);
        // time of day: the orchestrator takes the deadline at once, and measures the time left.
        context.deadline = self.limit.time_left().map(|left| self.clock.now().after(left));
        context.caller = Some(self.caller(&step.run));
        let (run, target) = (step.run.clone(), step.target.clone());
        self.underway.open.push(step);
        self.underway.push(async move {
            Settled::Ended(run, dispatch_target(&*orchestrator, target, task, context).await)
        });
    }

    pub(super) fn caller(&self, run: &RunId) -> Arc<dyn Caller> {
        let below = ChildCaller { books: Arc::clone(&self.books), run: run.clone() };
        let lease = self.ledger.lease().cloned();
        Arc::new(StepCaller { below, line: self.line.clone(), lease })
    }

    /// Returns the context of a child run.
    pub(super) fn below(&self, orchestrator: &Arc<dyn Orchestrator>) -> Context {
        let mut context = Context::root();
        context.session = Some(self.session.clone());
        context.parent = Some(self.run.clone());
        context.root = Some(self.root.clone());
        context.depth = self.depth.saturating_add(1);
        let started = self.ledger.progress().started.as_ref();
        context.labels = started.map(|started| Arc::clone(&started.labels)).unwrap_or_default();
        context.sessions = started.map(|started| Arc::clone(&started.sessions)).unwrap_or_default();
        (context.max_park, context.adopts) = (self.max_park, self.adopts);
        context.accepts_lost_tail = self.accepts_lost_tail;
        context.orchestrator = Some(Arc::clone(orchestrator));
        context
    }

    /// Answers a finished step: from the record of its run if it has one, otherwise from the recorded end of the step.
    fn answer_from_record(&mut self, ask: StepAsk, place: u64, returned: OperatorReturned) {
        let StepAsk { target, task, answer, .. } = ask;
        let recorded = self.ledger.progress().step_by_run(&returned.run);
        if recorded.is_some_and(|step| step.dispatched.unrecorded) {
            self.tell_recorded(place, answer, recorded::read_returned_answer(returned));
            return;
        }
        let Some(orchestrator) = self.orchestrator.clone() else { return };
        let (log, mut context) = (Arc::clone(&self.log), self.below(&orchestrator));
        context.run = Some(returned.run.clone());
        (context.goes_on, context.is_recorded) = (true, true);
        self.underway.recalled.insert(place, None);
        self.underway.push(async move {
            let result = match returned.outcome {
                Outcome::Failed => Err(recorded::failure(&*log, &returned).await),
                _ => dispatch_target(&*orchestrator, target, task, context).await,
            };
            Settled::Recalled(place, answer, result)
        });
    }

    pub(super) fn take_settled(&mut self, settled: Settled) -> Result<(), Halt> {
        match settled {
            Settled::Ended(run, result) => self.step_ended(&run, result),
            Settled::Recalled(place, answer, result) => {
                self.tell_recorded(place, answer, result);
                Ok(())
            }
            Settled::More(run, more, answer) => {
                self.ledger.note(BudgetGranted::new(run, more))?;
                self.tell(answer, more);
                Ok(())
            }
            // Nothing waits for the step any more.
            Settled::Refilled(ask, ..) if self.underway.is_closing() || ask.answer.is_closed() => {
                Ok(())
            }
            Settled::Refilled(ask, path, Ok(())) => self.begin_step(ask, path),
            Settled::Refilled(ask, path, Err(code)) => {
                let error = CallerBudgetExhausted::new_error(ask.target.name(), code);
                self.refuse(*ask, path, &error)
            }
        }
    }

    fn step_ended(&mut self, run: &RunId, result: Result<Answer, OrchError>) -> Result<(), Halt> {
        let Some(step) = self.underway.take(run) else { return Ok(()) };
        let waits = result.as_ref().is_ok_and(|answer| answer.stop == Stop::WaitingApproval);
        if waits && self.books.leaves() {
            // The workflow is suspended with it: its code waits until it is dropped.
            self.underway.left.push(step);
            self.books.end(run, result.as_ref().ok(), true);
            return Ok(());
        }
        self.books.end(run, result.as_ref().ok(), false);
        let result = match waits {
            true => {
                Err(OperatorError::from_failure(WaitsForNothing(Arc::clone(&step.operator))).into())
            }
            false => result,
        };
        let used = self.books.used_by(run);
        let of = (&step.operator, run);
        let mut returned = self.build_returned(of, used, result.as_ref(), step.unrecorded);
        returned.superseded = step.answer.is_none() && returned.outcome == Outcome::Cancelled;
        self.ledger.note(returned.clone())?;
        if let Some(answer) = step.answer {
            // The code gets the same failure live as later from the record.
            let result = match result {
                Err(_) => Err(recorded::noted_failure(&returned)),
                Ok(_) if step.unrecorded => recorded::read_returned_answer(returned),
                Ok(answer) => Ok(answer),
            };
            drop(answer.send(result));
        }
        Ok(())
    }

    /// Returns the end of a child run, with its answer if it has no record of its own.
    fn build_returned(
        &self,
        (operator, run): (&Arc<str>, &RunId),
        used: Usage,
        result: Result<&Answer, &OrchError>,
        unrecorded: bool,
    ) -> OperatorReturned {
        let (outcome, reason) = match result {
            Ok(answer) => (answer.stop.outcome(), answer.stop.reason()),
            Err(error) => (Outcome::Failed, Some(Code::new(error.code()))),
        };
        let (operator, run) = (Arc::clone(operator), run.clone());
        let used = self.ledger.progress().used_since(&run, &used);
        let mut returned = OperatorReturned::new(operator, run, outcome, reason, used);
        match result {
            Ok(answer) if unrecorded => {
                let output = JsonText::from(answer.output.clone());
                returned.output = Some(self.redactor.redact_held_json(output));
            }
            Ok(_) => {}
            Err(error) => {
                let facts = error.facts();
                returned.retry = Some(facts.retry_facts());
                returned.effect = Some(facts.effect);
                returned.messages = recorded::messages(error, &self.redactor);
            }
        }
        returned
    }

    pub(super) fn note_attempt(&mut self, run: &RunId, attempt: u32) -> Result<(), Halt> {
        let step = self.ledger.progress().step_by_run(run);
        let before = step.map(|step| &step.dispatched).filter(|it| it.attempt < attempt);
        let Some(mut dispatched) = before.cloned() else { return Ok(()) };
        dispatched.attempt = attempt;
        Ok(self.ledger.note(dispatched)?)
    }

    pub(super) fn note_wait(&mut self, run: &RunId, waiting: &Waiting) -> Result<(), Halt> {
        let Some(step) = self.ledger.progress().step_by_run(run) else { return Ok(()) };
        let (r#for, approvals) = (waiting.r#for, waiting.approvals.clone());
        if step.waits.as_ref() == Some(&(r#for, approvals.clone())) {
            return Ok(());
        }
        let operator = Arc::clone(&step.dispatched.operator);
        Ok(self.ledger.note(OperatorWaiting::new(operator, run.clone(), r#for, approvals))?)
    }

    /// Gives a child run more budget; grants made before its process died are in the record.
    pub(super) fn give_more(
        &mut self,
        run: RunId,
        given: u32,
        answer: oneshot::Sender<Option<Allowance>>,
    ) -> Result<(), Halt> {
        let Some(step) = self.ledger.progress().step_by_run(&run) else { return Ok(()) };
        let place = usize::try_from(given).unwrap_or(usize::MAX);
        if let Some(granted) = step.grants.get(place).copied() {
            self.tell(answer, granted);
            return Ok(());
        }
        self.note_wait(&run, &Waiting::new(WaitFor::Budget, Vec::new()))?;
        let below = ChildCaller { books: Arc::clone(&self.books), run: run.clone() };
        self.underway.push(async move { Settled::More(run, below.more(given).await, answer) });
        Ok(())
    }
}

pub(super) async fn dispatch_target(
    orchestrator: &dyn Orchestrator,
    target: StepTarget,
    task: layer0::operator::Task,
    context: Context,
) -> Result<Answer, OrchError> {
    match target {
        StepTarget::Named(name) => orchestrator.dispatch(&name, task, context).await,
        StepTarget::AtHand(operator) => orchestrator.perform(operator, task, context).await,
    }
}

/// Failure of a step that answers that it waits, but did not report the reason to its workflow: nothing would resume
/// it.
///
/// Retry: never. Effect: unknown.
#[derive(Debug, Error)]
#[error("`{0}` waits, and did not say for what")]
struct WaitsForNothing(Arc<str>);

impl Failure for WaitsForNothing {
    fn facts(&self) -> Facts {
        Facts::never(code::OPERATOR_NON_RETRYABLE, Effect::Unknown)
    }
}
