//! Copies of runs (SPEC D7).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::CallId;

use crate::world::{World, definition};

/// Makes the world's run a copy of itself.
fn fork(world: &mut World) {
    let (at, forked) = (world.at(), RunForked::new("run_2", "ses_2", "run_1", 9));
    world.machine.fork(at, "run_2".into(), forked, Vec::new());
    world.finish = None;
    world.drain();
}

/// Spec: D7, D12. A copy of a completed run goes on once, with something said; then it has completed itself.
#[test]
fn completed_copy_is_reopened_once() {
    let mut world = World::new();
    world.answer(9, 0, false, 3);
    assert_eq!(world.machine.reopening("ops", None, None), Err(NotReopenable::Completed));
    fork(&mut world);
    assert_eq!(world.machine.reopening("ops", None, None), Err(NotReopenable::Silent));
    let reopened = world.machine.reopening("ops", Some("and now?".into()), None).unwrap();
    (world.episodes, world.finish) = (2, None);
    let at = world.at();
    world.accept(MachineInput::fact(at, reopened));
    world.answer(9, 0, false, 3);
    let said = Some("again".into());
    assert_eq!(world.machine.reopening("ops", said, None), Err(NotReopenable::Completed));
}

/// A run whose call has dispatched another one, by a tool that does nothing else.
fn dispatching(is_idempotent: bool) -> (World, CallId) {
    let mut definition = definition();
    let tools = definition.tools.iter().cloned().map(layer0::ToolSpec::dispatches);
    let tools: Vec<_> = match is_idempotent {
        true => tools.map(layer0::ToolSpec::idempotent).collect(),
        false => tools.collect(),
    };
    Arc::make_mut(&mut definition).tools = tools.into();
    let mut world = World::of(definition);
    world.answer(9, 1, false, 3);
    world.admit(1);
    let call = world.open[0].call_id.clone();
    let mut dispatched = OperatorDispatched::new("below", "run_below", 1, "d", Box::default());
    dispatched.call_id = Some(call.clone());
    let at = world.at();
    world.accept(MachineInput::fact(at, dispatched));
    (world, call)
}

/// Spec: D7, O3. What is open below is the original's: a copy begins it anew, or answers it.
#[test]
fn copy_leaves_runs_below_to_the_original() {
    for is_idempotent in [false, true] {
        let (mut world, call) = dispatching(is_idempotent);
        let lost = world.machine.find_lost_steps();
        assert_eq!((lost.rerun.len(), lost.interrupted.len()), (0, 0), "it goes on");
        fork(&mut world);
        assert_eq!(world.machine.open_dispatches(), []);
        let lost = world.machine.find_lost_steps();
        let (rerun, interrupted) = match is_idempotent {
            true => (vec![call], Vec::new()),
            false => (Vec::new(), vec![call]),
        };
        assert_eq!((&lost.rerun, &lost.interrupted), (&rerun, &interrupted));
        let at = world.at();
        world.accept(MachineInput::fact(at, lost));
        let lost = world.machine.find_lost_steps();
        assert_eq!((lost.rerun.len(), lost.interrupted.len()), (0, 0), "it is the copy's own now");
    }
}

/// Spec: D5, D7. No process died for a copy.
#[test]
fn copy_is_no_crash() {
    let mut world = World::new();
    for _ in 0..2 {
        let at = world.at();
        let lost = world.machine.find_lost_steps();
        world.accept(MachineInput::fact(at, lost));
    }
    assert!(world.machine.is_crash_loop());
    fork(&mut world);
    for death in 0..3 {
        assert!(!world.machine.is_crash_loop(), "death {death}");
        let at = world.at();
        let lost = world.machine.find_lost_steps();
        world.accept(MachineInput::fact(at, lost));
    }
    assert!(world.machine.is_crash_loop());
}
