//! Runs below a run: what they may use, and what the run waits for (SPEC B1, O2, O3).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::stop::Outcome;
use layer0::usage::{Allowance, Usage};

use serde_json::json;

use crate::script::{Script, agent, data, dispatched, ids, waiting};

/// Returns a run with these calls running, and with a rest of ten model calls and twenty executions in its budget.
fn at_work(tools: &[&str]) -> Script {
    let mut definition = agent();
    let executions = u32::try_from(tools.len()).unwrap();
    definition.budget = Budget::new().model_calls(11).tool_calls(20 + executions);
    definition.budget.max_total_tokens = None;
    Script::at_work(definition, tools)
}

fn wait_below(script: &mut Script) {
    script.machine.wait_below(script.at());
    script.drain();
}

fn returned(run: &str, used: u32) -> OperatorReturned {
    let mut usage = Usage::default();
    (usage.model_calls, usage.model_attempts, usage.tool_calls) = (used, used, used);
    OperatorReturned::new("child", run, Outcome::Completed, None, usage)
}

fn share(model_calls: u32, tool_calls: u32) -> Allowance {
    let mut allowance = Allowance::without_bounds();
    (allowance.model_calls, allowance.tool_calls) = (Some(model_calls), Some(tool_calls));
    allowance
}

/// Spec: O2
#[test]
fn facts_of_a_dispatch_name_its_record() {
    let mut script = at_work(&["below", "plain"]);
    script.dispatch("c0", "run_a");
    let place = script.last().seq;
    assert_eq!(script.last().caused_by, Some(place - 2), "the request of its call");
    let [open] = script.machine.open_dispatches() else { panic!("one is open") };
    assert_eq!((open.call_id.as_str(), open.attempt, open.is_known), ("c0", 1, false));

    script.take(waiting("run_a"));
    let [open] = script.machine.open_dispatches() else { panic!("one is open") };
    let waits = open.waits.as_ref().unwrap();
    assert_eq!((waits.r#for, &waits.approvals[..]), (WaitFor::Approval, &["apr_below".into()][..]));
    assert!(open.is_known);
    script.take(BudgetGranted::new("run_a", Some(share(2, 3))));
    script.take(BudgetGranted::new("run_a", None));
    let [open] = script.machine.open_dispatches() else { panic!("one is open") };
    assert_eq!((&open.grants[..], &open.waits), (&[Some(share(2, 3)), None][..], &None));
    script.take(returned("run_a", 4));
    assert_eq!(script.machine.open_dispatches(), []);
    let said = script.log.iter().skip_while(|entry| entry.seq <= place);
    let said: Vec<_> = said.map(|entry| (entry.kind.event_type(), entry.caused_by)).collect();
    let events = ["operator.waiting", "budget.granted", "budget.granted", "operator.returned"];
    assert_eq!(said, events.map(|event| (event, Some(place))));
    let usage = script.machine.usage();
    assert_eq!((usage.model_attempts, usage.tool_calls), (4, 2 + 4));
}

/// Spec: O2
#[test]
fn dispatch_is_numbered_and_serves_one_call() {
    let mut script = at_work(&["below", "below"]);
    assert_eq!(script.machine.find_effect(&"c9".into()), None);
    assert!(script.machine.find_effect(&"c0".into()).is_some());
    assert_eq!(script.refusal(dispatched("c9", "run_a")), "no open call `c9`");
    let mut nobodys = dispatched("c0", "run_a");
    nobodys.call_id = None;
    let refused = "`operator.dispatched` while no call is running that it serves";
    assert_eq!(script.refusal(nobodys), refused);
    script.dispatch("c0", "run_a");
    let refused = "`operator.dispatched` numbered 1, expected 2";
    assert_eq!(script.refusal(dispatched("c0", "run_a")), refused);
    let refused = "`operator.dispatched` while its run serves another call";
    assert_eq!(script.refusal(dispatched("c1", "run_a")), refused);
    let refused = "`tool.responded` while what it dispatched has not returned";
    let answer = ToolResponded::success("c0", "below", json!("done"), 1);
    assert_eq!(script.refusal(answer), refused);
    let mut again = dispatched("c0", "run_a");
    again.attempt = 3;
    script.take(again);
    assert_eq!(script.machine.open_dispatches()[0].attempt, 3);
    for fact in [EventKind::from(waiting("run_b")), returned("run_b", 0).into()] {
        let event = fact.event_type();
        assert_eq!(script.refusal(fact), format!("`{event}` while no such run was dispatched"));
    }
}

/// Spec: E11. A record may hold any number.
#[test]
fn largest_attempt_of_a_record_is_the_last() {
    let mut script = at_work(&["below", "below"]);
    script.dispatch("c0", "run_a");
    for (call, run) in [("c0", "run_a"), ("c1", "run_b")] {
        let mut last = dispatched(call, run);
        last.attempt = u32::MAX;
        script.take(last.clone());
        let most = u32::MAX;
        let refused = format!("`operator.dispatched` numbered {most}, expected {most}");
        assert_eq!(script.refusal(last), refused);
    }
    let attempts = script.machine.open_dispatches().iter().map(|open| open.attempt);
    assert_eq!(attempts.collect::<Vec<_>>(), [u32::MAX, u32::MAX]);
    let model = ModelAttempted::new(1, u32::MAX, "m");
    let mut asked = Script::new(agent());
    assert_eq!(
        asked.refusal(model),
        format!("`model.attempted` numbered {}, expected 1", u32::MAX)
    );
}

/// Spec: E11, B1
#[test]
fn deepest_run_of_a_record_dispatches_nothing() {
    let mut started = crate::world::started();
    started.depth = u32::MAX;
    let mut script = Script::start(agent(), started);
    script.call(&["below"]);
    script.begin("c0", "below");
    let refused = script.machine.grant(script.at(), &"c0".into(), true, None).unwrap_err();
    let deep = format!("it would be {} levels deep, 8 are allowed", u32::MAX);
    assert_eq!((refused.reason.as_str(), refused.message), ("orch.depth", deep));
}

/// Spec: O2, A1
#[test]
fn run_waits_once_all_below_does() {
    let mut script = at_work(&["below", "below", "plain"]);
    script.dispatch("c0", "run_a");
    script.dispatch("c1", "run_b");
    script.take(waiting("run_a"));
    wait_below(&mut script);
    assert!(!script.machine.is_waiting(), "one below is at work");
    script.take(OperatorWaiting::new("child", "run_b", WaitFor::Budget, Vec::new()));
    wait_below(&mut script);
    assert!(!script.machine.is_waiting(), "a tool is at work");
    script.end("c2", "plain");
    let at = script.at();
    script.now += 500;
    wait_below(&mut script);
    assert!(script.machine.is_waiting());
    let waits = script.last();
    assert_eq!(
        (waits.kind.event_type(), waits.at),
        ("run.waiting", at.after(std::time::Duration::from_millis(500)))
    );
    assert_eq!(waits.caused_by, Some(waits.seq - 1));
    assert_eq!(data(waits)["for"], "approval");
    assert_eq!(data(waits)["approvals"], json!(["apr_below"]));
    let before = script.log.len();
    wait_below(&mut script);
    assert_eq!(script.log.len(), before, "it waits already");
    script.take_after(60_000, returned("run_a", 0));
    assert_eq!(script.machine.usage().wall_ms, 500, "the wait is left out");
}

/// Spec: O2, B1
#[test]
fn stopping_hook_ends_the_wait_below() {
    let mut script = at_work(&["below"]);
    script.dispatch("c0", "run_a");
    script.take(waiting("run_a"));
    wait_below(&mut script);
    let failed =
        HookFailed::new("h", "after_tool", Some("c0".into()), "hook.failed", "broken", false);
    script.take_after(60_000, failed);
    assert!(!script.machine.is_waiting());
    script.take_after(200, returned("run_a", 0));
    assert_eq!(script.machine.usage().wall_ms, 200, "the wait is left out");
}

/// Spec: O2, A1
#[test]
fn wait_names_approvals_here_and_below() {
    let mut script = Script::asking(agent(), &["asked", "below"]);
    script.hold("c0");
    script.begin("c1", "below");
    script.dispatch("c1", "run_a");
    script.take(waiting("run_a"));
    wait_below(&mut script);
    let own = script.machine.open_approvals().next().unwrap().id.clone();
    assert_eq!(data(script.last())["approvals"], json!([own, "apr_below"]));
}

/// Spec: O2. For what the first below waits, where no person is asked.
#[test]
fn wait_is_for_what_is_waited_for_below() {
    let mut script = at_work(&["below"]);
    wait_below(&mut script);
    assert!(!script.machine.is_waiting(), "nothing is below");
    script.dispatch("c0", "run_a");
    script.take(OperatorWaiting::new("child", "run_a", WaitFor::Budget, Vec::new()));
    wait_below(&mut script);
    assert_eq!(data(script.last())["for"], "budget");
}

/// Spec: O2. One model call and what other tools may need stay with the caller; calls that only dispatch, and
/// have not yet, share the rest.
#[test]
fn rest_is_shared_among_those_that_dispatch() {
    let check = |tools: &[&str], dispatched: &[&str], call: &str, parts, expected: (u32, u32)| {
        let mut script = at_work(tools);
        for call in dispatched {
            script.dispatch(call, &format!("run_{call}"));
        }
        let grant = script.machine.grant(script.at(), &call.into(), true, parts).unwrap();
        let given = (grant.allowance.model_calls.unwrap(), grant.allowance.tool_calls.unwrap());
        assert_eq!(given, expected, "{tools:?} {dispatched:?} {call} {parts:?}");
    };
    check(&["below"], &[], "c0", None, (10, 20));
    check(&["below", "below"], &[], "c0", None, (5, 10));
    check(&["below", "below"], &["c1"], "c0", None, (10, 20));
    check(&["below", "below"], &["c1"], "c1", None, (5, 10));
    check(&["below", "below"], &[], "c0", Some(3), (2, 5));
    check(&["below", "plain"], &[], "c0", None, (10, 18));
    check(&["plain", "below"], &[], "c0", None, (5, 9));
    check(&["plain", "below"], &[], "c0", Some(3), (3, 6));
}

/// Spec: O2
#[test]
fn more_is_shared_with_those_yet_to_dispatch() {
    let check = |tools: &[&str], expected: (u32, u32)| {
        let mut script = at_work(tools);
        let mut little = dispatched("c0", "run_a");
        *little.allowance = share(0, 0);
        script.take(little);
        let grant = script.machine.grant_more(script.at(), &"run_a".into()).unwrap();
        let given = (grant.allowance.model_calls.unwrap(), grant.allowance.tool_calls.unwrap());
        assert_eq!(given, expected, "{tools:?}");
    };
    check(&["below"], (10, 20));
    check(&["below", "below"], (5, 10));
    check(&["plain"], (5, 9));
}

/// Spec: O2, B1
#[test]
fn grant_is_bounded_in_time_and_depth() {
    let mut script = at_work(&["below"]);
    script.now += 60_000;
    let grant = script.machine.grant(script.at(), &"c0".into(), true, None).unwrap();
    assert_eq!(grant.time, Some(std::time::Duration::from_secs(29 * 60)));

    for (depth, is_given) in [(7, true), (8, false)] {
        let mut started = crate::world::started();
        started.depth = depth;
        let mut script = Script::start(agent(), started);
        script.call(&["below"]);
        script.begin("c0", "below");
        let grant = script.machine.grant(script.at(), &"c0".into(), true, None);
        let refused = grant.map_err(|left| (left.reason.to_string(), left.message));
        let deep = "it would be 9 levels deep, 8 are allowed".to_owned();
        let expected = (!is_given).then_some(("orch.depth".to_owned(), deep));
        assert_eq!(refused.err(), expected);
    }
}

/// Spec: O2. What its task does not allow, nothing that comes back changes, whatever is left.
#[test]
fn exhausted_task_is_given_nothing_for_good() {
    let mut script = at_work(&["below", "below"]);
    let mut bounded = dispatched("c0", "run_a");
    (*bounded.allowance, bounded.at_most) = (share(10, 20), Some(Box::new(share(10, 20))));
    script.take(bounded);
    let left = script.machine.grant_more(script.at(), &"run_a".into()).unwrap_err();
    assert_eq!((left.reason.as_str(), left.is_final), ("budget.model_calls", true));
    assert_eq!(left.message, "its task allows nothing more of the model calls");

    let mut script = at_work(&["below", "below"]);
    let mut all = dispatched("c0", "run_a");
    *all.allowance = share(10, 20);
    script.take(all);
    let left = script.machine.grant_more(script.at(), &"run_a".into()).unwrap_err();
    assert_eq!((left.reason.as_str(), left.is_final), ("budget.model_calls", false));
    assert_eq!(left.message, "0 of 11 used");
}

/// Spec: T14, B3. What a call that only dispatches did is in the record of the run below.
#[test]
fn stopped_dispatch_leaves_nothing_unsettled() {
    let mut script = at_work(&["below", "plain", "safe"]);
    let running: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(running, ids(&["c1", "c2"]));
    script.take(SignalReceived::new(CANCEL, json!(null)));
    let unsettled: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(unsettled, ids(&["c1"]));
    let texts = script.log.iter().filter_map(|entry| match &entry.kind {
        EventKind::ToolResponded(answer) => Some(answer.output.value()["error"].clone()),
        _ => None,
    });
    let stopped = "Cancelled: the run was stopped";
    let expected = [stopped, "Cancelled: may already have acted", stopped];
    assert_eq!(texts.collect::<Vec<_>>(), expected);
}

/// Spec: T14. One that waits for runs below makes room for another.
#[test]
fn waiting_dispatch_makes_room_for_a_tool() {
    let mut definition = agent();
    definition.limits.max_concurrent_tools = 1;
    let mut script = Script::at_work(definition, &["below", "plain", "plain"]);
    script.dispatch("c0", "run_a");
    script.take(SignalReceived::new(CANCEL, json!(null)));
    let unsettled: Vec<_> = script.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    assert_eq!(unsettled, ids(&["c1"]));
}

/// Spec: B2, O2. Executions that are promised below are not begun here.
#[test]
fn promised_executions_are_not_left() {
    let mut script = at_work(&["below"]);
    assert_eq!(script.machine.executions_left(), 20);
    let mut given = dispatched("c0", "run_a");
    *given.allowance = share(5, 12);
    script.take(given);
    assert_eq!(script.machine.executions_left(), 8);
    script.take(BudgetGranted::new("run_a", Some(share(0, 3))));
    assert_eq!(script.machine.executions_left(), 5);
    script.take(returned("run_a", 2));
    assert_eq!(script.machine.executions_left(), 18);
}

/// Spec: T9
#[test]
fn repeated_failure_is_told_by_call() {
    let failed = |call: &str| {
        ToolResponded::refusal(call.into(), "plain".into(), "tool.execution_failed", "broken")
    };
    let mut script = Script::new(agent());
    let arguments = json!({}).into();
    for failures in 1..=3 {
        assert_eq!(script.machine.repeated_failure("plain", &arguments), None);
        script.call(&["plain"]);
        let call = match failures {
            1 => "c0".to_owned(),
            number => format!("c0~{number}"),
        };
        script.begin(&call, "plain");
        script.take(failed(&call));
    }
    let repeated = script.machine.repeated_failure("plain", &arguments);
    assert_eq!(repeated, Some(("tool.execution_failed".into(), 3)));
    assert_eq!(script.machine.repeated_failure("safe", &arguments), None);
    assert_eq!(script.machine.repeated_failure("plain", &json!({ "x": 1 }).into()), None);
}

/// Spec: G2. The results belong to their calls: answers that change places are progress.
#[test]
fn swapped_results_are_progress() {
    for (swaps, reason) in [(true, None), (false, Some("guard.loop_detected"))] {
        let mut definition = agent();
        definition.limits.max_repeated_batch_steps = Some(2);
        let mut script = Script::new(definition);
        for turn in 1..=3 {
            script.call(&["plain", "safe"]);
            if script.finish.is_some() {
                break;
            }
            let id = |id: &str| if turn == 1 { id.to_owned() } else { format!("{id}~{turn}") };
            for (call, tool, result) in [("c0", "plain", "a"), ("c1", "safe", "b")] {
                script.begin(&id(call), tool);
                let other = if result == "a" { "b" } else { "a" };
                let result = if swaps && turn % 2 == 0 { other } else { result };
                script.take(ToolResponded::success(id(call), tool, json!(result), 1));
            }
        }
        let ended = script.finish.is_some().then(|| script.reason());
        assert_eq!(ended.as_deref(), reason);
    }
}
