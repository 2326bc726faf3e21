//! What a run has used, and what it may still use.

use std::sync::Arc;
use std::time::Duration;

use layer0::event::ModelAttempted;
use layer0::id::{CallId, RunId};
use layer0::usage::{Allowance, BudgetIncrease, Usage};
use layer0::{Code, code};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, Exhausted, Price};
use crate::definition::AgentDefinition;
use crate::io::Misuse;

/// How many executions stay with the caller for each of its tools that is running: as many as the
/// runtime tries one again by default.
pub(crate) const RETRIES_KEPT: u32 = 2;

/// The books of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meter {
    /// What the run may use: its agent's budget, or less where its caller left it less.
    budget: Budget,
    price: Option<Price>,
    /// What the run itself has used; time aside, which the clock counts.
    own: Usage,
    /// What the runs below it that returned have used.
    below: Usage,
    /// The dispatch that has not returned; there is at most one at a time.
    open: Option<Dispatch>,
}

/// A run that was dispatched and has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The operator.
    pub operator: Arc<str>,
    /// Its run.
    pub run: RunId,
    /// The call it serves.
    pub call_id: CallId,
    /// What it may use.
    pub allowance: Allowance,
    /// The seq of its record.
    pub(crate) requested: u64,
}

/// What a run that is about to be dispatched may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// Of the caller's budget.
    pub allowance: Allowance,
    /// Of the caller's time; `None` without bound.
    pub time: Option<Duration>,
}

impl Grant {
    pub(crate) const fn new(allowance: Allowance, time: Option<Duration>) -> Self {
        Self { allowance, time }
    }
}

/// Says that a caller has nothing to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NothingLeft {
    /// The code of the budget.
    pub reason: Code,
    /// The budget for people.
    pub message: String,
}

impl From<Exhausted> for NothingLeft {
    fn from(exhausted: Exhausted) -> Self {
        Self { reason: Code::new(exhausted.reason), message: exhausted.text() }
    }
}

impl Meter {
    pub(crate) fn new(definition: &AgentDefinition) -> Self {
        let free = |is_known: bool| {
            let mut usage = Usage::default();
            usage.cost_usd = is_known.then_some(0.0);
            usage
        };
        Self {
            budget: definition.budget,
            price: definition.price,
            own: free(definition.price.is_some()),
            // Nothing was dispatched, which costs nothing.
            below: free(true),
            open: None,
        }
    }

    /// Lets the run use no more than its caller left it.
    pub(crate) fn limit(&mut self, allowance: Option<&Allowance>, time: Option<Duration>) {
        self.budget = self.budget.within(allowance, time);
    }

    /// Lets the run use more than until now.
    pub(crate) fn increase(&mut self, by: &BudgetIncrease) {
        self.budget = self.budget.increased(by);
    }

    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns what was used until now, with all that was dispatched and has returned.
    pub(crate) fn usage(&self, wall_ms: u64) -> Usage {
        let mut usage = self.own;
        usage.wall_ms = wall_ms;
        usage.add_dispatched(&self.below);
        usage
    }

    /// Returns the number of the model call that was made last.
    pub(crate) const fn model_calls(&self) -> u32 {
        self.own.model_calls
    }

    /// Counts a model call; a resend has the number of its call.
    pub(crate) const fn begin_model_call(&mut self, call: u32) {
        self.own.model_calls = call;
    }

    /// Counts an attempt with what it used.
    pub(crate) fn count_attempt(&mut self, attempted: &ModelAttempted) {
        self.count_lost_attempts(1);
        let billed = attempted.usage.unwrap_or_default();
        self.own.add_tokens(billed);
        let own_cost = || self.price.map(|price| price.of_attempt(&billed));
        if let Some(cost) = attempted.cost_nanousd.or_else(own_cost) {
            self.own.add_cost(cost);
        }
    }

    /// Counts attempts of which nothing else is known.
    pub(crate) const fn count_lost_attempts(&mut self, attempts: u32) {
        self.own.model_attempts = self.own.model_attempts.saturating_add(attempts);
    }

    /// Counts executions that begin, first ones and others.
    pub(crate) const fn count_executions(&mut self, executions: u32) {
        self.own.tool_calls = self.own.tool_calls.saturating_add(executions);
    }

    /// Returns the number of the run's next execution: 1, 2, ….
    pub(crate) const fn next_execution(&self) -> u32 {
        self.own.tool_calls.saturating_add(1)
    }

    /// Returns how many executions may still begin; those that the open dispatch may use are not
    /// among them.
    pub(crate) fn executions_left(&self, events: u64) -> u32 {
        let promised = self.open.as_ref().and_then(|open| open.allowance.tool_calls).unwrap_or(0);
        self.budget.executions_left(&self.usage(0), promised, events)
    }

    /// Refuses an execution, first or again, that the budget does not allow.
    pub(crate) fn check_execution(&self, event: &'static str) -> Result<(), Misuse> {
        match self.budget.left(&self.usage(0)).tool_calls {
            Some(0) => {
                Err(Misuse::Unexpected { event, state: "no execution is left of the budget" })
            }
            _ => Ok(()),
        }
    }

    /// Returns what a run below may use of what is left, less one model call and the executions that
    /// are kept for other calls.
    pub(crate) fn allowance_below(
        &self,
        wall_ms: u64,
        events: u64,
        kept: u32,
        is_priced: bool,
    ) -> Result<Allowance, NothingLeft> {
        let (usage, budget) = (self.usage(wall_ms), &self.budget);
        if let Some(exhausted) = budget.for_model(&usage, events) {
            return Err(exhausted.into());
        }
        if budget.max_cost_usd.is_some() && !is_priced {
            let message = "the caller has a cost budget, and what the run will cost is not known";
            return Err(NothingLeft {
                reason: Code::new(code::ORCH_PRICE_UNKNOWN),
                message: message.to_owned(),
            });
        }
        let mut allowance = budget.left(&usage);
        if let Some(left) = &mut allowance.model_calls {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Err(budget.last_model_call(&usage).into());
            }
        }
        if let Some(left) = &mut allowance.tool_calls {
            *left = left.saturating_sub(kept);
        }
        Ok(allowance)
    }

    pub(crate) const fn open_dispatch(&self) -> Option<&Dispatch> {
        self.open.as_ref()
    }

    pub(crate) fn begin_dispatch(&mut self, dispatch: Dispatch) {
        self.open = Some(dispatch);
    }

    /// Counts what the open dispatch used, and returns the seq of its record.
    pub(crate) fn end_dispatch(&mut self, usage: &Usage) -> Option<u64> {
        self.below.add_dispatched(usage);
        self.open.take().map(|open| open.requested)
    }

    /// Forgets a dispatch that belongs to another run.
    pub(crate) fn forget_dispatch(&mut self) {
        self.open = None;
    }

    /// Refuses the answer of a call whose dispatch has not returned: what it used would be lost.
    pub(crate) fn check_answer(&self, id: &CallId) -> Result<(), Misuse> {
        match &self.open {
            Some(open) if open.call_id == *id => Err(Misuse::Unexpected {
                event: "tool.responded",
                state: "what it dispatched has not returned",
            }),
            _ => Ok(()),
        }
    }

    /// Refuses the return of a run that was not dispatched.
    pub(crate) fn check_returned(&self, operator: &str, run: &RunId) -> Result<(), Misuse> {
        match &self.open {
            Some(open) if open.run == *run && *open.operator == *operator => Ok(()),
            _ => Err(Misuse::Unexpected {
                event: "operator.returned",
                state: "no such run was dispatched",
            }),
        }
    }
}
