//! Requests to the model, and the digests by which a replay detects a changed request (SPEC D2, D6).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use layer0::message::{Image, Message, StopReason, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde_json::{Value, json};

use crate::script::{Script, agent, data, remembering};
use crate::world::started;

/// Returns digest and number of messages of each request.
fn requests(script: &Script) -> Vec<(String, u64)> {
    let requested = script.log.iter().filter(|it| it.kind.event_type() == "model.requested");
    let told = requested.map(|entry| {
        let data = data(entry);
        (data["request_digest"].as_str().unwrap().to_owned(), data["messages"].as_u64().unwrap())
    });
    told.collect()
}

fn texts(script: &Script) -> Vec<Value> {
    let messages = script.machine.transcript().messages().iter();
    messages.map(|message| serde_json::to_value(message).unwrap()["content"].clone()).collect()
}

#[track_caller]
fn check(script: &Script, expected: &[(&str, u64)]) {
    let requests = requests(script);
    let requests: Vec<_> = requests.iter().map(|(digest, count)| (&**digest, *count)).collect();
    assert_eq!(requests, expected);
}

/// Returns an agent that answers in JSON, with a check of its answers.
fn typed() -> Script {
    let mut definition = remembering();
    definition.output_schema = Some(JsonText::parse(r#"{"type":"object"}"#).unwrap());
    let is_json = |text: &str| match text.starts_with('{') {
        true => Ok(()),
        false => Err("it is no JSON".to_owned()),
    };
    let setup = Setup::new("run_1".into()).checking_output(OutputCheck::new(is_json));
    let mut script = Script::set_up(definition, setup, started());
    script.take(MemoryRead::new(vec!["one".into(), "two".into()]));
    script
}

/// Spec: D2. FNV-1a of the instructions, what is remembered and the schema, then of each message.
#[test]
fn digest_covers_each_message_once() {
    let mut script = Script::asking(agent(), &["plain"]);
    script.begin("c0", "plain");
    script.end("c0", "plain");
    check(&script, &[("5cbe8630d8e04981", 2), ("730db1bfa205324b", 4)]);
}

/// Spec: D2. The words of a tool's answer stand in its event.
#[test]
fn digest_tells_whether_a_tool_failed() {
    let digest = |text: &str| {
        let mut script = Script::asking(agent(), &["plain"]);
        let refused = ToolResponded::refusal("c0".into(), "plain".into(), "tool.skipped", text);
        script.take(refused);
        requests(&script)[1].0.clone()
    };
    assert_eq!(
        (digest("no"), digest("not now")),
        ("ba9083c74ea1802c".into(), "ba9083c74ea1802c".into())
    );
}

/// Spec: D2, M1. The words around what is told are the machine's own, and may change.
#[test]
fn digest_covers_facts_and_not_words() {
    let mut script = typed();
    assert_eq!(
        texts(&script)[0].as_str().unwrap().lines().take(6).collect::<Vec<_>>(),
        ["Be brief.", "", "Memory:", "- one", "- two", "",]
    );
    let system = texts(&script)[0].clone();
    assert!(system.as_str().unwrap().ends_with(r#"{"type":"object"}"#), "{system}");
    script.respond(StopReason::End, "no json", Vec::new());
    let told = "The answer does not fit the schema: it is no JSON. Answer again with nothing but JSON that does.";
    assert_eq!(texts(&script)[2..], [json!("no json"), json!(told)]);
    check(&script, &[("5e4018f805fad67b", 2), ("555a75baa3c2beb1", 4)]);
    script.respond(StopReason::End, "{}", Vec::new());
    script.take(MemoryWrote::new(1));
    assert_eq!(script.reason(), "");

    let mut script = typed();
    script.respond(StopReason::End, "no json", Vec::new());
    script.respond(StopReason::End, "nor this", Vec::new());
    assert_eq!(script.reason(), "output.unserializable");
}

/// Spec: M1. Each part of the instructions stands alone where the others are empty.
#[test]
fn empty_parts_leave_no_gaps() {
    let system = |instructions: &str, remembered: &[&str], schema: Option<Value>| {
        let mut definition = remembering();
        definition.instructions = instructions.into();
        definition.output_schema = schema.map(Into::into);
        let mut script = Script::new(definition);
        script.take(MemoryRead::new(remembered.iter().map(|it| Arc::from(*it)).collect()));
        let system = texts(&script)[0].clone();
        system.as_str().unwrap().to_owned()
    };
    assert_eq!(system("", &[], None), "question", "there is no system message");
    assert_eq!(system("", &["one"], None), "Memory:\n- one");
    assert_eq!(system("Be brief.", &["one"], None), "Be brief.\n\nMemory:\n- one");
    let schema = "Your final answer must be nothing but JSON that fits this JSON Schema, without any \
                  text around it:\n{}";
    assert_eq!(system("", &[], Some(json!({}))), schema);
    assert_eq!(system("Be brief.", &[], Some(json!({}))), format!("Be brief.\n\n{schema}"));
}

/// Spec: D2. The session's messages are covered by where its transcript stood, here or not.
#[test]
fn session_is_covered_by_its_own_digest() {
    let following = || {
        let mut started = started();
        started.follows = Some(Box::new(Follows::new("run_0", 9, Hash([7; 32]), 2)));
        started
    };
    let earlier =
        || vec![Arc::new(Message::user("before")), Arc::new(Message::assistant("yes", [].into()))];
    let mut without = Script::start(agent(), following());
    check(&without, &[("758e9b94082bdb01", 4)]);
    without.machine.provide_earlier(earlier());
    assert_eq!(texts(&without), ["Be brief.", "before", "yes", "question"].map(Value::from));

    // As early as that, they are not yet part of the transcript.
    let mut definition = remembering();
    definition.memory = true;
    let mut before = Script::start(definition, following());
    before.machine.provide_earlier(earlier());
    before.take(MemoryRead::new(Vec::new()));
    assert_eq!(texts(&before), ["Be brief.", "before", "yes", "question"].map(Value::from));
    check(&before, &[("758e9b94082bdb01", 4)]);

    // Later messages are covered once, wherever they are.
    let next = |mut script: Script| {
        script.call(&["plain"]);
        script.begin("c0", "plain");
        script.end("c0", "plain");
        requests(&script)[1].clone()
    };
    let (without, before) = (next(without), next(before));
    assert_eq!(without, before);
    assert_eq!(without, next(Script::start(agent(), following())));
}

/// Spec: D2. What was said stays covered, and what is told from here on is added.
#[test]
fn adopted_instructions_are_covered_too() {
    let mut script = Script::asking(agent(), &["plain"]);
    script.begin("c0", "plain");
    let mut other = agent();
    other.instructions = "Be long.".into();
    other.tools = [ToolSpec::new("plain", "", json!({ "type": "object" }))].into();
    script.take(RunResumed::new("ops").adopting(AgentRecord::new("prop", "d", json!(other))));
    script.recover();
    check(&script, &[("5cbe8630d8e04981", 2), ("3e6a4d399172072a", 4)]);
    let tools = |place: usize| {
        let requested = script.log.iter().filter(|it| it.kind.event_type() == "model.requested");
        data(requested.collect::<Vec<_>>()[place])["tools_digest"].clone()
    };
    assert_ne!(tools(0), tools(1), "its tools are others");
    assert_eq!(texts(&script)[0], "Be long.");
}

/// Spec: O2. An input that came while tools ran is read once, with all of its parts.
#[test]
fn further_input_is_read_once() {
    let mut script = Script::asking(agent(), &["plain"]);
    script.begin("c0", "plain");
    for text in [json!("first"), json!("second"), json!(3)] {
        script.take(SignalReceived::new(INPUT, text));
    }
    script.take(SignalReceived::new("other", json!("not for the model")));
    script.end("c0", "plain");
    assert_eq!(texts(&script)[4..], [json!("first\n\nsecond")]);
    script.call(&["plain"]);
    assert_eq!(texts(&script)[5..], [json!("")]);
}

/// Two calls of one run never share an id.
#[test]
fn repeated_and_missing_ids_get_a_suffix() {
    let mut script = Script::new(agent());
    let call = |id: &str| ToolCall::new(id, "plain", json!({}));
    let calls = ["c", "c", "", "c", "", "c~2", "d"].map(call);
    script.respond(StopReason::ToolUse, "", calls.to_vec());
    let ids: Vec<_> = script
        .machine
        .transcript()
        .messages()
        .iter()
        .filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => {
                Some(tool_calls.iter().map(|call| call.id.to_string()).collect::<Vec<_>>())
            }
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(ids, ["c", "c~2", "~1", "c~3", "~2", "c~2~2", "d"]);
}

/// Spec: O2. Messages and images that are handed on are sent with the input.
#[test]
fn start_is_sent_whole() {
    let mut started = started();
    started.history.push(Message::user("before"));
    let image = Image::from_bytes(b"\x89PNG\r\n\x1a\n").unwrap();
    let mut pictured = started.clone();
    pictured.images = [image.clone()].into();
    let pictured = Script::start(agent(), pictured);
    let input = Message::User { content: "question".into(), images: [image].into() };
    assert_eq!(pictured.machine.transcript().messages().last().map(|it| &**it), Some(&input));
    let script = Script::start(agent(), started);
    check(&script, &[("451205a2095ff894", 3)]);
    assert_eq!(texts(&script), ["Be brief.", "before", "question"].map(Value::from));
}

/// Spec: D12. A beginning that is taken back is made anew with all that it had.
#[test]
fn beginning_taken_back_keeps_its_messages() {
    let mut definition = agent();
    definition.hooks = [HookRecord::new("h", vec![HookPoint::RunStart], true)].into();
    let mut started = started();
    started.follows = Some(Box::new(Follows::new("run_0", 9, Hash([7; 32]), 1)));
    started.history.push(Message::user("given"));
    let mut script = Script::start(definition, started);
    script.machine.provide_earlier(vec![Arc::new(Message::user("earlier"))]);
    script.take(SignalReceived::new(CANCEL, json!(null)));
    let again = script.machine.reopening("ops", None, None).unwrap();
    script.take(again);
    script.take(HookPassed::new("run_start", None));
    assert_eq!(texts(&script), ["Be brief.", "earlier", "given", "question"].map(Value::from));
    let mut untouched = crate::world::started();
    untouched.follows = Some(Box::new(Follows::new("run_0", 9, Hash([7; 32]), 1)));
    untouched.history.push(Message::user("given"));
    let untouched = Script::start(agent(), untouched);
    assert_eq!(requests(&script), requests(&untouched));
}

/// Spec: D2, M1. What is remembered stays with the instructions that replace others.
#[test]
fn adopted_instructions_keep_the_memory() {
    let mut first = remembering();
    first.instructions = "".into();
    let mut script = Script::new(first);
    script.take(MemoryRead::new(vec!["one".into()]));
    let adopted = json!(remembering());
    script.take(RunResumed::new("ops").adopting(AgentRecord::new("prop", "d", adopted)));
    assert_eq!(texts(&script), ["Be brief.\n\nMemory:\n- one", "question"].map(Value::from));
}

/// Spec: P9, G3. What was said before does not shorten the pauses.
#[test]
fn paused_turns_end_as_pauses() {
    for (limit, said_before) in [(5, false), (5, true), (1, false), (0, false)] {
        let mut definition = agent();
        definition.limits.max_stagnation_steps = Some(limit);
        let mut script = Script::new(definition);
        if said_before {
            let call = ToolCall::new("c0", "plain", json!({}));
            script.respond(StopReason::ToolUse, "Searching", vec![call]);
            script.begin("c0", "plain");
            script.end("c0", "plain");
        }
        for _ in 0..5 {
            script.respond(StopReason::Pause, "Searching", Vec::new());
        }
        assert_eq!(script.finish, None, "{limit}");
        script.respond(StopReason::Pause, "Searching", Vec::new());
        assert_eq!(script.reason(), "model.pause", "{limit}");
    }
}

/// Spec: P9, G3. A paused turn is one turn: its text counts once.
#[test]
fn pauses_count_for_no_stagnation() {
    let mut definition = agent();
    definition.limits.max_stagnation_steps = Some(2);
    let mut script = Script::new(definition);
    let mut search = |call: &str, pauses: u32| {
        for _ in 0..pauses {
            script.respond(StopReason::Pause, "Searching", Vec::new());
        }
        let calls = vec![ToolCall::new(call, "plain", json!({}))];
        script.respond(StopReason::ToolUse, "Searching", calls);
        assert_eq!(script.finish, None, "{call}");
        script.begin(call, "plain");
        script.end(call, "plain");
    };
    search("c0", 0);
    search("c1", 3);
}

/// Spec: P9. An answer that misfits is no pause: the next ones are counted anew.
#[test]
fn misfit_begins_the_pauses_anew() {
    let mut script = typed();
    let pause = |script: &mut Script| {
        for _ in 0..5 {
            script.respond(StopReason::Pause, "", Vec::new());
        }
    };
    pause(&mut script);
    script.respond(StopReason::End, "no json", Vec::new());
    pause(&mut script);
    assert_eq!(script.finish, None);
    script.respond(StopReason::Pause, "", Vec::new());
    script.take(MemoryWrote::new(1));
    assert_eq!(script.reason(), "model.pause");
}
