//! What a run has used.

use serde::{Deserialize, Serialize};

/// Tokens of one model attempt, as the provider billed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TokenUsage {
    /// Tokens of the prompt, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the answer, thinking included.
    pub output_tokens: u64,
    /// Tokens of the prompt that came from the provider's cache.
    pub cached_tokens: u64,
}

/// What a run has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Model calls the loop made; retries and resends are not counted here.
    pub model_calls: u32,
    /// Attempts those calls took.
    pub model_attempts: u32,
    /// Tool executions begun, built-in tools included.
    pub tool_calls: u32,
    /// Prompt tokens of all attempts, failed ones included.
    pub input_tokens: u64,
    /// Answer tokens of all attempts, failed ones included.
    pub output_tokens: u64,
    /// The sum of input and output tokens.
    pub total_tokens: u64,
    /// Prompt tokens that came from the provider's cache.
    pub cached_tokens: u64,
    /// Cost in US dollars; `None` without a price.
    pub cost_usd: Option<f64>,
    /// Milliseconds from the first to the last event.
    pub wall_ms: u64,
}

impl Usage {
    /// Adds the tokens of one attempt.
    pub fn add_tokens(&mut self, tokens: TokenUsage) {
        self.input_tokens = self.input_tokens.saturating_add(tokens.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(tokens.cached_tokens);
        self.total_tokens = self.input_tokens.saturating_add(self.output_tokens);
    }
}
