//! The messages of a recorded run, as its session reads them (SPEC D9).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::message::{Message, StopReason, ToolCall, Transcript};
use layer0::usage::{TokenUsage, Usage};
use serde_json::json;

use crate::world::started;

#[track_caller]
fn check(events: &[EventKind], expected: &[Message]) {
    let messages: Vec<Message> = collect_messages(events).iter().map(|it| (**it).clone()).collect();
    assert_eq!(messages[1..], *expected);
    assert_eq!(messages[0], Message::user("question"));
}

fn requested() -> EventKind {
    ModelRequested::new(1, "d", "t", 1).into()
}

fn says(text: &str, calls: &[&str], stop: StopReason) -> EventKind {
    let calls = calls.iter().map(|id| ToolCall::new(*id, "plain", json!({}))).collect();
    ModelResponded::new(1, text, calls, stop, TokenUsage::default()).into()
}

fn said(text: &str, calls: &[&str]) -> Message {
    let calls = calls.iter().map(|id| ToolCall::new(*id, "plain", json!({}))).collect();
    Message::assistant(text, calls)
}

fn done(call: &str) -> EventKind {
    ToolResponded::success(call, "plain", json!("done"), 1).into()
}

fn input(name: &str, text: serde_json::Value) -> EventKind {
    SignalReceived::new(name, text).into()
}

const NOT_TAKEN: &str = "The answer was not usable. Answer again.";

#[test]
fn calls_are_answered_in_their_order() {
    let answer = |call: &str| Message::tool(call.into(), "done", false);
    let events =
        [started().into(), says("", &["a", "b", "c"], StopReason::ToolUse), done("c"), done("a")];
    let messages = collect_messages(&events);
    let Message::Tool { content, is_error: true, .. } = &*messages[3] else {
        panic!("{messages:?}")
    };
    let interrupted = Message::tool("b".into(), Arc::clone(content), true);
    assert!(!content.is_empty());
    let expected = [said("", &["a", "b", "c"]), answer("a"), interrupted, answer("c")];
    check(&events, &expected);
    let mut more = events.to_vec();
    more.extend([requested(), says("so", &[], StopReason::End)]);
    let mut expected = expected.to_vec();
    expected.push(said("so", &[]));
    check(&more, &expected);
}

#[test]
fn input_is_read_before_the_next_answer() {
    let reopened = |message: Option<&str>| {
        let mut reopened = RunReopened::new("ops", None);
        reopened.message = message.map(Into::into);
        EventKind::from(reopened)
    };
    let events = [
        started().into(),
        requested(),
        input(INPUT, json!("first")),
        input(INPUT, json!(3)),
        input("other", json!("not for the model")),
        says("one", &[], StopReason::End),
        reopened(Some("second")),
        reopened(None),
        requested(),
        says("two", &[], StopReason::End),
    ];
    check(&events, &[said("one", &[]), Message::user("first\n\nsecond"), said("two", &[])]);
}

#[test]
fn answer_that_was_not_taken_is_told_so() {
    let check = |stop: StopReason, calls: &[&str], expected: &[Message]| {
        let events =
            [started().into(), says("one", calls, stop), says("two", &[], StopReason::End)];
        check(&events, expected);
    };
    let again = Message::user(NOT_TAKEN);
    check(StopReason::End, &[], &[said("one", &[]), again, said("two", &[])]);
    check(StopReason::Pause, &[], &[said("one", &[]), said("two", &[])]);
    check(StopReason::Malformed, &[], &[said("two", &[])]);
    let asked = collect_messages(&[
        started().into(),
        says("one", &["a"], StopReason::ToolUse),
        done("a"),
        says("two", &[], StopReason::End),
    ]);
    assert_eq!(asked.len(), 4, "{asked:?}");
}

#[test]
fn late_outcomes_are_read_as_input() {
    let resolved = |call: &str| {
        EventKind::from(ToolResolved::new(call, "ops", Verdict::Happened, None, "ops says so"))
    };
    let probed = |verdict| EventKind::from(ToolProbed::new("a", verdict, None));
    let read = |late: &[EventKind]| {
        let mut events = vec![started().into(), says("", &["a"], StopReason::ToolUse), done("a")];
        events.extend_from_slice(late);
        events.extend([requested(), says("so", &[], StopReason::End)]);
        let messages = collect_messages(&events);
        messages[3..messages.len() - 1].iter().map(|it| (**it).clone()).collect::<Vec<_>>()
    };
    assert_eq!(read(&[resolved("a")]), [Message::user("ops says so")]);
    assert_eq!(read(&[resolved("b")]), [], "a running call is answered with it");
    let did_not = "`plain` says that its call `a` did not happen; it may be called again.";
    assert_eq!(read(&[probed(Verdict::DidNot)]), [Message::user(did_not)]);
    assert_eq!(read(&[probed(Verdict::Unknown)]), []);
}

#[test]
fn answer_of_a_workflow_is_its_output() {
    let finished = RunFinished::new(layer0::stop::Outcome::Completed, "output", Usage::default());
    let mut workflow = started();
    workflow.agent.definition = AgentRecord::workflow(&["a"], "flow");
    check(&[workflow.into(), finished.clone().into()], &[said("output", &[])]);
    check(&[started().into(), finished.into()], &[]);
}

#[test]
fn handed_messages_come_before_the_input() {
    let mut started = started();
    started.history = Transcript::default();
    started.history.push(Message::user("before"));
    let messages: Vec<Message> =
        collect_messages(&[started.into()]).iter().map(|it| (**it).clone()).collect();
    assert_eq!(messages, [Message::user("before"), Message::user("question")]);
}
