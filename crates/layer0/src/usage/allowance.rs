use serde::{Deserialize, Serialize};

use super::{Usage, nanousd};
use crate::code;

/// The part of its caller's budget that a run may use; an absent dimension has no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Allowance {
    /// Model attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u32>,
    /// Tool executions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Prompt tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Prompt and answer tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Billionths of a US dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nanousd: Option<u64>,
}

impl Allowance {
    /// Creates an allowance without bounds.
    #[must_use]
    pub fn without_bounds() -> Self {
        Self::default()
    }

    /// Returns the rest after `given` is subtracted; a dimension without a bound keeps none.
    #[must_use]
    pub fn less(self, given: &Self) -> Self {
        self.combine_with(given, |left, given| Some(left?.saturating_sub(given.unwrap_or(0))))
    }

    /// Returns the sum.
    #[must_use]
    pub fn plus(self, more: &Self) -> Self {
        self.combine_with(more, |one, more| Some(one?.saturating_add(more?)))
    }

    /// Returns the minimum in each dimension.
    #[must_use]
    pub fn least(self, other: &Self) -> Self {
        self.combine_with(other, |one, other| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        })
    }

    /// Returns one of `parts` equal parts, rounded down.
    #[must_use]
    pub fn part(self, parts: u32) -> Self {
        let parts = u64::from(parts.max(1));
        self.combine_with(&self, |whole, _| Some(whole? / parts))
    }

    /// Returns the code of the first dimension that is used up. Tool executions are not checked, because without them a
    /// run can still answer.
    #[must_use]
    pub fn used_up(&self) -> Option<&'static str> {
        let is_none = |count: Option<u64>| count == Some(0);
        [
            (code::BUDGET_MODEL_CALLS, self.model_calls.map(u64::from)),
            (code::BUDGET_INPUT_TOKENS, self.input_tokens),
            (code::BUDGET_OUTPUT_TOKENS, self.output_tokens),
            (code::BUDGET_TOTAL_TOKENS, self.total_tokens),
            (code::BUDGET_COST_USD, self.cost_nanousd),
        ]
        .into_iter()
        .find_map(|(code, left)| is_none(left).then_some(code))
    }

    fn combine_with(
        self,
        other: &Self,
        combine: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
    ) -> Self {
        let small = |one: Option<u32>, other: Option<u32>| {
            let count = combine(one.map(u64::from), other.map(u64::from));
            count.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
        };
        Self {
            model_calls: small(self.model_calls, other.model_calls),
            tool_calls: small(self.tool_calls, other.tool_calls),
            input_tokens: combine(self.input_tokens, other.input_tokens),
            output_tokens: combine(self.output_tokens, other.output_tokens),
            total_tokens: combine(self.total_tokens, other.total_tokens),
            cost_nanousd: combine(self.cost_nanousd, other.cost_nanousd),
        }
    }
}

/// Converts a usage to the amounts that count against an allowance.
impl From<&Usage> for Allowance {
    fn from(usage: &Usage) -> Self {
        Self {
            model_calls: Some(usage.model_attempts),
            tool_calls: Some(usage.tool_calls),
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            total_tokens: Some(usage.total_tokens),
            cost_nanousd: Some(nanousd(usage.cost_usd.unwrap_or_default())),
        }
    }
}
