//! Arithmetic of what is left of a budget, dimension by dimension; what has no bound keeps none.

use layer0::code;
use layer0::usage::Allowance;

/// Returns what is left once `given` is taken away.
pub(crate) fn less(left: Allowance, given: &Allowance) -> Allowance {
    combined(left, given, |left, given| Some(left?.saturating_sub(given.unwrap_or(0))))
}

/// Returns both together.
pub(crate) fn sum(one: Allowance, more: &Allowance) -> Allowance {
    combined(one, more, |one, more| Some(one?.saturating_add(more?)))
}

/// Returns the smaller of both.
pub(crate) fn least(one: Allowance, other: &Allowance) -> Allowance {
    combined(one, other, |one, other| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    })
}

/// Returns one of so many equal parts, rounded down.
pub(crate) fn part(whole: Allowance, parts: u32) -> Allowance {
    let parts = u64::from(parts.max(1));
    combined(whole, &whole, |whole, _| Some(whole? / parts))
}

/// Returns the code of the first dimension of which nothing is left.
pub(crate) fn nothing_in(left: &Allowance) -> Option<&'static str> {
    let is_none = |count: Option<u64>| count == Some(0);
    [
        (code::BUDGET_MODEL_CALLS, left.model_calls.map(u64::from)),
        (code::BUDGET_INPUT_TOKENS, left.input_tokens),
        (code::BUDGET_OUTPUT_TOKENS, left.output_tokens),
        (code::BUDGET_TOTAL_TOKENS, left.total_tokens),
        (code::BUDGET_COST_USD, left.cost_nanousd),
    ]
    .into_iter()
    .find_map(|(code, left)| is_none(left).then_some(code))
}

fn combined(
    one: Allowance,
    other: &Allowance,
    combine: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
) -> Allowance {
    let small = |one: Option<u32>, other: Option<u32>| {
        let count = combine(one.map(u64::from), other.map(u64::from));
        count.map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    let mut combined = Allowance::unlimited();
    combined.model_calls = small(one.model_calls, other.model_calls);
    combined.tool_calls = small(one.tool_calls, other.tool_calls);
    combined.input_tokens = combine(one.input_tokens, other.input_tokens);
    combined.output_tokens = combine(one.output_tokens, other.output_tokens);
    combined.total_tokens = combine(one.total_tokens, other.total_tokens);
    combined.cost_nanousd = combine(one.cost_nanousd, other.cost_nanousd);
    combined
}
