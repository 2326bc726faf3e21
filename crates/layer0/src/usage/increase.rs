//! Increases of the budget of a reopened run.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The increase of a reopened run's budget; an absent dimension is unchanged. Nothing can be added to a dimension
/// without a bound.
///
/// ```
/// use layer0::usage::BudgetIncrease;
///
/// let more = BudgetIncrease::new().model_calls(20).cost_usd(0.5);
/// assert_eq!((more.max_model_calls, more.max_tool_calls), (Some(20), None));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BudgetIncrease {
    /// Model attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u32>,
    /// Tool executions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Prompt tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Prompt and answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Milliseconds of run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
    /// Log events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// Dispatches above the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
}

impl BudgetIncrease {
    /// Creates an empty increase.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds model attempts.
    #[must_use]
    pub const fn model_calls(mut self, more: u32) -> Self {
        self.max_model_calls = Some(more);
        self
    }

    /// Adds tool executions.
    #[must_use]
    pub const fn tool_calls(mut self, more: u32) -> Self {
        self.max_tool_calls = Some(more);
        self
    }

    /// Adds prompt tokens.
    #[must_use]
    pub const fn input_tokens(mut self, more: u64) -> Self {
        self.max_input_tokens = Some(more);
        self
    }

    /// Adds answer tokens.
    #[must_use]
    pub const fn output_tokens(mut self, more: u64) -> Self {
        self.max_output_tokens = Some(more);
        self
    }

    /// Adds tokens of prompts and answers.
    #[must_use]
    pub const fn total_tokens(mut self, more: u64) -> Self {
        self.max_total_tokens = Some(more);
        self
    }

    /// Adds US dollars; a negative amount or one that is no number adds nothing.
    #[must_use]
    pub fn cost_usd(mut self, more: f64) -> Self {
        self.max_cost_usd = Some(more).filter(|more| more.is_finite() && *more >= 0.0);
        self
    }

    /// Adds run time, rounded down to milliseconds.
    #[must_use]
    pub fn wall(mut self, more: Duration) -> Self {
        self.max_wall_ms = Some(crate::millis::whole(more));
        self
    }

    /// Adds log events.
    #[must_use]
    pub const fn events(mut self, more: u64) -> Self {
        self.max_events = Some(more);
        self
    }

    /// Adds dispatches above the run.
    #[must_use]
    pub const fn depth(mut self, more: u32) -> Self {
        self.max_depth = Some(more);
        self
    }

    /// Returns whether it adds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the sum.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        fn count(one: Option<u32>, other: Option<u32>) -> Option<u32> {
            one.into_iter().chain(other).reduce(u32::saturating_add)
        }
        fn amount(one: Option<u64>, other: Option<u64>) -> Option<u64> {
            one.into_iter().chain(other).reduce(u64::saturating_add)
        }
        Self {
            max_model_calls: count(self.max_model_calls, other.max_model_calls),
            max_tool_calls: count(self.max_tool_calls, other.max_tool_calls),
            max_input_tokens: amount(self.max_input_tokens, other.max_input_tokens),
            max_output_tokens: amount(self.max_output_tokens, other.max_output_tokens),
            max_total_tokens: amount(self.max_total_tokens, other.max_total_tokens),
            max_cost_usd: self.max_cost_usd.into_iter().chain(other.max_cost_usd).reduce(Add::add),
            max_wall_ms: amount(self.max_wall_ms, other.max_wall_ms),
            max_events: amount(self.max_events, other.max_events),
            max_depth: count(self.max_depth, other.max_depth),
        }
    }
}
