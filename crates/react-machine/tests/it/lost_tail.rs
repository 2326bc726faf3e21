//! Calls that may have run in events that were lost.

use backstop_react_machine::*;
use layer0::code::TOOL_INTERRUPTED;
use layer0::event::{EventKind, Hash, LostTail, RunResumed};

use crate::world::World;

/// Resumes a run whose record has lost its tail, and returns the codes of the answers that follow.
fn answers_after_a_loss(world: &mut World) -> Vec<String> {
    let before = world.log.len();
    let at = world.at();
    let lost = LostTail::new(99, Hash([9; 32]));
    world.accept(MachineInput::fact(at, RunResumed::new("ops").accepting(lost)));
    let recovered = world.machine.find_lost_steps();
    world.accept(MachineInput::fact(at, recovered));
    let answers = world.log[before..].iter().filter_map(|entry| match &entry.kind {
        EventKind::ToolResponded(answer) => answer.error.as_ref(),
        _ => None,
    });
    answers.map(|error| error.reason.to_string()).collect()
}

/// Spec: J2. It may have been approved, and have run.
#[test]
fn held_call_is_interrupted_after_a_loss() {
    let mut world = World::new();
    world.answer(9, 1, false, 3);
    world.admit(0b1_0001);
    assert!(world.machine.is_waiting());
    assert_eq!(answers_after_a_loss(&mut world), [TOOL_INTERRUPTED]);
    assert!(!world.machine.is_waiting() && world.model.is_some(), "its model is asked");
    assert_eq!(world.machine.unsettled_calls().count(), 1, "a person can say what became of it");
}

/// Spec: J2. The record does not say that it began.
#[test]
fn call_is_interrupted_that_had_not_begun() {
    let mut world = World::new();
    world.answer(9, 2, false, 3);
    assert_eq!(answers_after_a_loss(&mut world), [TOOL_INTERRUPTED; 2]);
    assert!(world.executions.is_empty(), "nothing runs");
}

/// Spec: J2, D5. Without a loss it was certain that it did not run.
#[test]
fn call_is_admitted_again_without_a_loss() {
    let mut world = World::new();
    world.answer(9, 2, false, 3);
    world.batches.clear();
    let at = world.at();
    let recovered = world.machine.find_lost_steps();
    world.accept(MachineInput::fact(at, recovered));
    assert_eq!(world.batches.len(), 1);
}
