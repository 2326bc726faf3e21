//! Token counts of both protocols, and the differences of compatible endpoints.

use backstop_provider_http::lenient::{count_prompt, update_count};
use layer0::usage::TokenUsage;

/// The token counts of an answer. Each field is cumulative; an absent one was not reported.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) reasoning: Option<u64>,
    pub(crate) total: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) cache_written: Option<u64>,
}

impl Counts {
    /// Applies a later usage of the same answer.
    pub(crate) fn update(&mut self, later: Self) {
        *self = Self {
            input: update_count(self.input, later.input),
            output: update_count(self.output, later.output),
            reasoning: update_count(self.reasoning, later.reasoning),
            total: update_count(self.total, later.total),
            cached: update_count(self.cached, later.cached),
            cache_written: update_count(self.cache_written, later.cache_written),
        };
    }

    /// Returns the tokens billed.
    ///
    /// OpenAI includes reasoning in the tokens of the answer. xAI counts it separately, and
    /// Gemini's compatible endpoint only includes it in the total. The excess of the total over
    /// prompt and answer was generated, so it is billed as output.
    pub(crate) fn billed_tokens(self) -> TokenUsage {
        let input = self.input.or_else(|| Some(self.total?.saturating_sub(self.output?)));
        let cached = self.cached.unwrap_or_default();
        let written = self.cache_written.unwrap_or_default();
        let input = count_prompt(input.unwrap_or_default(), cached.saturating_add(written));
        let output = self.output.unwrap_or_default();
        let by_total = self.total.map_or(0, |total| total.saturating_sub(input));
        let reasoning = self.reasoning.unwrap_or_default();
        let is_apart = reasoning > output;
        let by_parts = if is_apart { output.saturating_add(reasoning) } else { output };
        TokenUsage::new(input, by_total.max(by_parts))
            .cached_tokens(cached)
            .cache_write_tokens(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_billed_once() {
        #[track_caller]
        fn check(counts: [Option<u64>; 4], expected: (u64, u64)) {
            let [input, output, reasoning, total] = counts;
            let billed =
                Counts { input, output, reasoning, total, ..Counts::default() }.billed_tokens();
            assert_eq!((billed.input_tokens, billed.output_tokens), expected, "{counts:?}");
        }
        // OpenAI, xAI, Gemini's compatible endpoint.
        check([Some(30), Some(70), Some(50), Some(100)], (30, 70));
        check([Some(30), Some(7), Some(50), Some(87)], (30, 57));
        check([Some(30), Some(70), Some(50), Some(150)], (30, 120));
        check([Some(30), Some(7), None, Some(87)], (30, 57));
        // Some of it is not reported.
        check([Some(30), Some(7), Some(50), None], (30, 57));
        check([Some(30), None, None, Some(100)], (30, 70));
        check([None, Some(70), None, Some(100)], (30, 70));
        check([Some(30), Some(70), None, Some(0)], (30, 70));
        check([None, None, None, None], (0, 0));
    }

    /// Spec: B1
    #[test]
    fn cache_beside_the_prompt_is_billed() {
        for (total, cached, written, billed) in [
            (105, 1_000, 0, (1_100, 5)),
            (1_105, 1_000, 0, (1_100, 5)),
            (105, 60, 60, (220, 5)),
            (105, 60, 40, (100, 5)),
        ] {
            let counts = Counts {
                input: Some(100),
                output: Some(5),
                total: Some(total),
                cached: Some(cached),
                cache_written: Some(written),
                ..Counts::default()
            };
            let tokens = counts.billed_tokens();
            assert_eq!((tokens.input_tokens, tokens.output_tokens), billed, "{counts:?}");
            assert_eq!((tokens.cached_tokens, tokens.cache_write_tokens), (cached, written));
        }
    }
}
