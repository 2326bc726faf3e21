//! Shares of the budget for runs below (SPEC B1, O2).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::ToolSpec;
use layer0::event::*;
use layer0::id::CallId;
use layer0::usage::Allowance;

use crate::world::{World, definition};

/// Returns a run with three running calls of a tool that only dispatches, or does not.
fn at_work(dispatches: bool) -> (World, Vec<CallId>) {
    let mut definition = definition();
    let changed = Arc::make_mut(&mut definition);
    changed.budget = Budget::new().model_calls(41).tool_calls(33).total_tokens(None);
    if dispatches {
        changed.tools = changed.tools.iter().cloned().map(ToolSpec::dispatches).collect();
    }
    let mut world = World::of(definition);
    world.answer(9, 3, false, 3);
    world.admit(0b111);
    let calls = world.open.iter().map(|run| run.call_id.clone()).collect();
    (world, calls)
}

fn grant(world: &mut World, call: &CallId, parts: Option<u32>) -> Allowance {
    let at = world.at();
    world.machine.grant(at, call, true, parts).unwrap().allowance
}

fn dispatch(
    world: &mut World,
    call: &CallId,
    run: &str,
    share: Allowance,
    most: Option<Allowance>,
) {
    let mut dispatched = OperatorDispatched::new("below", run, 1, "d", Box::new(share));
    (dispatched.call_id, dispatched.at_most) = (Some(call.clone()), most.map(Box::new));
    let at = world.at();
    world.accept(MachineInput::fact(at, dispatched));
}

/// Spec: O2. One model call stays with the caller; 39 of 41 are shared after the first.
#[test]
fn calls_that_only_dispatch_share_evenly() {
    let (mut world, calls) = at_work(true);
    let share = grant(&mut world, &calls[0], None);
    assert_eq!((share.model_calls, share.tool_calls), (Some(13), Some(10)));
    dispatch(&mut world, &calls[0], "run_a", share, None);
    let share = grant(&mut world, &calls[1], None);
    assert_eq!((share.model_calls, share.tool_calls), (Some(13), Some(10)));
    let share = grant(&mut world, &calls[1], Some(2));
    assert_eq!(share.model_calls, Some(8), "two of its own, beside one other");
}

/// Spec: O2. It is not known how many runs another tool dispatches: it gets half, and retries are kept.
#[test]
fn other_tools_get_half() {
    let (mut world, calls) = at_work(false);
    let share = grant(&mut world, &calls[0], None);
    assert_eq!((share.model_calls, share.tool_calls), (Some(19), Some((33 - 3 - 6) / 2)));
    let share = grant(&mut world, &calls[0], Some(4));
    assert_eq!(share.model_calls, Some(9), "or one of so many parts");
}

/// Spec: O2. A run below is given no more than its own task allows.
#[test]
fn more_is_bounded_by_the_task() {
    let (mut world, calls) = at_work(true);
    let mut share = Allowance::without_bounds();
    (share.model_calls, share.tool_calls) = (Some(2), Some(2));
    let mut most = share;
    most.model_calls = Some(5);
    most.tool_calls = None;
    dispatch(&mut world, &calls[0], "run_a", share, Some(most));
    dispatch(&mut world, &calls[1], "run_b", share, Some(share));
    let at = world.at();
    let more = world.machine.grant_more(at, &"run_a".into()).unwrap().allowance;
    assert_eq!(more.model_calls, Some(3), "five in all");
    let nothing = world.machine.grant_more(at, &"run_b".into()).unwrap_err();
    assert!(nothing.is_final, "{nothing:?}");
}

/// Spec: B1. A run below whose cost is not known keeps no cost budget.
#[test]
fn unknown_cost_is_not_granted() {
    let mut definition = definition();
    let changed = Arc::make_mut(&mut definition);
    (changed.price, changed.budget.max_cost_usd) = (Some(Price::new(1.0, 1.0)), Some(1.0));
    let mut world = World::of(definition);
    world.answer(9, 1, false, 3);
    world.admit(1);
    let (call, at) = (world.open[0].call_id.clone(), world.at());
    let refused = world.machine.grant(at, &call, false, None).unwrap_err();
    assert_eq!(refused.reason.as_str(), "orch.price_unknown");
    assert!(world.machine.grant(at, &call, true, None).is_ok());
}
