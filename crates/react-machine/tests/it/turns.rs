//! The effects of one answer of the model.

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::{ModelResponded, RunRecovered};
use layer0::message::{Message, ProviderState, StatePart, StopReason};
use layer0::stop::Stop;
use layer0::usage::{TokenUsage, Usage};
use serde_json::json;

use crate::script::{Script, agent, data};
use crate::world::{World, patient};

/// Spec: G1
#[test]
fn last_tools_run_before_the_guard_trips() {
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
        CheckedDefinition::new(definition).err(),
        Some(DefinitionError::ZeroLimit("max_iterations"))
    );
}

/// Spec: P9
#[test]
fn pause_is_resent_under_its_call() {
    let mut world = World::of(patient());
    for _ in 0..6 {
        assert_eq!(world.model.as_ref().map(|call| call.call), Some(1));
        world.answer(3, 0, false, 2);
    }
    let Some(Finish::Stopped { stop, output }) = world.finish else { panic!("it stopped") };
    assert_eq!(stop.reason(), Some("model.pause".into()));
    assert_eq!(&*output, "hm");
    assert_eq!(world.machine.usage().model_calls, 1);
    assert_eq!(world.machine.usage().model_attempts, 6);
}

/// Spec: P9
#[test]
fn commentary_is_no_part_of_the_output() {
    let mut world = World::new();
    let call = world.model.take().unwrap();
    let text = "I have looked.\n\nIt is 42.";
    let mut responded = ModelResponded::new(
        call.call,
        text,
        Arc::default(),
        StopReason::End,
        TokenUsage::default(),
    );
    responded.answer = Some("It is 42.".into());
    let at = world.at();
    world.accept(MachineInput::answer(at, call.id, responded));
    let Some(Finish::Stopped { output, .. }) = &world.finish else { panic!("it stopped") };
    assert_eq!(&**output, "It is 42.");
    let last = world.machine.transcript().messages().last().cloned();
    assert_eq!(last.as_deref(), Some(&Message::assistant(text, Arc::default())));
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
fn cut_answers_are_incomplete_and_run_no_call() {
    #[track_caller]
    fn check(stop: u8, calls: usize, reason: &str) {
        let mut world = World::new();
        world.answer(stop, calls, false, 3);
        assert!(world.open.is_empty() && world.batches.is_empty(), "{reason}");
        let Some(Finish::Stopped { stop, output }) = world.finish else { panic!("it stopped") };
        assert_eq!(stop.reason().map(|code| code.to_string()).as_deref(), Some(reason));
        assert_eq!(&*output, "answer");
        assert_eq!(world.machine.usage().tool_calls, 0);
        let messages = world.machine.transcript().messages();
        let asked = messages.iter().filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => Some(tool_calls.len()),
            _ => None,
        });
        let answered = messages.iter().filter(|it| matches!(***it, Message::Tool { .. }));
        assert_eq!((asked.sum(), answered.count()), (calls, calls), "{reason}");
    }
    for calls in [0, 1, 2, 4] {
        check(0, calls, "model.max_tokens");
        check(1, calls, "model.refusal");
        check(2, calls, "model.content_filter");
        check(6, calls, "model.unknown_stop");
    }
}

/// Spec: P9
#[test]
fn paused_turn_is_resent_with_answered_calls() {
    let mut world = World::of(patient());
    world.answer(3, 2, false, 2);
    assert!(world.open.is_empty() && world.batches.is_empty());
    assert!(world.model.is_some(), "it is asked again");
    let messages = world.machine.transcript().messages().to_vec();
    let is_answer = |message: &Message| matches!(message, Message::Tool { is_error: true, .. });
    assert_eq!(messages.iter().filter(|message| is_answer(message)).count(), 2);
    world.answer(9, 0, false, 3);
    assert!(matches!(&world.finish, Some(Finish::Stopped { stop: Stop::Completed, .. })));
}

/// Spec: P8, P9. The signed thinking of a paused turn goes back to its provider.
#[test]
fn paused_turn_without_text_keeps_its_state() {
    let state = ProviderState::new("p", "m", "e", [StatePart::new(json!({ "signed": 1 }))]);
    for state in [None, Some(state)] {
        let mut script = Script::new(agent());
        let before = script.machine.transcript().len();
        let mut paused =
            ModelResponded::new(1, "", [].into(), StopReason::Pause, TokenUsage::default());
        paused.provider_state = state.clone();
        script.take(paused);
        let said = &script.machine.transcript().messages()[before..];
        let states = said.iter().map(|message| match &**message {
            Message::Assistant { provider_state, .. } => provider_state.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(states.collect::<Vec<_>>(), Vec::from_iter(state.map(Some)));
    }
}

/// Spec: P9, G6. A malformed answer is no pause.
#[test]
fn malformed_answer_begins_the_pauses_anew() {
    let mut script = Script::new(agent());
    script.respond(StopReason::Pause, "so far", Vec::new());
    script.respond(StopReason::Malformed, "no", Vec::new());
    for _ in 0..5 {
        script.respond(StopReason::Pause, "so far", Vec::new());
    }
    script.respond(StopReason::End, "done", Vec::new());
    assert_eq!(script.reason(), "");
}

/// Spec: P9
#[test]
fn unknown_stop_names_the_providers_word() {
    let mut script = Script::new(agent());
    script.respond(StopReason::from_word("abducted"), "and so", Vec::new());
    let message = data(script.last())["message"].to_string();
    assert!(message.ends_with("Its word: `abducted`.\""), "{message}");
}

/// Spec: G4
#[test]
fn oversized_batch_trips_before_running() {
    let mut world = World::new();
    world.answer(9, 4, false, 2);
    assert_eq!(
        world.finish,
        Some(Finish::Failed(FailureCause::ParallelToolLimit { count: 4, limit: 3 }))
    );
    assert!(world.open.is_empty() && world.batches.is_empty());
    assert_eq!(world.machine.usage().tool_calls, 0);
}

/// Spec: E11. A record may hold any number; what is counted from it stops at the largest.
#[test]
fn counts_from_a_record_do_not_overflow() {
    let mut world = World::new();
    for _ in 0..3 {
        let at = world.at();
        let lost = RunRecovered::new(vec![], vec![], u32::MAX);
        world.model = None;
        world.accept(MachineInput::fact(at, lost));
        if world.finish.is_some() {
            break;
        }
    }
    assert_eq!(world.machine.usage().model_attempts, u32::MAX);
    let of = |count: u32| {
        let mut usage = Usage::default();
        (usage.model_attempts, usage.tool_calls) = (count, count);
        usage
    };
    let (mut usage, most) = (of(7), of(u32::MAX));
    usage.add_dispatched(&most);
    assert_eq!((usage.model_attempts, usage.tool_calls), (u32::MAX, u32::MAX));
}
