//! Reopening an ended run: its next episode.
//!
//! Completed steps stay completed. The beginning is repeated if it was not completed, hooks are called again, and the
//! count of the guard that ended the run restarts.

use std::sync::Arc;

use layer0::event::{Actor, RunReopened};
use layer0::stop::Stop;
use layer0::usage::BudgetIncrease;
use layer0::{Code, Timestamp, code};

use super::{Machine, MachineState, StartProgress};
use crate::failure::FailureCause;
use crate::io::Finish;
use crate::phase::RunPhase;
use crate::phase::paused::PausedStep;
use crate::reopen::{CONTINUE, NotReopenable};

impl Machine {
    /// Returns the fact that reopens the run, with a message to its model and an increase of its budget. If its end
    /// requires a message and none is given, the message is [`CONTINUE`].
    ///
    /// # Errors
    ///
    /// [`NotReopenable`] if the run has not ended, or its end does not allow it.
    pub fn reopening(
        &self,
        by: impl Into<Arc<str>>,
        message: Option<Arc<str>>,
        budget: Option<BudgetIncrease>,
    ) -> Result<RunReopened, NotReopenable> {
        let RunPhase::Done(finish) = &self.phase else { return Err(NotReopenable::Open) };
        let mut reopened = RunReopened::new(by, find_reason(finish));
        reopened.budget = budget.filter(|budget| !budget.is_empty()).map(Box::new);
        reopened.message = message;
        self.run.check_reopened(finish, &reopened)?;
        if reopened.message.is_none() && self.run.needs_a_word(finish) {
            reopened.message = Some(CONTINUE.into());
        }
        Ok(reopened)
    }

    /// Returns the part of its agent's budget that the caller withheld: a run whose caller has ended has a budget of
    /// its own.
    #[must_use]
    pub fn kept_by_the_caller(&self) -> BudgetIncrease {
        self.run.meter.budget().shortfall_against(&self.run.definition.budget)
    }
}

impl MachineState {
    /// Checks whether a run with this end can be reopened.
    pub(super) fn check_reopened(
        &self,
        finish: &Finish,
        reopened: &RunReopened,
    ) -> Result<(), NotReopenable> {
        let reason = find_reason(finish);
        if reopened.reason != reason {
            return Err(NotReopenable::OtherEnd(reopened.reason.clone()));
        }
        let Some(reason) = reason else {
            return match (self.is_copy_of_an_end, &reopened.message) {
                (false, _) => Err(NotReopenable::Completed),
                (true, None) => Err(NotReopenable::Silent),
                (true, Some(_)) => self.check_budget(None, reopened),
            };
        };
        if reason.as_str() == code::INPUT_INVALID {
            return Err(NotReopenable::Final(reason));
        }
        self.check_budget(Some(&reason), reopened)
    }

    /// Checks that there is room for another model call, and for more of what the run ended for.
    fn check_budget(
        &self,
        reason: Option<&Code>,
        reopened: &RunReopened,
    ) -> Result<(), NotReopenable> {
        let more = reopened.budget.as_deref().copied().unwrap_or_default();
        // A run whose caller may give more asks for it.
        let (budget, usage) = (self.meter.reopened_budget(&more), self.usage());
        let exhausted = match reason.map(Code::as_str) {
            Some(code::BUDGET_TOOL_CALLS) => budget.used_up_tool_calls(&usage),
            _ => None,
        };
        // The event that reopens the run counts.
        let exhausted = exhausted.or_else(|| budget.for_model(&usage, self.events() + 1));
        exhausted.map_or(Ok(()), |exhausted| Err(exhausted.into()))
    }

    /// Returns whether the model would otherwise read the same request as before the stop, or its own last words.
    fn needs_a_word(&self, finish: &Finish) -> bool {
        let was_stopped = match finish {
            Finish::Stopped { stop, .. } => {
                matches!(stop, Stop::Cancelled | Stop::Incomplete { .. })
            }
            Finish::Failed(failure) => matches!(
                failure,
                FailureCause::Loop { .. }
                    | FailureCause::MaxIterations(_)
                    | FailureCause::ParallelToolLimit { .. }
                    | FailureCause::Stagnation { .. }
            ),
        };
        let was_asked = self.meter.model_calls() > 0;
        was_asked && (was_stopped || self.conversation.ends_with_the_model())
    }

    /// Begins the next episode of a run with this end.
    pub(super) fn reopen(
        &mut self,
        finish: &Finish,
        ended: Timestamp,
        reopened: RunReopened,
    ) -> RunPhase {
        self.clock.skip_since(ended);
        self.outbox.begin_epoch();
        self.is_copy_of_an_end = false;
        // Dispatches ended with the calls that they served.
        self.meter.forget_dispatches();
        self.calls_before = self.meter.model_calls();
        if let Some(more) = &reopened.budget {
            self.meter.increase(more);
        }
        if let Finish::Failed(failure) = finish {
            self.guards.forgive(failure);
        }
        if let Some(text) = &reopened.message {
            self.conversation.add_further_input(text);
        }
        let seq = self.append(Actor::Person, None, reopened);
        if self.begun != StartProgress::Whole {
            self.conversation.take_back();
        }
        match self.begun {
            StartProgress::Nothing => self.pause_before(seq, PausedStep::Start),
            StartProgress::Admitted => self.remember(seq),
            StartProgress::Whole => self.next_turn(seq),
        }
    }
}

/// Returns the code of an end; `None` for a run that completed.
fn find_reason(finish: &Finish) -> Option<Code> {
    match finish {
        Finish::Stopped { stop, .. } => stop.reason(),
        Finish::Failed(failure) => Some(failure.code()),
    }
}
