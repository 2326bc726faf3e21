//! Checks that answers arrive unchanged.

use backstop_provider::ScriptedAnswer;
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use super::exchange::{answer, ask, billed, calling, calls};
use crate::server::Reply;
use crate::wire::{Cannot, Wire};

pub(super) async fn answers_arrive_whole(wire: Wire) {
    let wire = &wire;
    for streamed in wire.stream_modes() {
        for piece_bytes in [None, Some(1), Some(7)] {
            let at = format!("streamed: {streamed}, pieces of {piece_bytes:?} bytes");
            a_text_arrives(wire, streamed, piece_bytes, &at).await;
            calls_arrive(wire, streamed, piece_bytes, &at).await;
        }
    }
}

async fn a_text_arrives(wire: &Wire, streamed: bool, piece_bytes: Option<usize>, at: &str) {
    let thinking = wire.can(Cannot::Think).then_some("hm, let me see");
    let mut script = answer(wire);
    script.thinking = thinking.map(Into::into);
    let sent = Reply { piece_bytes, ..wire.says(&script, streamed) };
    let (result, heard) = ask(wire, sent, streamed).await;
    let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!(&*said.text, "grüße 👍 one two three", "{at}");
    assert_eq!(said.thinking.as_deref(), thinking, "thinking: {at}");
    assert_eq!(said.stop_reason, StopReason::End, "{at}");
    assert_eq!(said.usage, Some(billed(wire)), "what was billed: {at}");
    if streamed {
        assert_eq!(heard.text(), *said.text, "what is streamed is what is answered: {at}");
        let thought = thinking.unwrap_or_default();
        assert_eq!(heard.thinking(), thought, "what is streamed is what is thought: {at}");
    }
    assert_eq!(heard.usage().last(), said.usage.as_ref(), "the sink is told what was billed: {at}");
    assert_eq!(heard.statuses(), [200], "the sink is told the status: {at}");
}

async fn calls_arrive(wire: &Wire, streamed: bool, piece_bytes: Option<usize>, at: &str) {
    let sent = Reply { piece_bytes, ..wire.says(&calls(), streamed) };
    let (result, _) = ask(wire, sent, streamed).await;
    let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!(said.stop_reason, StopReason::ToolUse, "{at}");
    let arguments: Vec<Value> = said.tool_calls.iter().map(|call| call.arguments.value()).collect();
    let scripted = calls().tool_calls;
    let expected: Vec<&Value> = scripted.iter().map(|call| &call.arguments).collect();
    assert_eq!(arguments.iter().collect::<Vec<_>>(), expected, "calls in their order: {at}");
    assert!(said.tool_calls.iter().all(|call| &*call.name == "weather"), "{at}");
    // The machine gives an id to a call without one.
    for (call, id) in said.tool_calls.iter().zip(["call_1", "call_2"]) {
        let expected = if wire.can(Cannot::NameCalls) { id } else { "" };
        assert_eq!(call.id.as_str(), expected, "the id of a call: {at}");
    }
    let billed = said.usage.unwrap_or_default();
    assert_eq!(billed, TokenUsage::default(), "nothing was said of tokens: {at}");
}

/// Spec: P9
pub(super) async fn reasons_to_stop_are_what_they_were(wire: Wire) {
    let wire = &wire;
    // Normal ends and calls are checked with the answers.
    let reasons = [
        StopReason::MaxTokens,
        StopReason::Refusal,
        StopReason::ContentFilter,
        StopReason::Pause,
        StopReason::ContextExceeded,
        StopReason::Malformed,
    ];
    for reason in reasons.into_iter().filter(|reason| wire.can(Cannot::Stop((*reason).clone()))) {
        let script = ScriptedAnswer::saying("so far").stop_reason(reason.clone());
        for streamed in wire.stream_modes() {
            let at = format!("{reason:?} (streamed: {streamed})");
            let (result, _) = ask(wire, wire.says(&script, streamed), streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(said.stop_reason, reason, "the reason to stop: {at}");
            assert_eq!(&*said.text, "so far", "{at}");
        }
    }
}

/// Spec: P7
pub(super) async fn arguments_that_are_no_json_are_given_back(wire: Wire) {
    let wire = &wire;
    for written in [r#"{"city": "#, "<tool>é👍"] {
        let script = ScriptedAnswer::default().tool_calls([calling("call_1", json!(written))]);
        for streamed in wire.stream_modes() {
            let at = format!("`{written}` (streamed: {streamed})");
            let (result, _) = ask(wire, wire.says(&script, streamed), streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            let read: Vec<Value> =
                said.tool_calls.iter().map(|call| call.arguments.value()).collect();
            assert_eq!(read, [written], "arguments that are no JSON are given back: {at}");
        }
    }
}
