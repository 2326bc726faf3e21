//! The end of a run: guards, budgets, people, hooks, and the one last event.

use std::sync::Arc;

use layer0::event::{
    Actor, BudgetExhausted, GuardTripped, RunFailed, RunFinished, SignalReceived, ToolResponded,
};
use layer0::id::CallId;
use layer0::message::Message;
use layer0::stop::Stop;
use layer0::text::MAY_HAVE_ACTED;
use layer0::{Code, Timestamp, code};

use super::{BUDGET_CANCELLED, MachineState};
use crate::budget::ExhaustedBudget;
use crate::failure::FailureCause;
use crate::phase::RunPhase;
use crate::phase::batch::CallBatch;
use crate::phase::paused::{Paused, PausedStep, PlannedEnd, Stopped};

impl MachineState {
    /// Returns the time at which the time budget is used up.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let max = self.meter.budget().max_wall_ms?;
        Some(self.clock.after_ms(max))
    }

    /// Records that a guard found the model stuck, with the evidence in the cause.
    pub(super) fn trip(&mut self, cause: u64, failure: &FailureCause) -> u64 {
        let (count, limit, signature, text_hash) = match failure {
            FailureCause::Loop { signature, count, limit } => {
                (u64::from(*count), *limit, Some(Arc::clone(signature)), None)
            }
            FailureCause::Stagnation { text_hash, count, limit } => {
                (u64::from(*count), *limit, None, Some(Arc::clone(text_hash)))
            }
            FailureCause::ParallelToolLimit { count, limit } => {
                (u64::try_from(*count).unwrap_or(u64::MAX), *limit, None, None)
            }
            FailureCause::MaxIterations(max) => (u64::from(*max), *max, None, None),
            FailureCause::Aborted { .. }
            | FailureCause::ContextExceeded
            | FailureCause::CrashLoop { .. }
            | FailureCause::HookRejected { .. }
            | FailureCause::InputInvalid(_)
            | FailureCause::InvalidResponse(_)
            | FailureCause::OutputInvalid(_)
            | FailureCause::Model { .. } => return cause,
        };
        let reason = failure.code();
        let guard = Arc::from(reason.as_str().trim_start_matches("guard."));
        let message = failure.chain().concat();
        let mut tripped = GuardTripped::new(reason, guard, count, u64::from(limit), message);
        (tripped.signature, tripped.text_hash) = (signature, text_hash);
        self.append(Actor::Machine, Some(cause), tripped)
    }

    /// Ends a run without open steps because a budget is used up.
    pub(super) fn exhaust(&mut self, cause: u64, exhausted: &ExhaustedBudget) -> RunPhase {
        self.exhaust_in(&mut RunPhase::New, cause, exhausted)
    }

    /// Ends the run because a budget is used up; open calls are answered.
    pub(super) fn exhaust_in(
        &mut self,
        phase: &mut RunPhase,
        cause: u64,
        exhausted: &ExhaustedBudget,
    ) -> RunPhase {
        let reason = Code::new(exhausted.reason);
        let event = BudgetExhausted::new(
            reason.clone(),
            exhausted.reason.trim_start_matches("budget."),
            exhausted.limit.clone(),
            exhausted.used.clone(),
            exhausted.text(),
        );
        let seq = self.append(Actor::Machine, Some(cause), event);
        self.answer_open(phase, seq, BUDGET_CANCELLED);
        let output = Arc::clone(self.conversation.last_text());
        self.finish(seq, Stopped::new(Stop::BudgetExhausted { reason }, output))
    }

    /// Stops the run: every open call is answered, and the last text of the model is kept.
    pub(super) fn cancel(&mut self, phase: &mut RunPhase, signal: SignalReceived) -> RunPhase {
        let seq = self.append(Actor::Person, None, signal);
        self.answer_open(phase, seq, layer0::text::CANCELLED);
        let output = Arc::clone(self.conversation.last_text());
        self.finish(seq, Stopped::new(Stop::Cancelled, output))
    }

    /// Answers the calls without an answer; late answers are refused as stale.
    pub(super) fn answer_open(&mut self, phase: &mut RunPhase, cause: u64, text: &str) {
        match phase {
            RunPhase::Hooking(Paused { step: PausedStep::Read(answer), .. }) => {
                self.answer_unread(answer, cause, text);
            }
            RunPhase::Working(batch) => self.answer_batch(batch, cause, text),
            _ => {}
        }
    }

    pub(super) fn answer_batch(&mut self, batch: &mut CallBatch, cause: u64, text: &str) {
        for (place, answer) in batch.settled_calls() {
            // A hook that wants to stop the run is too late: the run is ending.
            let _ = self.answer_call(batch, place, Actor::Machine, cause, answer);
        }
        let asked = batch.end_all_asking();
        let may_have_acted = self.may_have_acted(batch);
        for answered in batch.give_up() {
            let message = answered.unwrap_or_else(|(id, tool)| {
                let has_begun = may_have_acted.contains(&id);
                let text = if has_begun { MAY_HAVE_ACTED } else { text };
                let message = Message::tool(id.clone(), text, true);
                let cancelled = ToolResponded::refusal(id, tool, code::TOOL_CANCELLED, text);
                if has_begun {
                    self.note_outcome(&cancelled);
                }
                self.append(Actor::Machine, Some(cause), cancelled);
                message
            });
            self.conversation.push(message);
        }
        self.end_asking(asked, &Code::new(code::TOOL_CANCELLED));
    }

    /// Returns the open calls that may have begun and are not safe to repeat. Calls begin in the order of their
    /// requests, as many at once as the limits allow; a call that waits for child runs makes room for another one.
    fn may_have_acted(&self, batch: &CallBatch) -> Vec<CallId> {
        let has_dispatched =
            |id: &CallId| self.meter.open_dispatches().iter().any(|open| open.call_id == *id);
        let mut open: Vec<_> = batch.requested_calls().collect();
        open.sort_unstable_by_key(|(requested, ..)| *requested);
        let waiting = open.iter().filter(|(_, id, _)| has_dispatched(id)).count();
        let limit = self.definition.limits.max_concurrent_tools;
        let places = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(waiting);
        let begun = open.into_iter().take(places);
        let may_have_acted = begun.filter(|(_, id, tool)| self.may_act(id, tool));
        may_have_acted.map(|(_, id, _)| id.clone()).collect()
    }

    /// Ends the run; the output of a completed or incomplete run is first written to the memory.
    pub(super) fn finish(&mut self, cause: u64, stopped: Stopped) -> RunPhase {
        let is_remembered = matches!(stopped.stop, Stop::Completed | Stop::Incomplete { .. });
        if !(is_remembered && self.definition.memory) {
            return self.end(cause, PlannedEnd::Stopped(stopped));
        }
        self.write_memory(&stopped.output);
        RunPhase::Memorizing(stopped)
    }

    /// Ends the run as failed.
    pub(super) fn fail(&mut self, cause: u64, failure: FailureCause) -> RunPhase {
        self.end(cause, PlannedEnd::Failed(failure))
    }

    /// Ends the run after its last hooks.
    pub(super) fn end(&mut self, cause: u64, ending: PlannedEnd) -> RunPhase {
        self.conversation.begin_if_empty(&self.definition);
        self.clock.end_waiting();
        self.pause_before(cause, PausedStep::End(ending))
    }

    /// Writes the one last event.
    pub(super) fn conclude(&mut self, cause: u64, ending: &PlannedEnd) -> RunPhase {
        match ending {
            PlannedEnd::Stopped(stopped) => self.record_stop(cause, stopped),
            PlannedEnd::Failed(failure) => self.record_failure(cause, failure),
        }
        RunPhase::Done(ending.finish())
    }

    fn record_stop(&mut self, cause: u64, stopped: &Stopped) {
        let Stopped { stop, output, unknown_reason } = stopped;
        let reason = stop.reason();
        let entry = reason.as_ref().and_then(|reason| code::find(reason.as_str()));
        let message = entry.map(|entry| match unknown_reason {
            Some(word) => format!("{} Its word: `{word}`.", entry.meaning).into(),
            None => Arc::from(entry.meaning),
        });
        let mut finished = RunFinished::new(stop.outcome(), Arc::clone(output), self.usage());
        (finished.reason, finished.message) = (reason, message);
        self.append(Actor::Machine, Some(cause), finished);
    }

    fn record_failure(&mut self, cause: u64, failure: &FailureCause) {
        let chain = failure.chain();
        let mut failed = RunFailed::new(failure.code(), chain, self.usage());
        failed.retry = failure.retry_facts();
        self.append(Actor::Machine, Some(cause), failed);
    }
}
