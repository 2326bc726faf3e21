use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Returns a budget with only the given bounds.
fn only(bounds: Value) -> Budget {
    let mut budget = json!({
        "max_model_calls": null, "max_tool_calls": null, "max_total_tokens": null,
        "max_wall_ms": null, "max_events": null, "max_depth": null,
    });
    let Value::Object(bounds) = bounds else { panic!("{bounds}") };
    budget.as_object_mut().unwrap().extend(bounds);
    read(budget)
}

/// Returns a budget with a different number for each bound.
fn every() -> Value {
    json!({
        "max_model_calls": 10, "max_tool_calls": 20, "max_input_tokens": 30,
        "max_output_tokens": 40, "max_total_tokens": 50, "max_cost_usd": 0.5,
        "max_wall_ms": 60, "max_events": 70, "max_depth": 8,
    })
}

/// Spec: B1
#[test]
fn defaults_are_the_documented_ones() {
    let expected = only(json!({
        "max_model_calls": 50, "max_tool_calls": 200, "max_total_tokens": 2_000_000,
        "max_wall_ms": 1_800_000, "max_events": 10_000, "max_depth": 8,
    }));
    assert_eq!(Budget::new(), expected);
}

/// Spec: B1
#[test]
fn builder_sets_each_bound() {
    let nothing = only(json!({}));
    let built = nothing.model_calls(10).tool_calls(20).input_tokens(30).output_tokens(40);
    let built = built.total_tokens(50).cost_usd(0.5).wall(Duration::from_millis(60));
    assert_eq!(built.events(70).depth(8), read(every()));
    assert_eq!(milliseconds(Duration::MAX), u64::MAX);
}

/// Spec: B1, O2
#[test]
fn caller_leaves_the_smaller_of_each_bound() {
    #[track_caller]
    fn check(own: Value, given: Value, time_ms: Option<u64>, expected: Value) {
        let within = only(own).within(Some(&read(given)), time_ms.map(Duration::from_millis));
        assert_eq!(within, only(expected));
    }
    let smaller = json!({
        "model_calls": 1, "tool_calls": 2, "input_tokens": 3, "output_tokens": 4,
        "total_tokens": 5, "cost_nanousd": 250_000_000,
    });
    let bounded = json!({
        "max_model_calls": 1, "max_tool_calls": 2, "max_input_tokens": 3,
        "max_output_tokens": 4, "max_total_tokens": 5, "max_cost_usd": 0.25, "max_wall_ms": 6,
    });
    let larger = json!({
        "model_calls": 11, "tool_calls": 21, "input_tokens": 31, "output_tokens": 41,
        "total_tokens": 51, "cost_nanousd": 600_000_000,
    });
    let mut both = bounded.clone();
    (both["max_events"], both["max_depth"]) = (json!(70), json!(8));
    check(json!({}), smaller.clone(), Some(6), bounded);
    check(every(), smaller, Some(6), both);
    check(every(), larger, Some(61), every());
    check(every(), json!({}), None, every());
    let mut bounded = every();
    bounded["max_wall_ms"] = json!(59);
    let time = Some(Duration::from_millis(59));
    assert_eq!(only(every()).within(None, time), only(bounded));
}

/// Spec: D12, B1
#[test]
fn increase_adds_to_each_bound() {
    let by: BudgetIncrease = read(json!({
        "max_model_calls": 1, "max_tool_calls": 2, "max_input_tokens": 3,
        "max_output_tokens": 4, "max_total_tokens": 5, "max_cost_usd": 0.25, "max_wall_ms": 6,
        "max_events": 7, "max_depth": 1,
    }));
    let expected = json!({
        "max_model_calls": 11, "max_tool_calls": 22, "max_input_tokens": 33,
        "max_output_tokens": 44, "max_total_tokens": 55, "max_cost_usd": 0.75,
        "max_wall_ms": 66, "max_events": 77, "max_depth": 9,
    });
    assert_eq!(only(every()).with_increase(&by), only(expected));
    assert_eq!(only(every()).with_increase(&BudgetIncrease::new()), only(every()));
    assert_eq!(only(json!({})).with_increase(&by), only(json!({})), "without bound it stays so");
}

/// Spec: D12, O2
#[test]
fn shortage_is_counted_for_each_bound() {
    let own = only(json!({
        "max_model_calls": 7, "max_tool_calls": 16, "max_input_tokens": 25,
        "max_output_tokens": 34, "max_total_tokens": 43, "max_cost_usd": 0.25, "max_wall_ms": 52,
    }));
    let expected: BudgetIncrease = read(json!({
        "max_model_calls": 3, "max_tool_calls": 4, "max_input_tokens": 5,
        "max_output_tokens": 6, "max_total_tokens": 7, "max_cost_usd": 0.25, "max_wall_ms": 8,
    }));
    assert_eq!(own.shortfall_against(&only(every())), expected);
    let nothing = BudgetIncrease::new();
    assert_eq!(only(every()).shortfall_against(&own), nothing, "it is more");
    assert_eq!(own.shortfall_against(&own), nothing, "it is the same");
    assert_eq!(only(json!({})).shortfall_against(&own), nothing, "it has no bound");
    let short = own.shortfall_against(&only(json!({})));
    assert_eq!(short.max_model_calls, Some(u32::MAX - 7));
    assert_eq!(short.max_wall_ms, Some(u64::MAX - 52));
    let almost =
        only(json!({ "max_model_calls": 9, "max_wall_ms": 59 })).shortfall_against(&read(every()));
    assert_eq!((almost.max_model_calls, almost.max_wall_ms), (Some(1), Some(1)));
}

/// Returns a usage with a different number for each count.
fn used() -> Usage {
    read(json!({
        "model_attempts": 4, "tool_calls": 5, "input_tokens": 6, "output_tokens": 7,
        "total_tokens": 13, "cost_usd": 0.125, "wall_ms": 8,
    }))
}

/// Spec: B1, O2
#[test]
fn rest_is_what_is_not_used() {
    let expected: Allowance = read(json!({
        "model_calls": 6, "tool_calls": 15, "input_tokens": 24, "output_tokens": 33,
        "total_tokens": 37, "cost_nanousd": 375_000_000,
    }));
    assert_eq!(only(every()).remaining_allowance(&used()), expected);
    assert_eq!(only(json!({})).remaining_allowance(&used()), Allowance::without_bounds());
    let few =
        only(json!({ "max_model_calls": 3, "max_cost_usd": 0.1 })).remaining_allowance(&used());
    assert_eq!((few.model_calls, few.cost_nanousd), (Some(0), Some(0)));
    assert_eq!(
        only(json!({ "max_cost_usd": 0.5 })).remaining_allowance(&Usage::default()).cost_nanousd,
        Some(500_000_000)
    );
}

/// Spec: B2. Counted ones end at their number, tokens and money at the answer that crossed it.
#[test]
fn used_up_bound_is_named() {
    const EVENTS: u64 = 9;
    let reason = |exhausted: Option<ExhaustedBudget>| exhausted.map(|exhausted| exhausted.reason);
    let check = |key: &str, code, [below, at, above]: [Value; 3], is_over_at: bool| {
        let limit = |limit: Value| only(json!({ key: limit }));
        assert_eq!(limit(below.clone()).for_model(&used(), EVENTS), None, "{key}");
        assert_eq!(limit(below).find_crossed(&used(), EVENTS), None, "{key}");
        assert_eq!(reason(limit(at.clone()).for_model(&used(), EVENTS)), Some(code), "{key}");
        assert_eq!(reason(limit(above.clone()).for_model(&used(), EVENTS)), Some(code), "{key}");
        let after = reason(limit(at.clone()).find_crossed(&used(), EVENTS));
        assert_eq!(after, is_over_at.then_some(code), "{key}");
        assert_eq!(reason(limit(above).find_crossed(&used(), EVENTS)), Some(code), "{key}");
        let attempt = reason(limit(at).for_attempt(&used()));
        assert_eq!(attempt, (!is_over_at).then_some(code), "time and events aside: {key}");
    };
    let around = |at: u64| [json!(at + 1), json!(at), json!(at - 1)];
    check("max_input_tokens", code::BUDGET_INPUT_TOKENS, around(6), false);
    check("max_output_tokens", code::BUDGET_OUTPUT_TOKENS, around(7), false);
    check("max_total_tokens", code::BUDGET_TOTAL_TOKENS, around(13), false);
    let cost = [json!(0.126), json!(0.125), json!(0.124)];
    check("max_cost_usd", code::BUDGET_COST_USD, cost, false);
    check("max_wall_ms", code::BUDGET_WALL_TIME, around(8), true);
    check("max_events", code::BUDGET_EVENTS, around(9), true);
    let calls = |max: u32| only(json!({ "max_model_calls": max }));
    assert_eq!(calls(5).for_model(&used(), EVENTS), None);
    assert_eq!(reason(calls(4).for_model(&used(), EVENTS)), Some(code::BUDGET_MODEL_CALLS));
    assert_eq!(reason(calls(4).for_attempt(&used())), Some(code::BUDGET_MODEL_CALLS));
    assert_eq!(calls(3).find_crossed(&used(), EVENTS), None, "the tools of its answer may run");
    let tools = |max: u32| only(json!({ "max_tool_calls": max }));
    assert_eq!(tools(6).used_up_tool_calls(&used()), None);
    assert_eq!(reason(tools(5).used_up_tool_calls(&used())), Some(code::BUDGET_TOOL_CALLS));
}

/// Spec: B2
#[test]
fn exhaustion_tells_limit_and_use() {
    let told =
        |exhausted: Option<ExhaustedBudget>| exhausted.map(|it| it.text()).unwrap_or_default();
    let budget = |bounds: Value| only(bounds);
    let tokens = budget(json!({ "max_input_tokens": 5 }));
    assert_eq!(told(tokens.find_crossed(&used(), 0)), "6 of 5 used");
    let cost = budget(json!({ "max_cost_usd": 0.1 }));
    assert_eq!(told(cost.find_crossed(&used(), 0)), "0.125 of 0.1 used");
    let events = budget(json!({ "max_events": 3 }));
    assert_eq!(told(events.used_up_events(9)), "3 of 3 used", "the end is not counted");
}

/// Spec: O2, B1
#[test]
fn promised_rest_tells_its_own_budget() {
    let check = |reason, text: &str| {
        let told = only(every()).nothing_left(reason, &used());
        assert_eq!((told.reason, &*told.text()), (reason, text));
    };
    check(code::BUDGET_MODEL_CALLS, "4 of 10 used");
    check(code::BUDGET_INPUT_TOKENS, "6 of 30 used");
    check(code::BUDGET_OUTPUT_TOKENS, "7 of 40 used");
    check(code::BUDGET_COST_USD, "0.125 of 0.5 used");
    check(code::BUDGET_TOTAL_TOKENS, "13 of 50 used");
    let unbounded = only(json!({})).nothing_left(code::BUDGET_MODEL_CALLS, &used());
    assert_eq!(unbounded.limit, u64::MAX.into());
    assert_eq!(ExhaustedBudget::cost(f64::INFINITY, f64::NAN).text(), "0 of 0 used");
}

/// Spec: B2, O2
#[test]
fn executions_left_are_not_promised_ones() {
    let check = |bounds: Value, promised, events, left: u32| {
        assert_eq!(
            only(bounds.clone()).executions_left(&used(), promised, events),
            left,
            "{bounds}"
        );
    };
    check(json!({ "max_tool_calls": 20 }), 0, 9, 15);
    check(json!({ "max_tool_calls": 20 }), 4, 9, 11);
    check(json!({ "max_tool_calls": 20 }), u32::MAX, 9, 0);
    check(json!({ "max_tool_calls": 20, "max_events": 12 }), 4, 9, 3);
    check(json!({ "max_events": 12 }), 4, 13, 0);
    check(json!({ "max_events": u64::MAX }), 4, 0, u32::MAX);
    check(json!({}), 4, 9, u32::MAX);
}
