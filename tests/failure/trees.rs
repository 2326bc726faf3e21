//! What scenarios with operators show of the runs below their root.

use serde_json::{Value, json};

use crate::support::played::{Played, named};

/// Returns the runs of an operator, in the order they were dispatched.
fn session_runs<'p>(played: &'p Played, operator: &str) -> Vec<&'p Value> {
    played.runs().iter().filter(|run| run["operator"] == operator).collect()
}

/// Returns the only run of an operator.
#[track_caller]
fn run_of<'p>(played: &'p Played, operator: &str) -> &'p Value {
    let runs = session_runs(played, operator);
    let [run] = runs[..] else { panic!("{}: {} runs of `{operator}`", played.name, runs.len()) };
    run
}

/// Returns the data of the events of one type of a run below.
fn data_of<'r>(run: &'r Value, event_type: &str) -> Vec<&'r Value> {
    let events = run["events"].as_array().unwrap().iter();
    events.filter(|event| event["type"] == event_type).map(|event| &event["data"]).collect()
}

fn code_of(error: &Value) -> Option<&str> {
    error["code"].as_str().or_else(|| error["reason"].as_str())
}

/// Returns how the calls of the root were answered: tool, its failure's code.
fn answers(played: &Played) -> Vec<(&str, Option<&str>)> {
    let answers = played.data_of("tool.responded").into_iter();
    answers.map(|answer| (answer["tool"].as_str().unwrap(), code_of(&answer["error"]))).collect()
}

/// Spec: B1, O2
#[test]
fn allowances_are_what_is_left_divided() {
    let played = named("tree_allowance_divided");
    for (operator, model_calls) in [("east", 4), ("west", 5)] {
        let started = data_of(run_of(played, operator), "run.started")[0];
        assert_eq!(started["allowance"]["model_calls"], model_calls, "{operator}");
        let dispatched = played.data_of("operator.dispatched").into_iter();
        let mut dispatched = dispatched.filter(|data| data["operator"] == operator);
        assert_eq!(dispatched.next().unwrap()["allowance"], started["allowance"], "{operator}");
    }
}

/// Spec: B1, O2
#[test]
fn more_is_granted_in_both_records() {
    let played = named("tree_allowance_granted");
    let west = run_of(played, "west");
    let granted = played.data_of("budget.granted");
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0]["allowance"]["model_calls"], 1);
    assert_eq!(data_of(west, "budget.granted"), granted);
    assert_eq!(data_of(west, "run.waiting")[0]["for"], "budget");
    assert_eq!(
        (&west["outcome"], &west["usage"]["model_attempts"]),
        (&json!("completed"), &json!(4))
    );
}

/// Spec: B2, O2
#[test]
fn nothing_granted_exhausts_the_run_below() {
    let played = named("tree_allowance_none_left");
    let clerk = run_of(played, "clerk");
    assert_eq!(clerk["outcome"], "budget_exhausted");
    assert_eq!(clerk["reason"], "budget.model_calls");
    assert_eq!(data_of(clerk, "budget.granted")[0]["allowance"], Value::Null);
    assert_eq!(data_of(clerk, "budget.exhausted").len(), 1);
    assert_eq!(answers(played), [("clerk", Some("budget.model_calls"))]);
    assert!(played.tool_messages()[0].1.contains("I look it up."), "partial work is kept");
}

/// Spec: O2, O4
#[test]
fn refused_dispatches_start_no_run() {
    #[track_caller]
    fn check(name: &str, root: &[(&str, Option<&str>)], runs: &[&str]) {
        let played = named(name);
        assert_eq!(answers(played), root, "{name}");
        let names: Vec<&str> =
            played.runs().iter().map(|run| run["operator"].as_str().unwrap()).collect();
        assert_eq!(names, runs, "{name}");
    }
    check("tree_nothing_to_give", &[("clerk", Some("budget.model_calls"))], &["scenario"]);
    check(
        "tree_price_unknown",
        &[("free", Some("orch.price_unknown")), ("paid", None)],
        &["scenario", "paid"],
    );
    check("tree_too_deep", &[("clerk", None)], &["scenario", "clerk"]);
    check(
        "tree_unknown_operator",
        &[("clerc", Some("tool.not_found")), ("clerk", None)],
        &["scenario", "clerk"],
    );
    check("tree_input_missing", &[("clerk", Some("tool.invalid_input"))], &["scenario"]);
    let refused = data_of(run_of(named("tree_too_deep"), "clerk"), "tool.responded")[0];
    assert_eq!(refused["error"]["code"], "orch.depth");
}

/// Spec: B1, O4
#[test]
fn a_circle_ends_at_the_depth() {
    let played = named("tree_circle");
    assert_eq!(played.runs().len(), 9, "the root and eight below each other");
    let last = played.runs().last().unwrap();
    assert_eq!(data_of(last, "run.started")[0]["depth"], 8);
    assert_eq!(data_of(last, "tool.responded")[0]["error"]["code"], "orch.depth");
    for (below, run) in played.runs().iter().zip(&played.runs()[1..]) {
        assert_eq!(run["parent"], below["run"]);
        assert_eq!(run["outcome"], "completed");
    }
}

/// Spec: B3, O2
#[test]
fn stopped_trees_leave_no_record_open() {
    for (name, below) in
        [("tree_cancelled_by_signal", "cancelled"), ("tree_deadline_of_one", "budget_exhausted")]
    {
        let clerk = run_of(named(name), "clerk");
        assert_eq!(clerk["outcome"], below, "{name}");
        assert_eq!(data_of(clerk, "tool.requested").len(), data_of(clerk, "tool.responded").len());
    }
    // The time of both is over at the same moment.
    let clerk = run_of(named("tree_deadline"), "clerk");
    assert_ne!(clerk["outcome"], "completed");
    assert_eq!(data_of(clerk, "run.finished").len(), 1);
    assert_eq!(clerk["usage"]["wall_ms"], 2_000, "of five seconds it had two");
    assert_eq!(answers(named("tree_deadline_of_one")), [("clerk", Some("budget.wall_time"))]);
}

/// Spec: O2, O4
#[test]
fn input_is_read_by_the_root_alone() {
    let said = |request: &Value| {
        let messages = request["messages"].as_array().unwrap().iter();
        messages.filter(|message| message["content"] == "And in French?").count()
    };
    let played = named("tree_input_by_signal");
    let told: Vec<usize> = played.requests().iter().map(said).collect();
    assert_eq!(told, [0, 1]);
    let below = run_of(played, "clerk")["requests"].as_array().unwrap();
    assert_eq!(below.iter().map(said).sum::<usize>(), 0);
}

/// Spec: O2, O4. Data of any form stands in the record; only `input` is said to the model.
#[test]
fn signals_of_any_name_are_recorded() {
    let played = named("signal_input");
    let received = played.data_of("signal.received");
    assert_eq!(received[0], &json!({ "name": "look", "data": { "at": [1, 2] }, "cause": null }));
    assert_eq!(received[1], &json!({ "name": "input", "data": "And in German?", "cause": null }));
    let last = played.requests()[1]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["content"], "And in German?");
}

/// Spec: A1, O2
#[test]
fn an_approval_two_levels_below_rises() {
    let waits = named("tree_approval_waits");
    let asked = data_of(run_of(waits, "cashier"), "approval.requested")[0];
    let approvals = json!([asked["approval_id"]]);
    assert_eq!(waits.data_of("run.waiting")[0]["approvals"], approvals);
    assert_eq!(waits.data_of("operator.waiting")[0]["approvals"], approvals);
    for operator in ["clerk", "cashier"] {
        let run = run_of(waits, operator);
        assert_eq!(run["outcome"], "waiting_approval", "{operator}");
        assert_eq!(data_of(run, "run.waiting")[0]["approvals"], approvals, "{operator}");
        assert!(data_of(run, "tool.responded").is_empty(), "{operator}");
    }
    let granted = run_of(named("tree_approval_granted"), "cashier");
    assert_eq!(data_of(granted, "tool.requested").len(), 1);
    let denied = run_of(named("tree_approval_denied"), "cashier");
    let answer = data_of(denied, "tool.responded")[0];
    assert_eq!(answer["output"]["error"], "Denied by ops: not in business hours");
    assert!(data_of(denied, "tool.requested").is_empty());
}

/// Spec: D12, O3, O5
#[test]
fn a_failed_run_below_goes_on() {
    let played = named("tree_reopened_by_the_retry_layer");
    let clerk = run_of(played, "clerk");
    assert_eq!(data_of(clerk, "run.reopened").len(), 1);
    assert_eq!(data_of(clerk, "tool.requested").len(), 1, "what has run does not run again");
    let dispatched = played.data_of("operator.dispatched");
    assert_eq!(dispatched.iter().map(|it| &it["attempt"]).collect::<Vec<_>>(), [1, 2]);
    assert!(dispatched.iter().all(|it| it["run"] == clerk["run"]));
    let elapsed = played.json["elapsed_ms"].as_u64().unwrap();
    assert!((30_000..40_000).contains(&elapsed), "{elapsed}");
}

/// Spec: O2, O5
#[test]
fn callers_read_what_failed_below() {
    let played = named("tree_fails_for_good");
    assert_eq!(answers(played), [("clerk", Some("provider.auth_failed"))]);
    let clerk = run_of(played, "clerk");
    assert_eq!(
        (&clerk["outcome"], &clerk["reason"]),
        (&json!("failed"), &json!("provider.auth_failed"))
    );
    let (_, text, is_error) = played.tool_messages()[0];
    assert!(
        is_error && text.starts_with("Tool 'clerk' failed: Code provider.auth_failed: "),
        "{text}"
    );
    let both = named("tree_one_of_two_fails").tool_messages();
    let ids: Vec<_> = both.iter().map(|(id, _, is_error)| (*id, *is_error)).collect();
    assert_eq!(ids, [("c1", true), ("c2", false)]);
}

/// Spec: B1, O3. Dollars are counted in billionths, at the price of the run that was billed.
#[test]
fn usage_of_a_tree_adds_up() {
    let played = named("tree_usage_adds_up");
    let expected =
        [("scenario", 6, 3, 5_350, 435), ("clerk", 4, 2, 5_050, 405), ("archive", 1, 0, 50, 5)];
    for (operator, attempts, tools, input, output) in expected {
        let usage = &run_of(played, operator)["usage"];
        let actual = ["model_attempts", "tool_calls", "input_tokens", "output_tokens"]
            .map(|key| &usage[key]);
        let expected = [attempts, tools, input, output].map(Value::from);
        assert_eq!(actual, expected.each_ref(), "{operator}");
    }
    let cost = |operator: &str| {
        let cost = run_of(played, operator)["usage"]["cost_usd"].as_f64().unwrap();
        (cost * 1e9).round()
    };
    let (archive, clerk, own) = (6_000_000.0, 5_800_000.0, 3_600_000.0);
    assert_eq!(cost("archive"), archive);
    assert_eq!(cost("clerk"), archive + clerk);
    assert_eq!(cost("scenario"), archive + clerk + own);
}

/// Spec: C6
#[test]
fn each_run_begins_its_script_anew() {
    let played = named("tree_script_anew");
    let runs = session_runs(played, "roller");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(data_of(run, "model.responded").len(), 2);
        assert_eq!(data_of(run, "tool.responded")[0]["output"], 4);
        assert_eq!(run["requests"].as_array().unwrap().len(), 2);
    }
}

/// Spec: C6. An agent has the others as tools, behind its own.
#[test]
fn operators_are_tools_of_each_other() {
    let played = named("tree_circle");
    for (run, other) in played.runs()[1..].iter().zip(["chicken", "egg"].iter().cycle()) {
        assert_eq!(run["requests"][0]["tools"][0], *other);
    }
    let tools = &named("tree_usage_adds_up").requests()[0]["tools"];
    assert_eq!(*tools, json!(["clerk", "archive", "get_error_detail", "get_tool_result"]));
}

/// Spec: H1, O2, Y1
#[test]
fn grants_and_hooks_are_each_operators_own() {
    let clerk = run_of(named("tree_grants_of_its_own"), "clerk");
    let reasons: Vec<_> =
        data_of(clerk, "tool.responded").iter().map(|data| &data["error"]["reason"]).collect();
    assert_eq!(reasons, ["tool.permission_denied", "tool.skipped"]);
}

/// Spec: D12, O2
#[test]
fn reopened_roots_keep_what_returned() {
    let played = named("tree_reopened");
    assert_eq!(session_runs(played, "clerk").len(), 2);
    assert_eq!(played.json["usage"]["model_attempts"], 6);
}
