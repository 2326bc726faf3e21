//! Runs below another one, whose share of the caller's budget is used up (SPEC B1, O2).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::message::{StopReason, ToolCall};
use layer0::usage::{Allowance, BudgetIncrease};
use serde_json::json;

use crate::script::{Script, agent, data, dispatched};
use crate::world::started;

/// A run that another one dispatched with this much of its budget.
fn run_below(model_calls: Option<u32>, tool_calls: Option<u32>) -> Script {
    run_below_as(agent(), model_calls, tool_calls)
}

fn run_below_as(
    definition: AgentDefinition,
    model_calls: Option<u32>,
    tool_calls: Option<u32>,
) -> Script {
    let mut started = started();
    let mut allowance = Allowance::without_bounds();
    (allowance.model_calls, allowance.tool_calls) = (model_calls, tool_calls);
    (started.parent, started.allowance) = (Some("run_0".into()), Some(Box::new(allowance)));
    Script::start(definition, started)
}

fn attempt(script: &mut Script, number: u32) {
    script.take(ModelAttempted::new(number, 1, "script"));
}

fn more(model_calls: u32, tool_calls: u32) -> BudgetGranted {
    let mut allowance = Allowance::without_bounds();
    (allowance.model_calls, allowance.tool_calls) = (Some(model_calls), Some(tool_calls));
    BudgetGranted::new("run_1", Some(allowance))
}

/// A run that may make no second model call, and wants to.
fn short_of_a_call() -> Script {
    let mut script = run_below(Some(1), None);
    use_up_calls(&mut script);
    script
}

fn use_up_calls(script: &mut Script) {
    attempt(script, 1);
    script.call(&["plain"]);
    script.begin("c0", "plain");
    script.effects.clear();
    script.end("c0", "plain");
}

/// A run that may run one of two tools.
fn short_of_an_execution() -> Script {
    let mut script = run_below(None, Some(1));
    attempt(&mut script, 1);
    script.effects.clear();
    script.call(&["plain", "plain"]);
    script
}

#[track_caller]
fn check_asks(script: &Script, given: u32) {
    assert_eq!(script.effects, [MachineAction::AskBudget { given }]);
    assert_eq!(script.machine.wants_budget(), Some(given));
    assert_eq!(data(script.last())["for"], "budget");
    assert!(script.machine.is_waiting());
}

/// Spec: B1, O2
#[test]
fn used_up_share_asks_the_caller_for_more() {
    let mut script = short_of_a_call();
    check_asks(&script, 0);
    script.effects.clear();
    script.take_after(5_000, more(1, 0));
    assert!(matches!(&script.effects[..], [MachineAction::CallModel(call)] if call.call == 2));
    assert_eq!((script.machine.wants_budget(), script.machine.is_waiting()), (None, false));
    assert_eq!(script.machine.usage().wall_ms, 0, "it waited");

    let mut script = short_of_a_call();
    script.effects.clear();
    script.take(more(0, 5));
    check_asks(&script, 1);
    script.take(BudgetGranted::new("run_1", None));
    assert_eq!(script.reason(), "budget.model_calls");
}

/// Spec: B1, O2. The last attempt failed, and no other is allowed.
#[test]
fn call_without_an_attempt_left_asks_the_caller() {
    let mut script = run_below(Some(1), None);
    let mut failed = ModelAttempted::new(1, 1, "script");
    failed.code = Some("provider.transient".into());
    script.take(failed);
    script.effects.clear();
    script.machine.tick(script.at());
    script.drain();
    check_asks(&script, 0);
}

/// Spec: B1, O2. Only a run with a caller and an allowance asks for more.
#[test]
fn run_on_its_own_asks_for_nothing() {
    let mut alone = started();
    let mut allowance = Allowance::without_bounds();
    allowance.model_calls = Some(1);
    alone.allowance = Some(Box::new(allowance));
    let mut script = Script::start(agent(), alone);
    use_up_calls(&mut script);
    assert_eq!(script.reason(), "budget.model_calls");

    let mut unbounded = started();
    unbounded.parent = Some("run_0".into());
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(3);
    let mut script = Script::start(definition, unbounded);
    script.call(&["below"]);
    script.begin("c0", "below");
    let mut unrecorded = dispatched("c0", "run_a");
    (unrecorded.unrecorded, unrecorded.allowance.tool_calls) = (true, Some(2));
    script.take(unrecorded);
    script.recover();
    script.call(&["plain", "plain"]);
    assert_eq!(script.machine.executions_left(), 0, "they are promised to the lost run");
    assert_eq!(script.machine.wants_budget(), None);
}

/// Spec: B1, O2. The grant covers the calls, and its own event is the last that the agent allows.
#[test]
fn end_after_grant_names_what_is_used_up() {
    let events = u64::try_from(short_of_a_call().log.len()).unwrap();
    let mut definition = agent();
    definition.budget.max_events = Some(events + 1);
    let mut script = run_below_as(definition, Some(1), None);
    use_up_calls(&mut script);
    check_asks(&script, 0);
    script.take(more(1, 0));
    assert_eq!(script.reason(), "budget.events");
}

/// Spec: B1, O2
#[test]
fn short_batch_runs_with_what_is_granted() {
    let mut script = short_of_an_execution();
    check_asks(&script, 0);
    script.effects.clear();
    script.take(more(0, 1));
    let [MachineAction::AdmitTools(batch)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!((batch.calls.len(), batch.max_executions), (2, 2));
    assert_eq!(script.machine.wants_budget(), None);

    let mut script = short_of_an_execution();
    script.effects.clear();
    script.take(BudgetGranted::new("run_1", None));
    let [MachineAction::AdmitTools(batch)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!(batch.max_executions, 1, "the first runs");
}

/// Spec: B1, O2. One execution more is worth asking for.
#[test]
fn single_execution_is_asked_for() {
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(2);
    let mut script = run_below_as(definition, None, Some(1));
    script.effects.clear();
    script.call(&["plain", "plain"]);
    check_asks(&script, 0);
}

/// Spec: B1, D12. A run is reopened if its caller may give more, or a person does.
#[test]
fn used_up_share_ends_a_run_for_now() {
    for (is_final, more, is_refused) in
        [(false, None, false), (true, None, true), (true, Some(1), false)]
    {
        let mut script = run_below(Some(1), None);
        attempt(&mut script, 1);
        if is_final {
            script.respond(StopReason::Pause, "so far", Vec::new());
            script.take(BudgetGranted::new("run_1", None));
        } else {
            script.take(ModelFailed::new(1, "provider.transient", vec!["busy".into()], 1));
        }
        let more = more.map(|more| BudgetIncrease::new().model_calls(more));
        let reopened = script.machine.reopening("ops", None, more);
        assert_eq!(reopened.is_err(), is_refused, "{is_final} {more:?}: {reopened:?}");
    }
}

/// Spec: B1, O2. No more can come of what the run's own agent does not allow.
#[test]
fn own_budget_is_not_asked_for() {
    let mut started = started();
    started.parent = Some("run_0".into());
    started.allowance = Some(Box::new(Allowance::without_bounds()));
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(1);
    let mut script = Script::start(definition, started);
    script.call(&["plain", "plain"]);
    assert_eq!(script.machine.wants_budget(), None);
    assert!(!script.machine.is_waiting());
}

/// Spec: O2. A grant that nobody waits for is refused.
#[test]
fn grant_needs_a_run_that_waits_for_it() {
    let mut script = run_below(Some(2), None);
    assert_eq!(script.refusal(more(1, 1)), "`budget.granted` while the model is asked");
    script.call(&["plain"]);
    assert_eq!(script.refusal(more(1, 1)), "`budget.granted` while tools are at work");
    let stray = BudgetGranted::new("run_9", None);
    assert_eq!(script.refusal(stray), "`budget.granted` while no such run was dispatched");
}

/// Spec: D5, O2. It waits on, and asks nothing by itself.
#[test]
fn short_run_waits_on_after_a_crash() {
    for mut script in [short_of_a_call(), short_of_an_execution()] {
        script.effects.clear();
        let before = script.log.len();
        script.recover();
        assert_eq!((script.types(before), script.effects.len()), (vec!["run.recovered"], 0));
        assert_eq!(script.machine.wants_budget(), Some(0));
    }
}

/// Spec: D7, O2. A copy asks for itself.
#[test]
fn copy_of_a_short_run_asks_again() {
    for mut script in [short_of_a_call(), short_of_an_execution()] {
        let forked = RunForked::new("run_2", "ses_2", "run_1", 9);
        script.machine.fork(script.at(), "run_2".into(), forked, Vec::new());
        script.drain();
        script.effects.clear();
        script.recover();
        check_asks(&script, 0);
        script.take(BudgetGranted::new("run_2", None));
        assert_eq!(script.machine.wants_budget(), None);
        assert!(
            script.finish.is_some()
                || matches!(script.effects.last(), Some(MachineAction::AdmitTools(_)))
        );
    }
}

/// Spec: J2, O2. A call that may be repeated waits for its execution after a loss too.
#[test]
fn short_run_asks_again_after_a_loss() {
    let mut script = run_below(None, Some(1));
    script.call(&["safe", "safe"]);
    script.take(RunResumed::new("ops").accepting(LostTail::new(99, Hash([9; 32]))));
    script.effects.clear();
    script.recover();
    check_asks(&script, 0);
}

/// Spec: J2, O2. Calls that may have run in lost events need no execution any more.
#[test]
fn doubtful_calls_need_no_grant() {
    let mut script = short_of_an_execution();
    script.take(RunResumed::new("ops").accepting(LostTail::new(99, Hash([9; 32]))));
    script.effects.clear();
    script.recover();
    assert!(matches!(&script.effects[..], [MachineAction::CallModel(_)]), "{:?}", script.effects);
}

/// Spec: B1. The caller's time and depth are handed down.
#[test]
fn callers_deadline_bounds_the_run() {
    let mut started = started();
    started.deadline = Some(layer0::Timestamp::from_millis(31_000));
    let script = Script::start(agent(), started);
    assert_eq!(script.machine.deadline(), Some(layer0::Timestamp::from_millis(31_000)));
}

/// Spec: B2, O2. Tokens that were used before the answer's tools run are asked for too.
#[test]
fn crossed_share_is_asked_for_before_tools_run() {
    let mut started = started();
    let mut allowance = Allowance::without_bounds();
    allowance.total_tokens = Some(10);
    (started.parent, started.allowance) = (Some("run_0".into()), Some(Box::new(allowance)));
    let mut script = Script::start(agent(), started);
    let mut attempted = ModelAttempted::new(1, 1, "script");
    attempted.usage = Some(layer0::usage::TokenUsage::new(8, 3));
    script.take(attempted);
    script.effects.clear();
    let call = ToolCall::new("c0", "plain", json!({}));
    script.respond(StopReason::ToolUse, "", vec![call]);
    check_asks(&script, 0);
    let mut allowance = Allowance::without_bounds();
    allowance.total_tokens = Some(0);
    script.effects.clear();
    script.take(BudgetGranted::new("run_1", Some(allowance)));
    check_asks(&script, 1);
    script.take(BudgetGranted::new("run_1", None));
    assert_eq!(script.reason(), "budget.total_tokens");
}
