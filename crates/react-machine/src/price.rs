//! The price of tokens.

use layer0::usage::{TokenUsage, Usage, dollars, nanousd};
use serde::{Deserialize, Serialize};

/// The price of tokens, in US dollars per million.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Price {
    /// Prompt tokens.
    pub input_per_mtok: f64,
    /// Answer tokens.
    pub output_per_mtok: f64,
    /// Prompt tokens from the provider's cache; the price of all prompt tokens if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_per_mtok: Option<f64>,
    /// Prompt tokens written to the provider's cache; the price of all prompt tokens if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_per_mtok: Option<f64>,
}

impl Price {
    /// Returns a price of prompt and answer tokens, in US dollars per million.
    #[must_use]
    pub const fn new(input_per_mtok: f64, output_per_mtok: f64) -> Self {
        Self {
            input_per_mtok,
            output_per_mtok,
            cached_input_per_mtok: None,
            cache_write_per_mtok: None,
        }
    }

    /// Sets the price of prompt tokens from the provider's cache.
    #[must_use]
    pub const fn cached_input(mut self, per_mtok: f64) -> Self {
        self.cached_input_per_mtok = Some(per_mtok);
        self
    }

    /// Sets the price of prompt tokens written to the provider's cache.
    #[must_use]
    pub const fn cache_write(mut self, per_mtok: f64) -> Self {
        self.cache_write_per_mtok = Some(per_mtok);
        self
    }

    /// Returns the cost of tokens, in US dollars. Tokens written to a cache count as other prompt tokens.
    #[must_use]
    pub fn compute_cost(self, usage: &Usage) -> f64 {
        let tokens = TokenUsage::new(usage.input_tokens, usage.output_tokens)
            .cached_tokens(usage.cached_tokens);
        dollars(self.of_attempt(&tokens))
    }

    /// Returns the cost of the tokens of one attempt, in billionths of a US dollar.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    #[must_use]
    pub fn of_attempt(self, usage: &TokenUsage) -> u64 {
        // The number of cached tokens cannot exceed the number of sent ones.
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let fresh = usage.input_tokens - cached - written;
        let rate = |own: Option<f64>| own.unwrap_or(self.input_per_mtok);
        let cost = fresh as f64 * self.input_per_mtok
            + cached as f64 * rate(self.cached_input_per_mtok)
            + written as f64 * rate(self.cache_write_per_mtok)
            + usage.output_tokens as f64 * self.output_per_mtok;
        nanousd(cost / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Spec: B1
    #[test]
    fn cached_tokens_cost_their_own_rate() {
        #[track_caller]
        fn check(price: Price, counts: [u64; 4], nanousd: u64) {
            let [input_tokens, output_tokens, cached_tokens, cache_write_tokens] = counts;
            let usage = TokenUsage::new(input_tokens, output_tokens)
                .cached_tokens(cached_tokens)
                .cache_write_tokens(cache_write_tokens);
            assert_eq!(price.of_attempt(&usage), nanousd);
        }
        let plain = Price::new(3.0, 15.0);
        let full = plain.cached_input(0.3).cache_write(3.75);
        check(full, [1_000, 100, 0, 0], 3_000_000 + 1_500_000);
        check(full, [1_000, 0, 600, 300], 300_000 + 180_000 + 1_125_000);
        check(plain, [1_000, 0, 600, 300], 3_000_000);
        // A provider that counts more as cached than it was sent is not paid for it.
        check(full, [1_000, 0, 5_000, 5_000], 300_000);
        let usage: Usage = serde_json::from_value(json!({
            "input_tokens": 1_000_000, "output_tokens": 100_000, "cached_tokens": 500_000,
        }))
        .unwrap();
        assert!((full.compute_cost(&usage) - 3.15).abs() < 1e-9, "{}", full.compute_cost(&usage));
    }
}
