//! The usage of a run.

mod allowance;
mod increase;

pub use allowance::Allowance;
pub use increase::BudgetIncrease;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The tokens of one model attempt, as billed by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TokenUsage {
    /// Tokens of the prompt, including cached ones.
    pub input_tokens: u64,
    /// Tokens of the answer, including thinking.
    pub output_tokens: u64,
    /// Tokens of the prompt that were read from the provider's cache.
    pub cached_tokens: u64,
    /// Tokens of the prompt that were written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
}

impl TokenUsage {
    /// Creates counts for the prompt and the answer, without cached tokens.
    ///
    /// ```
    /// use layer0::usage::TokenUsage;
    ///
    /// let billed = TokenUsage::new(1_000, 100).cached_tokens(400);
    /// assert_eq!((billed.input_tokens, billed.cache_write_tokens), (1_000, 0));
    /// ```
    #[must_use]
    pub const fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, cached_tokens: 0, cache_write_tokens: 0 }
    }

    /// Sets the tokens of the prompt that were read from the provider's cache.
    #[must_use]
    pub const fn cached_tokens(self, cached_tokens: u64) -> Self {
        Self { cached_tokens, ..self }
    }

    /// Sets the tokens of the prompt that were written to the provider's cache.
    #[must_use]
    pub const fn cache_write_tokens(self, cache_write_tokens: u64) -> Self {
        Self { cache_write_tokens, ..self }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The rest of an endpoint's rate limit, as it reports it: requests in a minute, or tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLevel {
    /// The limit.
    pub limit: Option<u64>,
    /// The amount that may be used now.
    pub remaining: u64,
    /// The time until the whole limit is available again, if nothing is used meanwhile.
    pub full_in: Option<Duration>,
}

impl RateLevel {
    /// Creates a level with this remaining amount.
    #[must_use]
    pub const fn new(remaining: u64) -> Self {
        Self { limit: None, remaining, full_in: None }
    }

    /// Sets the limit.
    #[must_use]
    pub const fn with_limit(self, limit: Option<u64>) -> Self {
        Self { limit, ..self }
    }

    /// Sets the time until the whole limit is available again.
    #[must_use]
    pub const fn full_in(self, full_in: Option<Duration>) -> Self {
        Self { full_in, ..self }
    }
}

/// The usage of a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Model calls of the loop, without retries and resends.
    pub model_calls: u32,
    /// Attempts of those calls.
    pub model_attempts: u32,
    /// Started tool executions, including built-in tools.
    pub tool_calls: u32,
    /// Prompt tokens of all attempts, including failed ones.
    pub input_tokens: u64,
    /// Answer tokens of all attempts, including failed ones.
    pub output_tokens: u64,
    /// The sum of input and output tokens.
    pub total_tokens: u64,
    /// Prompt tokens that were read from the provider's cache.
    pub cached_tokens: u64,
    /// Cost in US dollars; `None` without a price.
    pub cost_usd: Option<f64>,
    /// Milliseconds from the first to the last event.
    pub wall_ms: u64,
    /// Whether a count of tokens was estimated because an endpoint did not report it; in this case the cost is an
    /// estimate too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// Converts US dollars to billionths, rounded; 0 for a negative amount or one that is no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and what is below zero becomes zero"
)]
#[must_use]
pub fn nanousd(dollars: f64) -> u64 {
    (dollars * 1e9).round() as u64
}

/// Converts billionths of a US dollar to dollars. Up to 9 million dollars the inverse is exact.
#[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^52 billionths")]
#[must_use]
pub fn dollars(nanousd: u64) -> f64 {
    nanousd as f64 / 1e9
}

impl Usage {
    /// Creates an empty usage with a known cost of zero, for sums.
    #[must_use]
    pub fn free() -> Self {
        Self { cost_usd: Some(0.0), ..Self::default() }
    }

    /// Adds the usage of a child run; the time remains that of this run. If the cost of either is unknown, so is the
    /// sum.
    pub fn add_dispatched(&mut self, other: &Self) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.model_attempts = self.model_attempts.saturating_add(other.model_attempts);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.estimated |= other.estimated;
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (own, None) if other.model_attempts == 0 => own,
            (Some(own), Some(other)) => Some(dollars(nanousd(own).saturating_add(nanousd(other)))),
            _ => None,
        };
    }

    /// Adds the cost of one attempt, in billionths of a US dollar.
    pub fn add_cost(&mut self, cost_nanousd: u64) {
        let before = nanousd(self.cost_usd.unwrap_or_default());
        self.cost_usd = Some(dollars(before.saturating_add(cost_nanousd)));
    }

    /// Adds the tokens of one attempt.
    pub fn add_tokens(&mut self, tokens: TokenUsage) {
        self.input_tokens = self.input_tokens.saturating_add(tokens.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(tokens.cached_tokens);
        self.total_tokens = self.input_tokens.saturating_add(self.output_tokens);
    }
}
