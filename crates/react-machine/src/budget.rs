//! What a run may use. Nothing here is ever "a bit more": counted things stop at their number, tokens
//! and money at the response that crossed it.

use std::time::Duration;

use layer0::code;
use layer0::usage::{Allowance, TokenUsage, Usage, dollars, nanousd};
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// What a run may use; `None` is without bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Model attempts, retries included.
    pub max_model_calls: Option<u32>,
    /// Tool executions, built-in tools included.
    pub max_tool_calls: Option<u32>,
    /// Prompt tokens.
    pub max_input_tokens: Option<u64>,
    /// Answer tokens.
    pub max_output_tokens: Option<u64>,
    /// Prompt and answer tokens.
    pub max_total_tokens: Option<u64>,
    /// US dollars; needs a [`Price`].
    pub max_cost_usd: Option<f64>,
    /// Milliseconds from the start.
    pub max_wall_ms: Option<u64>,
    /// Log events; answers and the end of the run are not refused.
    pub max_events: Option<u64>,
    /// How many dispatches may be above this run; the first run of a task is at depth 0.
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

/// What tokens cost, in US dollars per million.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Prompt tokens.
    pub input_per_mtok: f64,
    /// Answer tokens.
    pub output_per_mtok: f64,
}

impl Price {
    /// Returns what tokens cost, in US dollars.
    #[must_use]
    pub fn of(self, usage: &Usage) -> f64 {
        dollars(self.nanousd(usage.input_tokens, usage.output_tokens))
    }

    /// Returns what the tokens of one attempt cost, in billionths of a US dollar.
    #[must_use]
    pub fn of_attempt(self, usage: &TokenUsage) -> u64 {
        self.nanousd(usage.input_tokens, usage.output_tokens)
    }

    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn nanousd(self, input_tokens: u64, output_tokens: u64) -> u64 {
        let cost =
            input_tokens as f64 * self.input_per_mtok + output_tokens as f64 * self.output_per_mtok;
        nanousd(cost / 1e6)
    }
}

/// A budget that is used up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exhausted {
    pub(crate) reason: &'static str,
    pub(crate) limit: Number,
    pub(crate) used: Number,
}

impl Exhausted {
    fn count(reason: &'static str, limit: u64, used: u64) -> Self {
        Self { reason, limit: limit.into(), used: used.into() }
    }

    /// Returns the budget for people.
    pub(crate) fn text(&self) -> String {
        format!("{} of {} used", self.used, self.limit)
    }
}

impl Budget {
    /// Returns the smaller of what the run's agent may use and what the run's caller left it.
    #[must_use]
    pub(crate) fn within(mut self, allowance: Option<&Allowance>, time: Option<Duration>) -> Self {
        fn least<T: PartialOrd>(own: Option<T>, given: Option<T>) -> Option<T> {
            match (own, given) {
                (Some(own), Some(given)) => Some(if given < own { given } else { own }),
                (own, given) => own.or(given),
            }
        }
        if let Some(given) = allowance {
            self.max_model_calls = least(self.max_model_calls, given.model_calls);
            self.max_tool_calls = least(self.max_tool_calls, given.tool_calls);
            self.max_input_tokens = least(self.max_input_tokens, given.input_tokens);
            self.max_output_tokens = least(self.max_output_tokens, given.output_tokens);
            self.max_total_tokens = least(self.max_total_tokens, given.total_tokens);
            self.max_cost_usd = least(self.max_cost_usd, given.cost_nanousd.map(dollars));
        }
        let ms = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.max_wall_ms = least(self.max_wall_ms, ms);
        self
    }

    /// Returns what is left of what counts for everything below a run too.
    pub(crate) fn left(&self, usage: &Usage) -> Allowance {
        let mut left = Allowance::unlimited();
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
    pub(crate) fn for_model(&self, usage: &Usage, events: u64) -> Option<Exhausted> {
        self.for_attempt(usage).or_else(|| self.wall_time(usage)).or_else(|| self.events(events))
    }

    /// Returns the first budget that leaves no room for another attempt, time aside.
    pub(crate) fn for_attempt(&self, usage: &Usage) -> Option<Exhausted> {
        self.model_calls(usage).or_else(|| self.after(usage, true))
    }

    /// Returns the first budget that was crossed, so that not even the tools an answer asks for run.
    pub(crate) fn crossed(&self, usage: &Usage, events: u64) -> Option<Exhausted> {
        self.after(usage, false).or_else(|| self.wall_time(usage)).or_else(|| self.events(events))
    }

    /// Says that what is left of the model calls is the run's own.
    pub(crate) fn last_model_call(&self, usage: &Usage) -> Exhausted {
        let limit = self.max_model_calls.unwrap_or(u32::MAX);
        Exhausted::count(code::BUDGET_MODEL_CALLS, limit.into(), usage.model_attempts.into())
    }

    fn model_calls(&self, usage: &Usage) -> Option<Exhausted> {
        let (limit, used) = (self.max_model_calls?, usage.model_attempts);
        (used >= limit)
            .then(|| Exhausted::count(code::BUDGET_MODEL_CALLS, limit.into(), used.into()))
    }

    pub(crate) fn tool_calls(&self, usage: &Usage) -> Option<Exhausted> {
        let (limit, used) = (self.max_tool_calls?, usage.tool_calls);
        (used >= limit)
            .then(|| Exhausted::count(code::BUDGET_TOOL_CALLS, limit.into(), used.into()))
    }

    pub(crate) fn wall_time(&self, usage: &Usage) -> Option<Exhausted> {
        let (limit, used) = (self.max_wall_ms?, usage.wall_ms);
        (used >= limit).then(|| Exhausted::count(code::BUDGET_WALL_TIME, limit, used))
    }

    /// Returns what keeps a run at this depth from doing anything. The levels above it are what was
    /// used.
    pub(crate) fn depth(&self, depth: u32) -> Option<Exhausted> {
        let limit = self.max_depth?;
        (depth > limit).then(|| Exhausted::count(code::BUDGET_DEPTH, limit.into(), limit.into()))
    }

    fn events(&self, used: u64) -> Option<Exhausted> {
        let limit = self.max_events?;
        // Answers and the end of the run are not refused and not counted.
        (used >= limit).then(|| Exhausted::count(code::BUDGET_EVENTS, limit, limit))
    }

    /// Checks what is only known afterwards: reached (`>=`) where more is about to be used, crossed
    /// (`>`) where it is not.
    fn after(&self, usage: &Usage, reached: bool) -> Option<Exhausted> {
        let tokens = |reason, limit: Option<u64>, used: u64| {
            let limit = limit?;
            (used > limit || reached && used == limit)
                .then(|| Exhausted::count(reason, limit, used))
        };
        let cost = || {
            let (limit, used) = (self.max_cost_usd?, usage.cost_usd?);
            // Whole billionths, as what is left is told to attempts and runs below.
            let (above, at) = (nanousd(used) > nanousd(limit), nanousd(used) == nanousd(limit));
            let over = above || reached && at;
            let number = |amount| Number::from_f64(amount).unwrap_or_else(|| 0.into());
            let (limit, used) = (number(limit), number(used));
            over.then_some(Exhausted { reason: code::BUDGET_COST_USD, limit, used })
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

    /// Returns how many executions are left, `promised` ones to runs below not among them.
    pub(crate) fn executions_left(&self, usage: &Usage, promised: u32, events: u64) -> u32 {
        let used = usage.tool_calls.saturating_add(promised);
        let calls = self.max_tool_calls.map(|max| max.saturating_sub(used));
        let events = self
            .max_events
            .map(|max| u32::try_from(max.saturating_sub(events)).unwrap_or(u32::MAX));
        calls.into_iter().chain(events).min().unwrap_or(u32::MAX)
    }
}
