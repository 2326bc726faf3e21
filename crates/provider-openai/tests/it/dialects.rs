//! Differences of compatible endpoints.

use backstop_testkit::{Ending, Reply};
use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::{Value, json};

use super::ask::ask;

/// Returns a stream of these deltas, then a finish reason and the end marker.
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
async fn text_in_parts_and_both_thinking_names() {
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

/// A token limit may cut a character that is written as two escapes.
///
/// Spec: P7
#[tokio::test]
async fn half_a_character_holds_no_end_up() {
    let mut reply = stream(&[json!({ "content": "x @" })], "length");
    let body = String::from_utf8(reply.body.clone()).unwrap().replace('@', "\\ud83d");
    // The connection stays open behind the end.
    let length = body.len();
    reply.body = (body + ": more\n\n").into_bytes();
    let answer = ask(reply.ending(Ending::HangAt(length)), true).await.unwrap();
    assert_eq!(&*answer.text, "x \u{fffd}");
    assert_eq!(answer.stop_reason, StopReason::MaxTokens);
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

/// A model that writes about errors is not a failure.
#[tokio::test]
async fn word_error_in_an_answer_is_no_failure() {
    let call = json!({ "id": "x", "function": { "name": "f", "arguments": { "error": "e" } } });
    let message = json!({ "content": "\"error\": {", "tool_calls": [call] });
    let body =
        json!({ "error": null, "choices": [{ "message": message, "finish_reason": "stop" }] });
    let response = ask(Reply::json(200, &body), false).await.unwrap();
    assert_eq!(response.tool_calls[0].arguments, json!({ "error": "e" }));
}

/// Arguments never move to another call.
#[tokio::test]
async fn calls_without_index_and_id_stay_apart() {
    let call = |name: &str, path: &str| json!({ "function": { "name": name, "arguments": { "path": path } } });
    let both = json!({ "tool_calls": [call("delete", "/tmp/x"), call("read", "/etc")] });
    let response = ask(stream(&[both], "stop"), true).await.unwrap();
    let calls: Vec<_> = response
        .tool_calls
        .iter()
        .map(|call| (&*call.name, call.arguments.value()["path"].clone()))
        .collect();
    assert_eq!(calls, [("delete", json!("/tmp/x")), ("read", json!("/etc"))]);
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

/// Spec: P1
#[tokio::test]
async fn choices_beside_the_first_are_ignored() {
    let choice = |index: Value, text: &str, reason: Value| {
        let message = json!({ "content": text });
        json!({ "index": index, "message": message, "delta": message, "finish_reason": reason })
    };
    for first in [json!(0), json!(0.0), json!("0"), Value::Null] {
        let choices = |text: &str, reason: &Value| {
            let other = choice(json!(1), "other ", reason.clone());
            json!({ "choices": [other, choice(first.clone(), text, reason.clone())] })
        };
        let whole = choices("asked for", &json!("stop"));
        let pieces = [("asked ", Value::Null), ("for", json!("stop"))]
            .map(|(text, reason)| format!("data: {}\n\n", choices(text, &reason)));
        let other = json!({ "choices": [choice(json!(2), "another", json!("length"))] });
        let body = format!("{}data: {other}\n\ndata: [DONE]\n\n", pieces.concat());
        for (reply, streamed) in [(Reply::json(200, &whole), false), (Reply::events(body), true)] {
            let answer = ask(reply, streamed).await.unwrap();
            assert_eq!((&*answer.text, answer.stop_reason), ("asked for", StopReason::End));
        }
    }
}

/// Spec: P7
#[tokio::test]
async fn a_stream_in_a_stream_is_unwrapped() {
    let plain = stream(&[json!({ "content": "a" }), json!({ "content": "b" })], "stop");
    let body = String::from_utf8(plain.body).unwrap().replace("data: ", "data: data: ");
    for pieces in [1, usize::MAX] {
        let answer = ask(Reply::events(body.as_str()).split(pieces), true).await.unwrap();
        assert_eq!(&*answer.text, "ab");
    }
}

/// Spec: P9
#[tokio::test]
async fn calls_of_a_refusal_are_of_a_refusal() {
    let call = json!({ "id": "x", "function": { "name": "f", "arguments": "" } });
    let deltas = [json!({ "refusal": "no" }), json!({ "tool_calls": [call] })];
    for reason in ["stop", "tool_calls"] {
        let answer = ask(stream(&deltas, reason), true).await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::Refusal);
        assert_eq!(answer.tool_calls[0].arguments, json!(""));
    }
}

#[tokio::test]
async fn content_of_any_form_keeps_the_answer() {
    for (content, text) in [
        (Value::Null, ""),
        (json!("a"), "a"),
        (json!(["a", { "text": "b" }, { "type": "image" }, null, 3]), "ab"),
        (json!({ "type": "text", "text": "a" }), "a"),
        (json!(42), ""),
    ] {
        let message = json!({ "content": content, "refusal": false, "reasoning": {} });
        let choice = json!({ "message": message, "finish_reason": "stop" });
        let body = json!({ "choices": [choice], "usage": "n/a" });
        let answer = ask(Reply::json(200, &body), false).await.unwrap();
        assert_eq!(&*answer.text, text, "{content}");
    }
}

/// Mistral's parts of thoughts, whole and in pieces.
///
/// Spec: P7
#[tokio::test]
async fn thoughts_among_the_parts_are_thinking() {
    let thought =
        |text: &str| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] });
    let whole = json!([thought("I think"), { "type": "text", "text": "42" }]);
    let choice = json!({ "message": { "content": whole }, "finish_reason": "stop" });
    let replies = [
        (Reply::json(200, &json!({ "choices": [choice] })), false),
        (
            stream(
                &[
                    json!({ "content": [thought("I ")] }),
                    json!({ "content": [thought("think")] }),
                    json!({ "content": "42" }),
                ],
                "stop",
            ),
            true,
        ),
    ];
    for (reply, streamed) in replies {
        let answer = ask(reply, streamed).await.unwrap();
        assert_eq!(answer.thinking.as_deref(), Some("I think"));
        assert_eq!(&*answer.text, "42");
    }
}

/// OpenRouter ends an answer that it has cut off with an error next to the finish reason.
///
/// Spec: P9
#[tokio::test]
async fn token_limit_behind_a_cut_is_no_refusal() {
    let chunk = |reason: Option<&str>, more: &str| {
        let choice = json!({ "index": 0, "delta": { "content": "so " }, "finish_reason": reason });
        format!("data: {{\"choices\":[{choice}]{more}}}\n\n")
    };
    let error = r#","error":{"code":400,"message":"Token limit reached"},"usage":{"prompt_tokens":43,"completion_tokens":10}"#;
    let body = |reason| chunk(reason, "") + &chunk(None, error) + "data: [DONE]\n\n";
    let answer = ask(Reply::events(body(Some("length"))), true).await.unwrap();
    assert_eq!(answer.stop_reason, StopReason::MaxTokens);
    assert_eq!(&*answer.text, "so so ");
    assert_eq!(answer.usage.unwrap_or_default().input_tokens, 43);
    let error = ask(Reply::events(body(None)), true).await.unwrap_err();
    assert_eq!(error.code(), "provider.invalid_request");
}
