//! Differences of endpoints that speak this protocol.

use std::sync::Arc;

use backstop_testkit::{Heard, Loopback, Reply};
use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::{Value, json};

use super::ask::{ask, to};
use crate::it::ask::{hello, send};

/// Returns a stream of these events, then the end marker with this output.
fn stream(events: &[Value], output: &Value) -> Reply {
    let response = json!({ "status": "completed", "output": output });
    let end = json!({ "type": "response.completed", "response": response });
    let events = events.iter().chain([&end]);
    Reply::events(events.map(|event| format!("data: {event}\n\n")).collect::<String>())
}

fn text(index: u64, delta: &str) -> Value {
    json!({ "type": "response.output_text.delta", "output_index": index, "delta": delta })
}

fn message(text: &str) -> Value {
    json!({ "type": "message", "content": [{ "type": "output_text", "text": text }] })
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
}

/// A listener receives the text of the answer once, whichever event it comes from.
#[tokio::test]
async fn text_is_told_once_by_any_event() {
    let done = |index: u64, item: Value| json!({ "type": "response.output_item.done", "output_index": index, "item": item });
    let reasoning = json!({
        "type": "reasoning", "summary": [{ "text": "hm" }, { "text": "yes" }],
    });
    let thought = |index: u64, delta: &str| {
        json!({
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0, "summary_index": index, "delta": delta,
        })
    };
    for (label, events, output) in [
        (
            "in pieces, and all of it again",
            vec![
                thought(0, "h"),
                thought(0, "m"),
                thought(1, "yes"),
                done(0, reasoning.clone()),
                text(1, "a"),
                text(1, "b"),
                done(1, message("ab")),
                text(2, "c"),
                done(2, message("c")),
            ],
            json!([reasoning, message("ab"), message("c")]),
        ),
        (
            "in pieces, and nothing at the end",
            vec![thought(0, "hm"), thought(1, "yes"), text(1, "ab"), text(2, "c")],
            json!([]),
        ),
        (
            "as whole items",
            vec![done(0, reasoning.clone()), done(1, message("ab")), done(2, message("c"))],
            Value::Null,
        ),
        ("at the end", vec![], json!([reasoning, message("ab"), message("c")])),
    ] {
        let server = Loopback::replying([stream(&events, &output)]);
        let heard = Arc::new(Heard::default());
        let request = hello().sink(heard.clone());
        let provider = to(&server.url()).build().unwrap();
        let response = send(&provider, &request, true).await.unwrap();
        assert_eq!(&*response.text, "ab\n\nc", "{label}");
        assert_eq!(response.thinking.as_deref(), Some("hm\n\nyes"), "{label}");
        assert_eq!(heard.text(), *response.text, "{label}");
        assert_eq!(heard.thinking(), "hm\n\nyes", "{label}");
    }
}

#[tokio::test]
async fn pieces_of_calls_find_their_call() {
    let item = |kind: &str, index: Option<u64>, item: Value| json!({ "type": format!("response.output_item.{kind}"), "output_index": index, "item": item });
    let piece = |index: Option<u64>, delta: &str| {
        json!({
            "type": "response.function_call_arguments.delta",
            "output_index": index, "delta": delta,
        })
    };
    let all = |index: u64, arguments: &str| {
        json!({
            "type": "response.function_call_arguments.done",
            "output_index": index, "arguments": arguments,
        })
    };
    let (one, two) = (call("x", "one", r#"{"a":1}"#), call("y", "two", r#"{"b":2}"#));
    for (label, events, output) in [
        (
            "out of order, interleaved",
            vec![
                item("added", Some(7), call("y", "two", "")),
                item("added", Some(3), call("x", "one", "")),
                piece(Some(7), r#"{"b""#),
                piece(Some(3), r#"{"a":"#),
                piece(Some(7), ":2}"),
                piece(Some(3), "1}"),
            ],
            json!([]),
        ),
        (
            "no pieces, but the whole",
            vec![
                item("added", Some(0), call("x", "one", "")),
                all(0, r#"{"a":1}"#),
                item("done", Some(1), two.clone()),
            ],
            json!([one, two]),
        ),
        (
            "without index",
            vec![
                item("added", None, call("x", "one", "")),
                piece(None, r#"{"a":1}"#),
                item("done", None, one.clone()),
                item("added", None, call("y", "two", "")),
                piece(None, r#"{"b":2}"#),
            ],
            json!([one, two]),
        ),
        ("only at the end", vec![], json!([one, two])),
    ] {
        let response = ask(stream(&events, &output), true).await.unwrap();
        assert_eq!(response.stop_reason, StopReason::ToolUse, "{label}");
        let calls: Vec<_> = response
            .tool_calls
            .iter()
            .map(|call| (call.id.as_str(), &*call.name, call.arguments.to_string()))
            .collect();
        let expected = [("x", "one", r#"{"a":1}"#.to_owned()), ("y", "two", r#"{"b":2}"#.into())];
        assert_eq!(calls, expected, "{label}");
    }
}

/// Spec: P1, P9
#[tokio::test]
async fn the_whole_answer_settles_what_was_heard() {
    let done = |index: u64, item: Value| json!({ "type": "response.output_item.done", "output_index": index, "item": item });
    let added = |index: u64, item: Value| json!({ "type": "response.output_item.added", "output_index": index, "item": item });
    let (one, two) = (call("x", "one", r#"{"a":1}"#), call("y", "two", r#"{"b":2}"#));
    let heard_one = [added(0, call("x", "one", "")), done(0, call("x", "one", r#"{"a":0}"#))];
    for (label, events, output, said, calls) in [
        ("a text settled", vec![text(0, "Helo")], json!([message("Hello")]), "Hello", vec![]),
        ("more of a text", vec![text(0, "Hel")], json!([message("Hello")]), "Hello", vec![]),
        (
            "a second message",
            vec![text(0, "a"), done(0, message("a"))],
            json!([message("a"), message("b")]),
            "a\n\nb",
            vec![],
        ),
        (
            "a second call, and the first settled",
            heard_one.to_vec(),
            json!([one, two]),
            "",
            vec![("x", r#"{"a":1}"#), ("y", r#"{"b":2}"#)],
        ),
        (
            "a message behind a call",
            heard_one.to_vec(),
            json!([one, message("done")]),
            "done",
            vec![("x", r#"{"a":1}"#)],
        ),
        (
            "a call without what was heard of it",
            heard_one.to_vec(),
            json!([{ "type": "function_call", "call_id": "x" }]),
            "",
            vec![("x", r#"{"a":0}"#)],
        ),
        (
            "a part of the answer",
            vec![text(0, "a"), added(1, one.clone())],
            json!([message("a")]),
            "a",
            vec![("x", r#"{"a":1}"#)],
        ),
        (
            "an item that is done",
            vec![text(0, "Helo"), done(0, message("Hello"))],
            json!([]),
            "Hello",
            vec![],
        ),
    ] {
        for pieces in [1, usize::MAX] {
            let response = ask(stream(&events, &output).split(pieces), true).await.unwrap();
            assert_eq!(&*response.text, said, "{label}");
            let actual: Vec<_> = response
                .tool_calls
                .iter()
                .map(|call| (call.id.as_str(), call.arguments.to_string()))
                .collect();
            let calls: Vec<_> = calls.iter().map(|(id, it)| (*id, (*it).to_owned())).collect();
            assert_eq!(actual, calls, "{label}");
        }
    }
}

/// Spec: P9
#[tokio::test]
async fn an_incomplete_item_makes_the_answer_cut() {
    let cut = json!({
        "type": "function_call", "call_id": "x", "name": "pay", "arguments": "", "status": "incomplete",
    });
    let said = json!({ "type": "message", "content": [{ "text": "so" }], "status": "incomplete" });
    for item in [cut, said] {
        let added = json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
        let whole = json!({ "status": "completed", "output": [item] });
        for (reply, streamed) in [
            (stream(&[], &json!([item])), true),
            (stream(&[added], &json!([])), true),
            (Reply::json(200, &whole), false),
        ] {
            let response = ask(reply, streamed).await.unwrap();
            assert_eq!(response.stop_reason, StopReason::MaxTokens, "{item}");
            assert!(response.tool_calls.iter().all(|call| call.arguments == json!("")));
        }
    }
}

#[tokio::test]
async fn an_index_from_outside_reserves_no_memory() {
    let item = call("x", "one", "{}");
    let added =
        json!({ "type": "response.output_item.added", "output_index": u64::MAX, "item": item });
    let more = json!({ "type": "response.output_item.added", "item": call("y", "two", "{}") });
    let response = ask(stream(&[added, more], &json!([])), true).await.unwrap();
    assert!(!response.tool_calls.is_empty());
}

/// Additions to the protocol do not stop the rest from being decoded.
#[tokio::test]
async fn unknown_events_and_items_are_ignored() {
    let events = [
        json!({ "type": "response.novelty.delta", "delta": { "not": "text" }, "output_index": "x" }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": { "type": "novelty" } }),
        text(1, "ab"),
    ];
    let output = json!([{ "type": "novelty", "content": 3 }, message("ab")]);
    let response = ask(stream(&events, &output), true).await.unwrap();
    assert_eq!((&*response.text, response.stop_reason), ("ab", StopReason::End));
    let whole = json!({ "status": "completed", "output": output });
    assert_eq!(&*ask(Reply::json(200, &whole), false).await.unwrap().text, "ab");
}

/// Spec: P3
#[tokio::test]
async fn the_marker_of_another_protocol_ends_nothing() {
    let body = format!("data: {}\n\ndata: [DONE]\n\n", text(0, "half"));
    let error = ask(Reply::events(body), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before `response.completed`");
}

/// A malformed prompt and a flagged one have the same code.
///
/// Spec: P4
#[tokio::test]
async fn flagged_prompt_is_blocked() {
    let flagged =
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.";
    for (status, error, code) in [
        (400, json!({ "code": "invalid_prompt", "message": flagged }), "provider.content_blocked"),
        (400, json!({ "code": "invalid_prompt", "message": "x" }), "provider.invalid_request"),
        (403, json!({ "code": "misalignment_policy_violation" }), "provider.content_blocked"),
    ] {
        let body = json!({ "error": error });
        assert_eq!(ask(Reply::json(status, &body), true).await.unwrap_err().code(), code);
        let event = json!({ "type": "response.failed", "response": body });
        let reply = Reply::events(format!("data: {event}\n\n"));
        assert_eq!(ask(reply, true).await.unwrap_err().code(), code);
    }
}
