//! What an operator used, and what it says of it.

use layer0::usage::Usage;

/// Returns what was used at least: what an operator states of itself may hold what it dispatched, or not.
pub(crate) fn at_least(stated: &Usage, below: &Usage) -> Usage {
    let mut used = *stated;
    used.model_calls = used.model_calls.max(below.model_calls);
    used.model_attempts = used.model_attempts.max(below.model_attempts);
    used.tool_calls = used.tool_calls.max(below.tool_calls);
    used.input_tokens = used.input_tokens.max(below.input_tokens);
    used.output_tokens = used.output_tokens.max(below.output_tokens);
    used.total_tokens = used.total_tokens.max(below.total_tokens);
    used.cached_tokens = used.cached_tokens.max(below.cached_tokens);
    used.cost_usd = match (used.cost_usd, below.cost_usd) {
        (Some(stated), Some(below)) => Some(stated.max(below)),
        (stated, below) => stated.or(below),
    };
    used
}
