//! What compatible endpoints do differently.

use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::{Value, json};
use testkit::Reply;

use super::ask::ask;

/// Sends these deltas, then a finish reason and the end marker.
fn stream(deltas: &[Value], finish_reason: &str) -> Reply {
    let chunk = |delta: &Value, reason: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let mut body: String = deltas.iter().map(|delta| chunk(delta, None)).collect();
    body += &chunk(&json!({}), Some(finish_reason));
    Reply::events(body + "data: [DONE]\n\n")
}

#[tokio::test]
async fn pieces_of_calls_find_their_call() {
    let piece = |value| json!({ "tool_calls": [value] });
    let one = json!({ "name": "one", "arguments": "{\"a\":" });
    let rest = json!({ "name": "one", "arguments": "1}" });
    let two = json!({ "name": "two", "arguments": {"b": 2} });
    for (label, deltas) in [
        (
            "by index, out of order, names repeated",
            vec![
                piece(json!({ "index": 4, "id": "y", "function": two })),
                piece(json!({ "index": 1, "id": "x", "function": one })),
                piece(json!({ "index": 1, "id": "x", "function": rest })),
            ],
        ),
        (
            "without index, by id",
            vec![
                piece(json!({ "id": "x", "function": one })),
                piece(json!({ "id": "x", "function": rest })),
                piece(json!({ "id": "y", "function": two })),
            ],
        ),
        (
            "without index, in order",
            vec![
                piece(json!({ "id": "x", "function": one })),
                piece(json!({ "function": rest })),
                piece(json!({ "id": "y", "function": two })),
            ],
        ),
        (
            "one index for all, by id",
            vec![
                piece(json!({ "index": 0, "id": "x", "function": one })),
                piece(json!({ "index": 0, "function": rest })),
                piece(json!({ "index": 0, "id": "y", "function": two })),
            ],
        ),
        (
            "all at once",
            vec![json!({ "content": null, "tool_calls": [
                { "index": 0, "id": "x", "function": { "name": "one", "arguments": "{\"a\":1}" } },
                { "index": 1, "id": "y", "function": two },
            ] })],
        ),
    ] {
        let response = ask(stream(&deltas, "stop"), true).await.unwrap();
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

#[tokio::test]
async fn an_index_from_outside_reserves_no_memory() {
    let call = json!({ "index": u64::MAX, "id": "x", "function": { "name": "one" } });
    let response = ask(stream(&[json!({ "tool_calls": [call] })], "tool_calls"), true).await;
    assert_eq!(response.unwrap().tool_calls.len(), 1);
}

#[tokio::test]
async fn text_may_come_in_parts_and_thinking_under_two_names() {
    let response = ask(
        stream(
            &[
                json!({ "reasoning": "hm", "reasoning_content": "hm" }),
                json!({ "reasoning": ", yes", "content": "" }),
                json!({ "content": [{ "type": "text", "text": "a" }, { "type": "image" }] }),
                json!({ "content": "b", "annotations": [1] }),
            ],
            "stop",
        ),
        true,
    )
    .await
    .unwrap();
    assert_eq!((&*response.text, response.thinking.as_deref()), ("ab", Some("hm, yes")));
}

/// Spec: P4
#[tokio::test]
async fn failures_hide_in_many_places() {
    let flagged = json!({ "error": { "metadata": { "flagged_input": "x" }, "code": 403 } });
    let busy = json!({ "error": { "message": "busy", "code": 429 } });
    let choice = json!({ "choices": [{ "error": { "code": 502, "message": "upstream" } }] });
    for (reply, streamed, code) in [
        (Reply::json(403, &flagged), false, "provider.content_blocked"),
        (Reply::json(200, &busy), false, "provider.rate_limited"),
        (Reply::json(200, &busy), true, "provider.rate_limited"),
        (Reply::events(format!("data: {busy}\n\n")), true, "provider.rate_limited"),
        (Reply::events(format!("event: error\ndata: {busy}\n\n")), true, "provider.rate_limited"),
        (Reply::json(200, &choice), false, "provider.transient"),
        (Reply::events(format!("data: {choice}\n\n")), true, "provider.transient"),
        (Reply::json(200, &json!({ "error": "loading" })), false, "provider.transient"),
    ] {
        let context = format!("{reply:?}");
        assert_eq!(ask(reply, streamed).await.unwrap_err().code(), code, "{context}");
    }
}

/// A model that writes about errors is not one.
#[tokio::test]
async fn the_word_error_in_an_answer_is_no_failure() {
    let call = json!({ "id": "x", "function": { "name": "f", "arguments": { "error": "e" } } });
    let message = json!({ "content": "\"error\": {", "tool_calls": [call] });
    let body =
        json!({ "error": null, "choices": [{ "message": message, "finish_reason": "stop" }] });
    let response = ask(Reply::json(200, &body), false).await.unwrap();
    assert_eq!(*response.tool_calls[0].arguments, json!({ "error": "e" }));
}

/// Arguments never become another call's.
#[tokio::test]
async fn calls_without_index_and_id_that_come_together_are_as_many_calls() {
    let call = |name: &str, path: &str| json!({ "function": { "name": name, "arguments": { "path": path } } });
    let both = json!({ "tool_calls": [call("delete", "/tmp/x"), call("read", "/etc")] });
    let response = ask(stream(&[both], "stop"), true).await.unwrap();
    let calls: Vec<_> =
        response.tool_calls.iter().map(|call| (&*call.name, &call.arguments["path"])).collect();
    assert_eq!(calls, [("delete", &json!("/tmp/x")), ("read", &json!("/etc"))]);
}

#[tokio::test]
async fn an_empty_finish_reason_takes_nothing_back() {
    let chunk = |reason: &str| {
        let choice = json!({ "delta": { "content": "a" }, "finish_reason": reason });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let body = format!("{}{}data: [DONE]\n\n", chunk("stop"), chunk(""));
    let response = ask(Reply::events(body), true).await.unwrap();
    assert_eq!((&*response.text, response.stop_reason), ("aa", StopReason::End));
}
