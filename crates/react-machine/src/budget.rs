//! What a run may use. Nothing here is ever "a bit more": counted things stop at their number, tokens
//! and money at the response that crossed it.

use std::time::Duration;

use layer0::usage::Usage;
use layer0::{Timestamp, code};
use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::hooks::Next;
use crate::machine::{Machine, Phase, elapsed_ms};

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
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    #[must_use]
    pub fn of(self, usage: &Usage) -> f64 {
        let cost = usage.input_tokens as f64 * self.input_per_mtok
            + usage.output_tokens as f64 * self.output_per_mtok;
        cost / 1e6
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
}

impl Budget {
    /// Returns the first budget that leaves no room for another model call.
    pub(crate) fn for_model(&self, usage: &Usage, events: u64) -> Option<Exhausted> {
        self.model_calls(usage)
            .or_else(|| self.after(usage, true))
            .or_else(|| self.wall_time(usage))
            .or_else(|| self.events(events))
    }

    /// Returns the first budget that was crossed, so that not even the tools an answer asks for run.
    pub(crate) fn crossed(&self, usage: &Usage, events: u64) -> Option<Exhausted> {
        self.after(usage, false).or_else(|| self.wall_time(usage)).or_else(|| self.events(events))
    }

    pub(crate) fn model_calls(&self, usage: &Usage) -> Option<Exhausted> {
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
            let over = used > limit || reached && used >= limit;
            let dollars = |amount| Number::from_f64(amount).unwrap_or_else(|| 0.into());
            let (limit, used) = (dollars(limit), dollars(used));
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

    /// Returns how many attempts are left.
    pub(crate) fn attempts_left(&self, usage: &Usage) -> Option<u32> {
        self.max_model_calls.map(|max| max.saturating_sub(usage.model_attempts))
    }

    /// Returns how many tokens an answer may have.
    pub(crate) fn output_left(&self, usage: &Usage) -> Option<u64> {
        let output = self.max_output_tokens.map(|max| max.saturating_sub(usage.output_tokens));
        let total = self.max_total_tokens.map(|max| max.saturating_sub(usage.total_tokens));
        output.into_iter().chain(total).min()
    }

    /// Returns how many executions are left.
    pub(crate) fn executions_left(&self, usage: &Usage, events: u64) -> u32 {
        let calls = self.max_tool_calls.map(|max| max.saturating_sub(usage.tool_calls));
        let events = self
            .max_events
            .map(|max| u32::try_from(max.saturating_sub(events)).unwrap_or(u32::MAX));
        calls.into_iter().chain(events).min().unwrap_or(u32::MAX)
    }
}

impl Machine {
    /// Tells the time without anything having happened, so that a budget that is used up by it ends
    /// the run. Too early, it changes nothing.
    pub fn tick(&mut self, at: Timestamp) {
        if self.is_out_of_time() {
            return;
        }
        let budget = self.definition.budget;
        let later = Usage { wall_ms: elapsed_ms(self.started, self.now().max(at)), ..self.usage };
        let cut_short = matches!(&self.phase, Phase::Asking(turn) if turn.cut_short);
        let attempts = budget.model_calls(&later).filter(|_| cut_short);
        if let Some(exhausted) = attempts.or_else(|| budget.wall_time(&later)) {
            self.advance(at);
            self.exhaust(self.seq, exhausted);
        }
    }

    /// Does time change nothing: before the start, at the end, and while people think?
    fn is_out_of_time(&self) -> bool {
        matches!(self.phase, Phase::New) || self.is_ending() || self.is_waiting()
    }

    /// Are the last hooks called, or is the run over?
    pub(crate) fn is_ending(&self) -> bool {
        match &self.phase {
            Phase::Done(_) => true,
            Phase::Hooking(paused) => matches!(paused.next, Next::End(_)),
            _ => false,
        }
    }

    /// Returns when [`Machine::tick`] will end the run; `None` without a time budget, and while
    /// time does not count.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_out_of_time() {
            return None;
        }
        let max = self.definition.budget.max_wall_ms?;
        Some(self.started.after(Duration::from_millis(max)))
    }
}
