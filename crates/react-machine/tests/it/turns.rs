//! What becomes of one answer of the model.

use std::sync::Arc;

use react_machine::*;

use crate::world::{World, patient};

/// Spec: G1
#[test]
fn tools_of_the_last_call_run_before_the_guard_trips() {
    let mut world = World::of(patient());
    for _ in 0..5 {
        world.answer(9, 1, false, 3);
        world.admit(1);
        world.tool_answer(0, true, false);
    }
    assert_eq!(world.finish, Some(Finish::Failed(FailureCause::MaxIterations(5))));
    assert_eq!(world.machine.usage().tool_calls, 5);
    assert_eq!(&**world.machine.last_text(), "answer");
}

/// Spec: G1
#[test]
fn zero_iterations_are_refused_at_start() {
    let mut definition = AgentDefinition::new("none", "");
    definition.limits.max_iterations = 0;
    assert_eq!(
        Machine::new(Arc::new(definition)).err(),
        Some(DefinitionError::ZeroLimit("max_iterations"))
    );
}

/// Spec: P9
#[test]
fn a_pause_is_resent_under_the_same_call_and_not_for_ever() {
    let mut world = World::of(patient());
    for _ in 0..6 {
        assert_eq!(world.model.as_ref().map(|call| call.call), Some(1));
        world.answer(3, 0, false, 2);
    }
    assert!(matches!(world.finish, Some(Finish::Failed(FailureCause::InvalidResponse(_)))));
    assert_eq!(world.machine.usage().model_calls, 1);
    assert_eq!(world.machine.usage().model_attempts, 6);
}

/// Spec: G6
#[test]
fn an_empty_answer_is_asked_for_once_more() {
    let mut world = World::new();
    world.answer(9, 0, false, 1);
    world.answer(9, 0, false, 3);
    assert!(matches!(&world.finish, Some(Finish::Stopped { output, .. }) if &**output == "answer"));
    let mut world = World::new();
    world.answer(9, 0, false, 0);
    world.answer(9, 0, false, 0);
    assert!(matches!(world.finish, Some(Finish::Failed(FailureCause::InvalidResponse(_)))));
}

/// Spec: P9
#[test]
fn cut_answers_are_incomplete() {
    #[track_caller]
    fn check(stop: u8, reason: &str) {
        let mut world = World::new();
        world.answer(stop, 0, false, 3);
        let Some(Finish::Stopped { stop, output }) = world.finish else { panic!("it stopped") };
        assert_eq!(stop.reason().map(|code| code.to_string()).as_deref(), Some(reason));
        assert_eq!(&*output, "answer");
    }
    check(0, "model.max_tokens");
    check(1, "model.refusal");
    check(2, "model.content_filter");
}

/// Spec: G4
#[test]
fn an_oversized_batch_trips_before_any_of_it_runs() {
    let mut world = World::new();
    world.answer(9, 4, false, 2);
    assert_eq!(
        world.finish,
        Some(Finish::Failed(FailureCause::ParallelToolLimit { count: 4, limit: 3 }))
    );
    assert!(world.open.is_empty() && world.batches.is_empty());
    assert_eq!(world.machine.usage().tool_calls, 0);
}
