//! The usage of an operator, measured and as reported by itself.

use layer0::usage::Usage;

/// Returns a lower bound of the usage: the usage that an operator reports may or may not include its child runs.
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

/// Returns the usage of an attempt added to that of the earlier attempts.
pub(crate) fn add_usage(earlier: Option<Usage>, other: &Usage) -> Usage {
    let Some(mut both) = earlier else { return *other };
    both.add_dispatched(other);
    both.wall_ms = other.wall_ms;
    both
}

/// Returns the usage in excess of `before`.
pub(crate) fn beyond(used: &Usage, before: &Usage) -> Usage {
    let mut more = *used;
    more.model_calls = more.model_calls.saturating_sub(before.model_calls);
    more.model_attempts = more.model_attempts.saturating_sub(before.model_attempts);
    more.tool_calls = more.tool_calls.saturating_sub(before.tool_calls);
    more.input_tokens = more.input_tokens.saturating_sub(before.input_tokens);
    more.output_tokens = more.output_tokens.saturating_sub(before.output_tokens);
    more.total_tokens = more.total_tokens.saturating_sub(before.total_tokens);
    more.cached_tokens = more.cached_tokens.saturating_sub(before.cached_tokens);
    more.cost_usd =
        used.cost_usd.zip(before.cost_usd).map(|(used, before)| (used - before).max(0.0));
    more
}
