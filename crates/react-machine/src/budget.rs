//! The budget of a run. Bounds are exact: counted items stop at their number, tokens and money at the response that
//! crossed it.

use std::time::Duration;

use layer0::code;
use layer0::usage::{Allowance, BudgetIncrease, Usage, dollars, nanousd};
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// The budget of a run; `None` means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Budget {
    /// Model attempts, including retries.
    pub max_model_calls: Option<u32>,
    /// Tool executions, including built-in tools.
    pub max_tool_calls: Option<u32>,
    /// Prompt tokens.
    pub max_input_tokens: Option<u64>,
    /// Answer tokens.
    pub max_output_tokens: Option<u64>,
    /// Prompt and answer tokens.
    pub max_total_tokens: Option<u64>,
    /// US dollars; needs a [`Price`](crate::Price).
    pub max_cost_usd: Option<f64>,
    /// Time from the start, in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// Log events; answers and the end of the run are not refused.
    pub max_events: Option<u64>,
    /// Maximum depth of child runs; the first run of a task is at depth 0.
    pub max_depth: Option<u32>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max_model_calls: Some(50),
            max_tool_calls: Some(200),
            max_input_tokens: None,
            max_output_tokens: None,
            max_total_tokens: Some(2_000_000),
            max_cost_usd: None,
            max_wall_ms: Some(30 * 60 * 1_000),
            max_events: Some(10_000),
            max_depth: Some(8),
        }
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExhaustedBudget {
    pub(crate) reason: &'static str,
    pub(crate) limit: Number,
    pub(crate) used: Number,
}

impl ExhaustedBudget {
    fn count(reason: &'static str, limit: u64, used: u64) -> Self {
        Self { reason, limit: limit.into(), used: used.into() }
    }

    fn cost(limit: f64, used: f64) -> Self {
        // An amount that is not a number becomes 0.
        let number = |amount| Number::from_f64(amount).unwrap_or_else(|| 0.into());
        Self { reason: code::BUDGET_COST_USD, limit: number(limit), used: number(used) }
    }

    /// Returns a text for people.
    pub(crate) fn text(&self) -> String {
        format!("{} of {} used", self.used, self.limit)
    }
}

impl Budget {
    /// Returns the default budget: 50 model attempts, 200 tool executions, 2,000,000 tokens, 30 minutes, 10,000 events,
    /// depth 8.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backstop_react_machine::Budget;
    ///
    /// let budget = Budget::new().model_calls(20).wall(Duration::from_secs(120)).total_tokens(None);
    /// assert_eq!((budget.max_model_calls, budget.max_total_tokens), (Some(20), None));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bound of model attempts, including retries; `None` removes it. The same holds for the methods below.
    #[must_use]
    pub fn model_calls(mut self, model_calls: impl Into<Option<u32>>) -> Self {
        self.max_model_calls = model_calls.into();
        self
    }

    /// Sets the bound of tool executions, including built-in tools.
    #[must_use]
    pub fn tool_calls(mut self, tool_calls: impl Into<Option<u32>>) -> Self {
        self.max_tool_calls = tool_calls.into();
        self
    }

    /// Sets the bound of prompt tokens.
    #[must_use]
    pub fn input_tokens(mut self, input_tokens: impl Into<Option<u64>>) -> Self {
        self.max_input_tokens = input_tokens.into();
        self
    }

    /// Sets the bound of answer tokens.
    #[must_use]
    pub fn output_tokens(mut self, output_tokens: impl Into<Option<u64>>) -> Self {
        self.max_output_tokens = output_tokens.into();
        self
    }

    /// Sets the bound of prompt and answer tokens.
    #[must_use]
    pub fn total_tokens(mut self, total_tokens: impl Into<Option<u64>>) -> Self {
        self.max_total_tokens = total_tokens.into();
        self
    }

    /// Sets the bound of the cost, in US dollars; the agent needs a [`Price`](crate::Price).
    #[must_use]
    pub fn cost_usd(mut self, cost_usd: impl Into<Option<f64>>) -> Self {
        self.max_cost_usd = cost_usd.into();
        self
    }

    /// Sets the bound of log events.
    #[must_use]
    pub fn events(mut self, events: impl Into<Option<u64>>) -> Self {
        self.max_events = events.into();
        self
    }

    /// Sets the maximum depth of child runs.
    #[must_use]
    pub fn depth(mut self, depth: impl Into<Option<u32>>) -> Self {
        self.max_depth = depth.into();
        self
    }

    /// Sets the bound of the time from the start, to the millisecond.
    #[must_use]
    pub fn wall(mut self, wall: impl Into<Option<Duration>>) -> Self {
        self.max_wall_ms = wall.into().map(milliseconds);
        self
    }

    /// Returns the smaller of this budget and the caller's allowance and time, for each bound.
    #[must_use]
    pub(crate) fn within(mut self, allowance: Option<&Allowance>, time: Option<Duration>) -> Self {
        fn bound<T>(max: &mut Option<T>, given: Option<T>, least: fn(T, T) -> T) {
            *max = match (max.take(), given) {
                (Some(own), Some(given)) => Some(least(own, given)),
                (own, given) => own.or(given),
            };
        }
        if let Some(given) = allowance {
            bound(&mut self.max_model_calls, given.model_calls, u32::min);
            bound(&mut self.max_tool_calls, given.tool_calls, u32::min);
            bound(&mut self.max_input_tokens, given.input_tokens, u64::min);
            bound(&mut self.max_output_tokens, given.output_tokens, u64::min);
            bound(&mut self.max_total_tokens, given.total_tokens, u64::min);
            bound(&mut self.max_cost_usd, given.cost_nanousd.map(dollars), f64::min);
        }
        bound(&mut self.max_wall_ms, time.map(milliseconds), u64::min);
        self
    }

    /// Returns the budget with each bound increased.
    #[must_use]
    pub fn with_increase(mut self, by: &BudgetIncrease) -> Self {
        fn count(max: &mut Option<u32>, more: Option<u32>) {
            *max = max.map(|max| max.saturating_add(more.unwrap_or_default()));
        }
        fn amount(max: &mut Option<u64>, more: Option<u64>) {
            *max = max.map(|max| max.saturating_add(more.unwrap_or_default()));
        }
        count(&mut self.max_model_calls, by.max_model_calls);
        count(&mut self.max_tool_calls, by.max_tool_calls);
        amount(&mut self.max_input_tokens, by.max_input_tokens);
        amount(&mut self.max_output_tokens, by.max_output_tokens);
        amount(&mut self.max_total_tokens, by.max_total_tokens);
        amount(&mut self.max_wall_ms, by.max_wall_ms);
        amount(&mut self.max_events, by.max_events);
        count(&mut self.max_depth, by.max_depth);
        // Added in whole billionths, as costs are counted.
        let more = nanousd(by.max_cost_usd.unwrap_or_default());
        self.max_cost_usd = self.max_cost_usd.map(|max| dollars(nanousd(max).saturating_add(more)));
        self
    }

    /// Returns the difference by which this budget is smaller than `other`; absent where it is not.
    pub(crate) fn shortfall_against(&self, other: &Self) -> BudgetIncrease {
        fn count(max: Option<u32>, other: Option<u32>) -> Option<u32> {
            Some(other.unwrap_or(u32::MAX).saturating_sub(max?)).filter(|less| *less > 0)
        }
        fn amount(max: Option<u64>, other: Option<u64>) -> Option<u64> {
            Some(other.unwrap_or(u64::MAX).saturating_sub(max?)).filter(|less| *less > 0)
        }
        let nanos = |max: Option<f64>| max.map(nanousd);
        let mut less = BudgetIncrease::new();
        less.max_model_calls = count(self.max_model_calls, other.max_model_calls);
        less.max_tool_calls = count(self.max_tool_calls, other.max_tool_calls);
        less.max_input_tokens = amount(self.max_input_tokens, other.max_input_tokens);
        less.max_output_tokens = amount(self.max_output_tokens, other.max_output_tokens);
        less.max_total_tokens = amount(self.max_total_tokens, other.max_total_tokens);
        less.max_cost_usd =
            amount(nanos(self.max_cost_usd), nanos(other.max_cost_usd)).map(dollars);
        less.max_wall_ms = amount(self.max_wall_ms, other.max_wall_ms);
        less
    }

    /// Returns the rest of the bounds that a run shares with its child runs.
    pub(crate) fn remaining_allowance(&self, usage: &Usage) -> Allowance {
        let mut left = Allowance::without_bounds();
        left.model_calls = self.max_model_calls.map(|max| max.saturating_sub(usage.model_attempts));
        left.tool_calls = self.max_tool_calls.map(|max| max.saturating_sub(usage.tool_calls));
        left.input_tokens = self.max_input_tokens.map(|max| max.saturating_sub(usage.input_tokens));
        left.output_tokens =
            self.max_output_tokens.map(|max| max.saturating_sub(usage.output_tokens));
        left.total_tokens = self.max_total_tokens.map(|max| max.saturating_sub(usage.total_tokens));
        left.cost_nanousd = self
            .max_cost_usd
            .map(|max| nanousd(max).saturating_sub(nanousd(usage.cost_usd.unwrap_or_default())));
        left
    }

    /// Returns the first budget that leaves no room for another model call.
    pub(crate) fn for_model(&self, usage: &Usage, events: u64) -> Option<ExhaustedBudget> {
        self.for_attempt(usage)
            .or_else(|| self.used_up_wall_time(usage))
            .or_else(|| self.used_up_events(events))
    }

    /// Returns the first budget except time that leaves no room for another attempt.
    pub(crate) fn for_attempt(&self, usage: &Usage) -> Option<ExhaustedBudget> {
        self.used_up_model_calls(usage).or_else(|| self.after(usage, true))
    }

    /// Returns the first budget that was crossed, so that not even the tools requested by an answer run.
    pub(crate) fn find_crossed(&self, usage: &Usage, events: u64) -> Option<ExhaustedBudget> {
        self.after(usage, false)
            .or_else(|| self.used_up_wall_time(usage))
            .or_else(|| self.used_up_events(events))
    }

    /// Returns the error for a budget whose rest is needed by the run itself, or reserved for child runs.
    pub(crate) fn nothing_left(&self, reason: &'static str, usage: &Usage) -> ExhaustedBudget {
        let (limit, used) = match reason {
            code::BUDGET_MODEL_CALLS => {
                (self.max_model_calls.map(u64::from), u64::from(usage.model_attempts))
            }
            code::BUDGET_INPUT_TOKENS => (self.max_input_tokens, usage.input_tokens),
            code::BUDGET_OUTPUT_TOKENS => (self.max_output_tokens, usage.output_tokens),
            code::BUDGET_COST_USD => {
                let (limit, used) = (self.max_cost_usd, usage.cost_usd);
                let (limit, used) = (limit.unwrap_or_default(), used.unwrap_or_default());
                return ExhaustedBudget::cost(limit, used);
            }
            _ => (self.max_total_tokens, usage.total_tokens),
        };
        ExhaustedBudget::count(reason, limit.unwrap_or(u64::MAX), used)
    }

    fn used_up_model_calls(&self, usage: &Usage) -> Option<ExhaustedBudget> {
        let (limit, used) = (self.max_model_calls?, usage.model_attempts);
        (used >= limit)
            .then(|| ExhaustedBudget::count(code::BUDGET_MODEL_CALLS, limit.into(), used.into()))
    }

    pub(crate) fn used_up_tool_calls(&self, usage: &Usage) -> Option<ExhaustedBudget> {
        let (limit, used) = (self.max_tool_calls?, usage.tool_calls);
        (used >= limit)
            .then(|| ExhaustedBudget::count(code::BUDGET_TOOL_CALLS, limit.into(), used.into()))
    }

    pub(crate) fn used_up_wall_time(&self, usage: &Usage) -> Option<ExhaustedBudget> {
        let (limit, used) = (self.max_wall_ms?, usage.wall_ms);
        (used >= limit).then(|| ExhaustedBudget::count(code::BUDGET_WALL_TIME, limit, used))
    }

    pub(crate) fn used_up_events(&self, used: u64) -> Option<ExhaustedBudget> {
        let limit = self.max_events?;
        // Answers and the end of the run are not refused and not counted.
        (used >= limit).then(|| ExhaustedBudget::count(code::BUDGET_EVENTS, limit, limit))
    }

    /// Checks the bounds that are only known afterwards: reached (`>=`) before further use, crossed (`>`) otherwise.
    fn after(&self, usage: &Usage, reached: bool) -> Option<ExhaustedBudget> {
        let tokens = |reason, limit: Option<u64>, used: u64| {
            let limit = limit?;
            (used > limit || reached && used == limit)
                .then(|| ExhaustedBudget::count(reason, limit, used))
        };
        let cost = || {
            let (limit, used) = (self.max_cost_usd?, usage.cost_usd?);
            // Compared in whole billionths, the unit in which attempts and child runs receive the rest.
            let (above, at) = (nanousd(used) > nanousd(limit), nanousd(used) == nanousd(limit));
            (above || reached && at).then(|| ExhaustedBudget::cost(limit, used))
        };
        tokens(code::BUDGET_INPUT_TOKENS, self.max_input_tokens, usage.input_tokens)
            .or_else(|| {
                tokens(code::BUDGET_OUTPUT_TOKENS, self.max_output_tokens, usage.output_tokens)
            })
            .or_else(|| {
                tokens(code::BUDGET_TOTAL_TOKENS, self.max_total_tokens, usage.total_tokens)
            })
            .or_else(cost)
    }

    /// Returns the number of executions left, without the `promised` ones of child runs.
    pub(crate) fn executions_left(&self, usage: &Usage, promised: u32, events: u64) -> u32 {
        let used = usage.tool_calls.saturating_add(promised);
        let calls = self.max_tool_calls.map(|max| max.saturating_sub(used));
        let events = self
            .max_events
            .map(|max| u32::try_from(max.saturating_sub(events)).unwrap_or(u32::MAX));
        calls.into_iter().chain(events).min().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
