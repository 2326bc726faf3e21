//! Rules that meet each other, each with its exact count.

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::stop::Stop;
use layer0::{Code, Timestamp};
use serde_json::json;

use crate::world::{World, definition, patient};

fn reason(world: &World) -> Option<Code> {
    match &world.finish {
        Some(Finish::Stopped { stop, .. }) => stop.reason(),
        Some(Finish::Failed(cause)) => Some(cause.code()),
        _ => None,
    }
}

/// Holds one call for a person while another uses what is left; the person agrees.
fn agreed_too_late(change: impl FnOnce(&mut AgentDefinition)) -> World {
    let mut definition = (*definition()).clone();
    change(&mut definition);
    let mut world = World::of(Arc::new(definition));
    world.answer(9, 2, false, 3);
    // The first is held, the second runs.
    world.admit(0b1_0011);
    let [approval] = &world.machine.open_approvals().cloned().collect::<Vec<_>>()[..] else {
        panic!("one call is held")
    };
    let approval = approval.clone();
    world.tool_answer(0, true, false);
    let granted = ApprovalGranted::new(approval.id, approval.call_id, "ops");
    let at = world.at();
    world.accept(MachineInput::fact(at, granted));
    world.admit(0b1);
    world
}

/// Spec: B2, A1, D12. What was approved and did not run is not passed over.
#[test]
fn approved_call_meets_a_used_up_budget() {
    let world = agreed_too_late(|definition| definition.budget.max_tool_calls = Some(1));
    assert_eq!(reason(&world), Some("budget.tool_calls".into()));
    let exhausted = world.log.iter().filter(|entry| entry.kind.event_type() == "budget.exhausted");
    assert_eq!(exhausted.count(), 1);
}

/// Spec: B2, A1
#[test]
fn approved_call_meets_used_up_events() {
    let world = agreed_too_late(|definition| definition.budget.max_events = Some(9));
    assert_eq!(reason(&world), Some("budget.events".into()));
    let exhausted = world.log.iter().filter(|entry| entry.kind.event_type() == "budget.exhausted");
    assert_eq!(exhausted.count(), 1);
}

/// Spec: B2
#[test]
fn model_calls_end_exactly_at_the_budget() {
    for limit in 1..4 {
        let mut definition = (*patient()).clone();
        definition.budget.max_model_calls = Some(limit);
        let mut world = World::of(Arc::new(definition));
        let mut turns = 0;
        while world.finish.is_none() {
            turns += 1;
            world.answer(9, 1, false, 3);
            world.admit(1);
            world.tool_answer(0, true, false);
        }
        assert_eq!((turns, world.machine.usage().model_attempts), (limit, limit));
        assert_eq!(reason(&world), Some("budget.model_calls".into()));
    }
}

/// Spec: D5. The third death in a row is the last.
#[test]
fn third_death_in_a_row_ends_the_run() {
    let mut world = World::new();
    for death in 1..=3 {
        assert_eq!(world.machine.is_crash_loop(), death == 3, "death {death}");
        let at = world.at();
        let lost = world.machine.find_lost_steps();
        world.accept(MachineInput::fact(at, lost));
        assert_eq!(world.finish.is_some(), death == 3, "death {death}");
    }
    assert_eq!(reason(&world), Some("run.crash_loop".into()));
}

/// A run that waits for one approval since it was asked for.
fn waiting() -> (World, Approval) {
    let mut world = World::new();
    world.answer(9, 1, false, 3);
    world.admit(0b1_0001);
    assert!(world.machine.is_waiting());
    let approval = world.machine.open_approvals().next().unwrap().clone();
    (world, approval)
}

/// Spec: O2, B1. A wait is left out once, however often the run is resumed meanwhile.
#[test]
fn resumed_wait_is_left_out_once() {
    let (mut world, approval) = waiting();
    let before = world.machine.usage().wall_ms;
    for minutes in 1..=3 {
        let at = Timestamp::from_millis(world.now + minutes * 60_000);
        world.accept(MachineInput::fact(at, RunResumed::new("ops")));
    }
    let at = Timestamp::from_millis(world.now + 200_000);
    world
        .accept(MachineInput::fact(at, ApprovalGranted::new(approval.id, approval.call_id, "ops")));
    assert_eq!(world.machine.usage().wall_ms, before);
    world.accept(MachineInput::fact(
        Timestamp::from_millis(world.now + 201_000),
        Warning::new("later"),
    ));
    assert_eq!(world.machine.usage().wall_ms, before + 1_000, "it counts again");
}

/// Spec: O2. Time that passed before the wait ends the run, the wait does not.
#[test]
fn wait_counts_for_no_deadline() {
    let (mut world, _) = waiting();
    assert_eq!(world.machine.deadline(), None);
    world.machine.tick(Timestamp::from_millis(world.now + 900_000));
    world.drain();
    assert_eq!(world.finish, None);

    // A tool that is stopped by the deadline leaves nothing but the approval.
    let mut world = World::new();
    world.answer(9, 2, false, 3);
    world.admit(0b1_0011);
    let at = world.machine.deadline().unwrap();
    let run = world.open.remove(0);
    world.accept(MachineInput::answer(at, run.id, crate::world::response(run.call_id, true)));
    assert!(world.machine.is_waiting());
    world.machine.tick(at);
    world.drain();
    assert_eq!(reason(&world), Some("budget.wall_time".into()));
}

/// Spec: A3. A call that asks a person is at work: beside an approval the run does not wait.
#[test]
fn asking_call_keeps_the_run_at_work() {
    let mut world = World::new();
    world.answer(9, 2, false, 3);
    world.admit(0b1_0011);
    let run = world.open[0].clone();
    let mut dispatched = OperatorDispatched::new("below", "run_below", 1, "digest", Box::default());
    dispatched.call_id = Some(run.call_id.clone());
    let at = world.at();
    world.accept(MachineInput::fact(at, dispatched));
    let waiting = OperatorWaiting::new("below", "run_below", WaitFor::Approval, Vec::new());
    world.accept(MachineInput::fact(at, waiting));
    let asks = |machine: &mut Machine| {
        machine.ask_person(at, &run.call_id, json!({}).into(), "when?".into(), json!({}).into())
    };
    asks(&mut world.machine).unwrap();
    world.machine.wait_below(at);
    world.drain();
    assert!(!world.machine.is_waiting());
}

/// Spec: B3. A run has one end: a stop is refused once it is there.
#[test]
fn stop_of_an_ended_run_is_refused() {
    let mut world = World::new();
    world.answer(9, 0, false, 3);
    assert!(matches!(&world.finish, Some(Finish::Stopped { stop: Stop::Completed, .. })));
    let at = world.at();
    world.refused(MachineInput::fact(at, SignalReceived::new(CANCEL, json!(null))));
}

/// A run that may make one attempt.
fn one_attempt() -> World {
    let mut definition = (*definition()).clone();
    definition.budget.max_model_calls = Some(1);
    World::of(Arc::new(definition))
}

/// Spec: B2, D5
#[test]
fn lost_attempt_stays_within_the_budget() {
    let mut world = one_attempt();
    let mut failed = ModelAttempted::new(1, 1, "script");
    (failed.code, failed.delay_ms) = (Some(Code::new("provider.transient")), Some(1));
    let at = world.at();
    world.accept(MachineInput::fact(at, failed));
    assert_eq!(world.machine.find_lost_steps().models, 0);
}

/// Spec: D5. Only an attempt of which nothing is recorded is lost.
#[test]
fn recorded_attempt_is_not_lost() {
    let mut world = World::new();
    assert_eq!(world.machine.find_lost_steps().models, 1);
    world.attempt(None);
    assert_eq!(world.machine.find_lost_steps().models, 0);

    let mut world = World::new();
    let mut failed = ModelAttempted::new(1, 1, "script");
    (failed.code, failed.delay_ms) = (Some(Code::new("provider.transient")), Some(1));
    let at = world.at();
    world.accept(MachineInput::fact(at, failed.clone()));
    assert_eq!(world.machine.find_lost_steps().models, 1, "the next may have begun");
    (failed.attempt, failed.delay_ms) = (2, None);
    world.accept(MachineInput::fact(at, failed));
    assert_eq!(world.machine.find_lost_steps().models, 0);
}
