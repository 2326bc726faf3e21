//! The usage and budget of a run.

use std::sync::Arc;
use std::time::Duration;

use layer0::event::{ModelAttempted, OperatorWaiting, WaitFor};
use layer0::id::{ApprovalId, CallId, RunId};
use layer0::usage::{Allowance, BudgetIncrease, Usage, nanousd};
use layer0::{Code, code};
use serde::{Deserialize, Serialize};

use crate::budget::{Budget, ExhaustedBudget};
use crate::definition::AgentDefinition;
use crate::io::Misuse;
use crate::price::Price;

/// The usage and budget of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meter {
    /// Effective budget: the agent's budget, or less if the caller's allowance is smaller.
    budget: Budget,
    /// The agent's budget within the caller's time, with all increases.
    agents: Budget,
    /// Time limit of the caller.
    time: Option<Duration>,
    /// Increases of the budget when the run was reopened.
    increases: Vec<BudgetIncrease>,
    /// Allowance from the caller, with later grants.
    allowance: Option<Allowance>,
    /// Number of answers to requests for more.
    grants: u32,
    /// Whether the caller has nothing left.
    is_final: bool,
    price: Option<Price>,
    /// Usage of the run itself, except time, which the clock counts.
    own: Usage,
    /// Usage of the child runs that returned.
    below: Usage,
    /// Depth of the run below its root.
    depth: u32,
    /// Dispatches that have not returned, in the order of their start.
    open: Vec<ChildDispatch>,
}

/// A child run that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildDispatch {
    /// Name of its operator.
    pub operator: Arc<str>,
    /// Id of the child run.
    pub run: RunId,
    /// The call that it serves.
    pub call_id: CallId,
    /// Number of the attempt: 1, 2, ….
    pub attempt: u32,
    /// SHA-256 of its input, in hex.
    pub input_digest: Arc<str>,
    /// Its allowance, with later grants.
    pub allowance: Allowance,
    /// Grants since it began; `None` if nothing was left.
    pub grants: Vec<Option<Allowance>>,
    /// Its wait, if it only waits.
    pub waits: Option<ChildWait>,
    /// Whether its run keeps no record.
    pub unrecorded: bool,
    /// Whether it has reported anything since it began, so that its record exists.
    pub is_known: bool,
    /// Upper bound of its allowance with all grants.
    pub at_most: Option<Allowance>,
    /// The seq of its record.
    pub(crate) requested: u64,
}

/// The wait of a child run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildWait {
    /// Reason of the wait.
    pub r#for: WaitFor,
    /// Approvals that people have to decide in it and in its child runs.
    pub approvals: Vec<ApprovalId>,
}

/// The grant of a child run that is about to be dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// Share of the caller's budget.
    pub allowance: Allowance,
    /// Share of the caller's time; no bound if `None`.
    pub time: Option<Duration>,
}

impl Grant {
    /// Returns a grant.
    #[must_use]
    pub const fn new(allowance: Allowance, time: Option<Duration>) -> Self {
        Self { allowance, time }
    }

    /// Returns the grant with at most this budget.
    ///
    /// # Errors
    ///
    /// [`NoBudgetLeft`], naming the budget that would be used up.
    pub fn at_most(self, bound: &Allowance) -> Result<Self, NoBudgetLeft> {
        let allowance = self.allowance.least(bound);
        match allowance.used_up() {
            Some(reason) => Err(NoBudgetLeft::in_the_task(reason)),
            None => Ok(Self { allowance, ..self }),
        }
    }
}

/// Error of a caller that has no budget to give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NoBudgetLeft {
    /// Code of the budget.
    pub reason: Code,
    /// Message for people.
    pub message: String,
    /// Whether it is final, whatever other runs give back.
    #[serde(default)]
    pub is_final: bool,
}

impl NoBudgetLeft {
    /// Returns the error for a child run whose task allows no more.
    fn in_the_task(reason: &'static str) -> Self {
        let budget = reason.trim_start_matches("budget.").replace('_', " ");
        let message = format!("its task allows nothing more of the {budget}");
        Self { reason: Code::new(reason), message, is_final: true }
    }

    /// Returns the error with this code and message for a child run that does not start; it is final.
    #[must_use]
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason: Code::new(reason), message: message.into(), is_final: true }
    }

    /// Returns the error for a child run that would exceed the maximum depth.
    #[must_use]
    pub fn too_deep(depth: u32, max: u32) -> Self {
        let message = format!("it would be {depth} levels deep, {max} are allowed");
        Self { reason: Code::new(code::ORCH_DEPTH), message, is_final: true }
    }
}

impl From<ExhaustedBudget> for NoBudgetLeft {
    fn from(exhausted: ExhaustedBudget) -> Self {
        Self { reason: Code::new(exhausted.reason), message: exhausted.text(), is_final: false }
    }
}

impl Meter {
    pub(crate) fn new(definition: &AgentDefinition) -> Self {
        let free = |is_known| if is_known { Usage::free() } else { Usage::default() };
        Self {
            budget: definition.budget,
            agents: definition.budget,
            time: None,
            increases: Vec::new(),
            allowance: None,
            grants: 0,
            is_final: false,
            price: definition.price,
            own: free(definition.price.is_some()),
            // Without dispatches the cost is zero.
            below: free(true),
            depth: 0,
            open: Vec::new(),
        }
    }

    /// Limits the run to the allowance and time of its caller.
    pub(crate) fn limit(
        &mut self,
        depth: u32,
        allowance: Option<&Allowance>,
        time: Option<Duration>,
        has_caller: bool,
    ) {
        self.depth = depth;
        self.is_final = !has_caller;
        self.time = time;
        self.agents = self.agents.within(None, time);
        self.allowance = allowance.copied();
        self.budget = self.agents.within(allowance, None);
    }

    /// Adds a grant of the caller; `None` if the caller has nothing left.
    pub(crate) fn take_grant(&mut self, more: Option<&Allowance>) {
        self.grants = self.grants.saturating_add(1);
        let Some(more) = more else {
            self.is_final = true;
            return;
        };
        self.allowance = self.allowance.map(|given| given.plus(more));
        self.budget = self.agents.within(self.allowance.as_ref(), None);
    }

    /// Returns the number of answers of the caller to requests for more.
    pub(crate) const fn grants(&self) -> u32 {
        self.grants
    }

    /// Returns whether only the caller's allowance is used up, and the caller may give more.
    pub(crate) fn can_be_given(&self, usage: &Usage, events: u64) -> bool {
        self.allowance.is_some() && !self.is_final && self.agents.for_model(usage, events).is_none()
    }

    /// Returns the number of executions left of the agent's own budget.
    pub(crate) fn own_executions_left(&self, events: u64) -> u32 {
        self.agents.executions_left(&self.usage_without_time(), 0, events)
    }

    /// Increases the budget.
    pub(crate) fn increase(&mut self, by: &BudgetIncrease) {
        self.agents = self.agents.with_increase(by);
        self.increases.push(*by);
        self.allowance = self.allowance.map(|given| given.plus(&to_added_allowance(by)));
        self.budget = self.agents.within(self.allowance.as_ref(), None);
    }

    /// Adopts the budget and the price of another definition of its agent.
    pub(crate) fn adopt(&mut self, definition: &AgentDefinition) {
        let own = definition.budget.within(None, self.time);
        self.agents = self.increases.iter().fold(own, Budget::with_increase);
        self.budget = self.agents.within(self.allowance.as_ref(), None);
        match (self.price, definition.price) {
            // The usage until now gets the new price too.
            (None, Some(price)) if self.own.cost_usd.is_none() => {
                self.own.cost_usd = Some(price.compute_cost(&self.own));
            }
            // The cost of further usage is unknown.
            (Some(_), None) => self.own.cost_usd = None,
            _ => {}
        }
        self.price = definition.price;
    }

    /// Returns whether the caller limits the cost of the run.
    pub(crate) fn has_cost_allowance(&self) -> bool {
        self.allowance.is_some_and(|allowance| allowance.cost_nanousd.is_some())
    }

    /// Returns the budget of the run after a reopening with this increase; that of its agent if its caller may give
    /// more.
    pub(crate) fn reopened_budget(&self, more: &BudgetIncrease) -> Budget {
        let agents = self.agents.with_increase(more);
        match self.allowance {
            Some(given) if self.is_final => {
                agents.within(Some(&given.plus(&to_added_allowance(more))), None)
            }
            _ => agents,
        }
    }

    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the usage until now, including child runs that have returned.
    pub(crate) fn usage(&self, wall_ms: u64) -> Usage {
        let mut usage = self.usage_without_time();
        usage.wall_ms = wall_ms;
        usage
    }

    fn usage_without_time(&self) -> Usage {
        let mut usage = self.own;
        usage.add_dispatched(&self.below);
        usage
    }

    /// Returns whether tokens of the run's own attempts were estimated.
    pub(crate) const fn has_estimates(&self) -> bool {
        self.own.estimated
    }

    /// Returns the number of the last model call.
    pub(crate) const fn model_calls(&self) -> u32 {
        self.own.model_calls
    }

    /// Counts a model call; a resend has the number of its call.
    pub(crate) const fn begin_model_call(&mut self, call: u32) {
        self.own.model_calls = call;
    }

    /// Counts an attempt with its usage.
    pub(crate) fn count_attempt(&mut self, attempted: &ModelAttempted) {
        self.count_lost_attempts(1);
        let billed = attempted.usage.unwrap_or_default();
        self.own.add_tokens(billed);
        self.own.estimated |= attempted.usage_estimated;
        let own_cost = || self.price.map(|price| price.of_attempt(&billed));
        if let Some(cost) = attempted.cost_nanousd.or_else(own_cost) {
            self.own.add_cost(cost);
        }
    }

    /// Counts attempts without known usage.
    pub(crate) const fn count_lost_attempts(&mut self, attempts: u32) {
        self.own.model_attempts = self.own.model_attempts.saturating_add(attempts);
    }

    /// Counts executions that begin, including repeated ones.
    pub(crate) const fn count_executions(&mut self, executions: u32) {
        self.own.tool_calls = self.own.tool_calls.saturating_add(executions);
    }

    /// Returns the number of the run's next execution: 1, 2, ….
    pub(crate) const fn next_execution(&self) -> u32 {
        self.own.tool_calls.saturating_add(1)
    }

    /// Returns the number of executions that may still begin, without those reserved for open dispatches.
    pub(crate) fn executions_left(&self, events: u64) -> u32 {
        let promised = self.open.iter().filter_map(|open| open.allowance.tool_calls);
        let promised = promised.fold(0_u32, u32::saturating_add);
        self.budget.executions_left(&self.usage_without_time(), promised, events)
    }

    /// Refuses an execution, first or repeated, that the budget does not allow.
    pub(crate) fn check_execution(&self, event: &'static str) -> Result<(), Misuse> {
        match self.budget.remaining_allowance(&self.usage_without_time()).tool_calls {
            Some(0) => {
                Err(Misuse::Unexpected { event, state: "no execution is left of the budget" })
            }
            _ => Ok(()),
        }
    }

    /// Returns the allowance of a child run: the rest, less one model call and the executions reserved for other calls,
    /// divided by the number of shares.
    pub(crate) fn allowance_below(
        &self,
        wall_ms: u64,
        events: u64,
        Shares { kept, shares, is_priced }: Shares,
    ) -> Result<Allowance, NoBudgetLeft> {
        let (usage, budget) = (self.usage(wall_ms), &self.budget);
        if let Some(max) = budget.max_depth.filter(|max| self.depth >= *max) {
            return Err(NoBudgetLeft::too_deep(self.depth.saturating_add(1), max));
        }
        if let Some(exhausted) = budget.for_model(&usage, events) {
            return Err(exhausted.into());
        }
        if budget.max_cost_usd.is_some() && !is_priced {
            let message = "the caller has a cost budget, and what the run will cost is not known";
            return Err(NoBudgetLeft::new(code::ORCH_PRICE_UNKNOWN, message));
        }
        let given = self.open.iter().map(|open| &open.allowance);
        let mut left = given.fold(budget.remaining_allowance(&usage), Allowance::less);
        left.model_calls = left.model_calls.map(|left| left.saturating_sub(1));
        left.tool_calls = left.tool_calls.map(|left| left.saturating_sub(kept));
        let share = left.part(shares);
        // A run can still answer without executions.
        match share.used_up() {
            Some(reason) => Err(budget.nothing_left(reason, &usage).into()),
            None => Ok(share),
        }
    }

    /// Returns the dispatches that have not returned.
    pub(crate) fn open_dispatches(&self) -> &[ChildDispatch] {
        &self.open
    }

    /// Counts a dispatch, or its next attempt.
    pub(crate) fn begin_dispatch(&mut self, dispatch: ChildDispatch) {
        match self.find(&dispatch.run) {
            Some(open) => {
                (open.attempt, open.waits) = (dispatch.attempt, None);
                open.requested = dispatch.requested;
            }
            None => self.open.push(dispatch),
        }
    }

    /// Records that a child run only waits. Returns the seq of its dispatch.
    pub(crate) fn wait_below(&mut self, waiting: &OperatorWaiting) -> Option<u64> {
        let open = self.find(&waiting.run)?;
        let approvals = waiting.approvals.clone();
        (open.waits, open.is_known) = (Some(ChildWait { r#for: waiting.r#for, approvals }), true);
        Some(open.requested)
    }

    /// Records a grant to a child run. Returns the seq of its dispatch.
    pub(crate) fn grant_below(&mut self, run: &RunId, more: Option<&Allowance>) -> Option<u64> {
        let open = self.find(run)?;
        open.grants.push(more.copied());
        (open.waits, open.is_known) = (None, true);
        if let Some(more) = more {
            open.allowance = open.allowance.plus(more);
        }
        Some(open.requested)
    }

    /// Adds the usage of an open dispatch, and returns the dispatch, which is no longer open.
    pub(crate) fn end_dispatch(&mut self, run: &RunId, usage: &Usage) -> Option<ChildDispatch> {
        self.below.add_dispatched(usage);
        let place = self.open.iter().position(|open| open.run == *run)?;
        Some(self.open.remove(place))
    }

    /// Removes the dispatches that belong to another run.
    pub(crate) fn forget_dispatches(&mut self) {
        self.open.clear();
    }

    /// Refuses the answer of a call with a dispatch that has not returned: its usage would be lost.
    pub(crate) fn check_answer(&self, id: &CallId) -> Result<(), Misuse> {
        match self.open.iter().any(|open| open.call_id == *id) {
            true => Err(Misuse::Unexpected {
                event: "tool.responded",
                state: "what it dispatched has not returned",
            }),
            false => Ok(()),
        }
    }

    /// Refuses events about a run that was not dispatched, or has returned.
    pub(crate) fn check_open(
        &self,
        event: &'static str,
        run: &RunId,
    ) -> Result<&ChildDispatch, Misuse> {
        let state = "no such run was dispatched";
        let found = self.open.iter().find(|open| open.run == *run);
        found.ok_or(Misuse::Unexpected { event, state })
    }

    fn find(&mut self, run: &RunId) -> Option<&mut ChildDispatch> {
        self.open.iter_mut().find(|open| open.run == *run)
    }
}

/// Returns the addition to an allowance by an increase; an absent bound adds nothing.
fn to_added_allowance(by: &BudgetIncrease) -> Allowance {
    let mut more = Allowance::without_bounds();
    more.model_calls = Some(by.max_model_calls.unwrap_or_default());
    more.tool_calls = Some(by.max_tool_calls.unwrap_or_default());
    more.input_tokens = Some(by.max_input_tokens.unwrap_or_default());
    more.output_tokens = Some(by.max_output_tokens.unwrap_or_default());
    more.total_tokens = Some(by.max_total_tokens.unwrap_or_default());
    more.cost_nanousd = Some(nanousd(by.max_cost_usd.unwrap_or_default()));
    more
}

/// The division of the rest of a budget.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Executions reserved for the caller.
    pub(crate) kept: u32,
    /// Number of parts.
    pub(crate) shares: u32,
    /// Whether the cost of the child run will be known.
    pub(crate) is_priced: bool,
}
