//! Answers with parts in an unusual form, none of them lost.

use backstop_testkit::Reply;
use layer0::failure::Failure;
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use super::ask::{ask, hello, send, to};

/// Makes a stream of these chunks and an end marker.
fn chunks(chunks: &[Value]) -> Reply {
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Reply::events(body + "data: [DONE]\n\n")
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "delta": delta }] })
}

fn stop(reason: &str) -> Value {
    json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })
}

fn piece(call: Value) -> Value {
    delta(json!({ "tool_calls": [call] }))
}

fn head(name: &str, arguments: &str) -> Value {
    piece(json!({ "index": 0, "function": { "name": name, "arguments": arguments } }))
}

fn rest(arguments: &str) -> Value {
    piece(json!({ "index": 0, "function": { "arguments": arguments } }))
}

async fn calls(pieces: &[Value]) -> Vec<String> {
    let pieces = pieces.iter().cloned().chain([stop("tool_calls")]).collect::<Vec<_>>();
    let answer = ask(chunks(&pieces), true).await.unwrap();
    answer.tool_calls.iter().map(|call| format!("{}({})", call.name, call.arguments)).collect()
}

/// Spec: P7
#[tokio::test]
async fn parallel_calls_without_ids_stay_apart() {
    let (one, two) = (r#"{"x":1}"#, r#"{"x":2}"#);
    let whole = |name: &str, arguments: &str| json!({ "index": 0, "function": { "name": name, "arguments": arguments } });
    for (label, pieces) in [
        ("whole", vec![head("act", one), head("act", two)]),
        ("in pieces", vec![head("act", ""), rest(one), head("act", ""), rest(two)]),
        (
            "in smaller pieces",
            vec![head("act", r#"{"x""#), rest(":1}"), head("act", r#"{"x":"#), rest("2}")],
        ),
        ("at once", vec![delta(json!({ "tool_calls": [whole("act", one), whole("act", two)] }))]),
        (
            "by ids that come late",
            vec![
                head("act", one),
                piece(json!({ "index": 0, "id": "b", "function": { "name": "act" } })),
                rest(two),
            ],
        ),
        (
            "by one id for all",
            vec![
                piece(
                    json!({ "index": 0, "id": "a", "function": { "name": "act", "arguments": one } }),
                ),
                piece(
                    json!({ "index": 1, "id": "a", "function": { "name": "act", "arguments": two } }),
                ),
            ],
        ),
        (
            "by a new id with each piece",
            vec![
                piece(
                    json!({ "index": 0, "id": "a", "function": { "name": "act", "arguments": "" } }),
                ),
                piece(json!({ "index": 0, "id": "b", "function": { "arguments": one } })),
                piece(
                    json!({ "index": 1, "id": "c", "function": { "name": "act", "arguments": two } }),
                ),
            ],
        ),
    ] {
        assert_eq!(calls(&pieces).await, ["act({\"x\":1})", "act({\"x\":2})"], "{label}");
    }
    let names = [head("one", ""), head("two", "")];
    assert_eq!(calls(&names).await, ["one({})", "two({})"], "other names");
    let at_once = delta(json!({ "tool_calls": [whole("now", ""), whole("now", "")] }));
    assert_eq!(calls(&[at_once]).await, ["now({})", "now({})"], "alike, at once");
}

/// Spec: P7. The protocol's older form has one call, without an id.
#[tokio::test]
async fn call_in_the_older_form_is_a_call() {
    let call = json!({ "name": "act", "arguments": "{\"x\":1.10}" });
    let message = json!({ "content": "I act.", "function_call": call });
    let choice = json!({ "message": message, "finish_reason": "function_call" });
    let whole = Reply::json(200, &json!({ "choices": [choice] }));
    let piece = |call: Value| delta(json!({ "function_call": call }));
    let streamed = chunks(&[
        delta(json!({ "content": "I act." })),
        piece(json!({ "name": "act", "arguments": "" })),
        piece(json!({ "arguments": "{\"x\":" })),
        piece(json!({ "arguments": "1.10}" })),
        stop("function_call"),
    ]);
    for (reply, is_streamed) in [(whole, false), (streamed, true)] {
        let answer = ask(reply, is_streamed).await.unwrap();
        let calls: Vec<_> =
            answer.tool_calls.iter().map(|it| format!("{}{}", it.name, it.arguments)).collect();
        assert_eq!((&*answer.text, calls), ("I act.", vec![r#"act{"x":1.10}"#.to_owned()]));
        assert_eq!(answer.stop_reason, StopReason::ToolUse);
    }
    // No call in this form, and one in both.
    let both = json!({ "tool_calls": [{ "id": "a", "function": call }], "function_call": call });
    for (message, count) in [(json!({ "content": "no", "function_call": "none" }), 0), (both, 1)] {
        let choice = json!({ "message": message, "finish_reason": "stop" });
        let answer = ask(Reply::json(200, &json!({ "choices": [choice] })), false).await.unwrap();
        assert_eq!(answer.tool_calls.len(), count);
    }
}

/// Spec: P7
#[tokio::test]
async fn call_told_again_is_called_once() {
    let again =
        json!({ "index": 0, "id": "a", "function": { "name": "act", "arguments": "{\"x\":1}" } });
    let only_head =
        json!({ "index": 0, "id": "a", "function": { "name": "act", "arguments": "" } });
    for pieces in [
        vec![piece(again.clone()), piece(again.clone())],
        vec![piece(again.clone()), piece(only_head)],
        vec![head("act", "{\"x\":1}"), head("act", "")],
    ] {
        assert_eq!(calls(&pieces).await, ["act({\"x\":1})"], "{pieces:?}");
    }
    // One id, and other arguments: the right ones are unknown, so the model reads both.
    let other =
        json!({ "index": 0, "id": "a", "function": { "name": "act", "arguments": "{\"x\":2}" } });
    let both = calls(&[piece(again), piece(other)]).await;
    assert_eq!(both, [r#"act("{\"x\":1}{\"x\":2}")"#]);
}

/// Spec: P7
#[tokio::test]
async fn placeholder_before_arguments_is_none() {
    for placeholder in [json!({}), json!(""), Value::Null] {
        let begin = json!({ "index": 0, "id": "a", "function": { "name": "pay", "arguments": placeholder } });
        let called = calls(&[piece(begin), rest("{\"amount\":"), rest(" 3.10}")]).await;
        assert_eq!(called, [r#"pay({"amount":3.10})"#], "{placeholder}");
    }
}

async fn billed(chunks_before: &[Value]) -> Option<TokenUsage> {
    let said = [delta(json!({ "content": "a" })), stop("stop")];
    let all: Vec<Value> = said.into_iter().chain(chunks_before.iter().cloned()).collect();
    ask(chunks(&all), true).await.unwrap().usage
}

#[tokio::test]
async fn later_usage_adds_to_an_earlier_one() {
    let usage = |usage: Value| json!({ "choices": [], "usage": usage });
    let whole = usage(json!({ "prompt_tokens": 900, "completion_tokens": 1 }));
    for (later, output) in [
        (json!({ "prompt_tokens": 900, "completion_tokens": 50 }), 50),
        (json!({ "completion_tokens": 50 }), 50),
        (json!({ "prompt_tokens": 0, "completion_tokens": 50 }), 50),
        (json!({}), 1),
        (Value::Null, 1),
    ] {
        let billed = billed(&[whole.clone(), usage(later.clone())]).await;
        assert_eq!(billed, Some(TokenUsage::new(900, output)), "{later}");
    }
    assert_eq!(billed(&[]).await, None, "nothing was stated");
    assert_eq!(billed(&[usage(json!({}))]).await, None);
    let zeros = json!({ "prompt_tokens": 0, "completion_tokens": 0 });
    assert_eq!(billed(&[usage(zeros)]).await, None);
}

#[tokio::test]
async fn usage_of_compatible_endpoints_is_read() {
    let plain = TokenUsage::new(30, 7);
    for (chunk, expected) in [
        (
            json!({ "choices": [], "x_groq": { "usage": { "prompt_tokens": 30, "completion_tokens": 7 } } }),
            plain,
        ),
        (
            json!({ "choices": [{ "delta": {}, "usage": { "prompt_tokens": 30, "completion_tokens": 7 } }] }),
            plain,
        ),
        (
            json!({ "choices": [], "usage": { "prompt_tokens": 30, "completion_tokens": 7,
                "prompt_cache_hit_tokens": 20, "prompt_cache_miss_tokens": 10 } }),
            plain.cached_tokens(20),
        ),
        (
            json!({ "choices": [], "usage": { "prompt_tokens": 30, "completion_tokens": 7,
                "prompt_tokens_details": { "cached_tokens": 4, "cache_write_tokens": 6 } } }),
            plain.cached_tokens(4).cache_write_tokens(6),
        ),
        (
            json!({ "choices": [], "usage": { "prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 87,
                "completion_tokens_details": { "reasoning_tokens": 50 } } }),
            TokenUsage::new(30, 57),
        ),
    ] {
        assert_eq!(billed(std::slice::from_ref(&chunk)).await, Some(expected), "{chunk}");
    }
    let body = json!({
        "choices": [{ "message": { "content": "a" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 30, "completion_tokens": 7,
            "prompt_tokens_details": { "cache_write_tokens": 6 } },
    });
    let answer = ask(Reply::json(200, &body), false).await.unwrap();
    assert_eq!(answer.usage, Some(plain.cache_write_tokens(6)));
}

/// Spec: P3
#[tokio::test]
async fn missing_finish_reason_needs_a_setting() {
    let done = "data: [DONE]\n\n";
    let said = format!("data: {}\n\n", delta(json!({ "content": "so far" })));
    let empty = format!("data: {}\n\n", stop(""));
    let whole = |reason: Value| json!({ "choices": [{ "message": { "content": "so far" }, "finish_reason": reason }] });
    for (reply, is_whole) in [
        (Reply::events(said.clone() + done), true),
        (Reply::events(said.clone() + &empty + done), true),
        (Reply::json(200, &whole(json!(""))), true),
        (Reply::json(200, &whole(Value::Null)), true),
        (Reply::events(said.clone() + &empty), false),
        (Reply::events(said), false),
    ] {
        for declared in [false, true] {
            let server = backstop_testkit::Loopback::replying([reply.clone()]);
            let provider =
                to(&server.url()).with(|it| it.omits_finish_reason(declared).omits_done(true));
            let answer = send(&provider.build().unwrap(), &hello(), true).await;
            match answer {
                Ok(answer) => {
                    assert!(is_whole && declared, "{reply:?}");
                    assert_eq!((&*answer.text, answer.stop_reason), ("so far", StopReason::End));
                }
                Err(error) => {
                    assert!(!(is_whole && declared), "{error}");
                    assert_eq!(error.code(), "provider.stream_truncated");
                }
            }
        }
    }
}

/// Spec: P9
#[tokio::test]
async fn failure_words_among_reasons_are_failures() {
    for word in
        ["error", "network_error", "insufficient_system_resource", "abort", "upstream_failed"]
    {
        for streamed in [false, true] {
            let reply = match streamed {
                true => chunks(&[delta(json!({ "content": "half" })), stop(word)]),
                false => Reply::json(
                    200,
                    &json!({
                        "choices": [{ "message": { "content": "half" }, "finish_reason": word }],
                    }),
                ),
            };
            let error = ask(reply, streamed).await.unwrap_err();
            assert_eq!(
                (error.code(), error.is_retryable()),
                ("provider.transient", true),
                "{word}"
            );
        }
    }
}

/// Spec: P4
#[tokio::test]
async fn empty_error_beside_an_answer_is_none() {
    for empty in [json!(""), json!({}), json!(false), json!(0), json!([]), json!({ "message": "" })]
    {
        let choice =
            json!({ "message": { "content": "42" }, "finish_reason": "stop", "error": empty });
        let body = json!({ "choices": [choice], "error": empty });
        let answer = ask(Reply::json(200, &body), false).await.unwrap();
        assert_eq!(&*answer.text, "42", "{empty}");
        let chunk = json!({ "choices": [{ "delta": { "content": "42" }, "error": empty }], "error": empty });
        let answer = ask(chunks(&[chunk, stop("stop")]), true).await.unwrap();
        assert_eq!(&*answer.text, "42", "{empty}");
    }
}

/// Groq refuses the output of its model; the loop repeats the request for malformed output.
///
/// Spec: P9, G6
#[tokio::test]
async fn unreadable_call_is_a_malformed_answer() {
    let error = json!({ "error": {
        "message": "Failed to call a function. Please adjust your prompt.",
        "type": "invalid_request_error", "code": "tool_use_failed",
        "failed_generation": "<function=act{\"x\":",
    } });
    for reply in
        [Reply::json(400, &error), Reply::events(format!("event: error\ndata: {error}\n\n"))]
    {
        for streamed in [false, true] {
            let answer = ask(reply.clone(), streamed).await.unwrap();
            assert_eq!(answer.stop_reason, StopReason::Malformed);
            assert_eq!((&*answer.text, answer.usage), ("<function=act{\"x\":", None));
            assert!(answer.tool_calls.is_empty());
        }
    }
}

#[tokio::test]
async fn answer_of_images_alone_is_refused() {
    let message = json!({ "content": "", "images": [{ "image_url": { "url": "data:" } }] });
    let body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
    let error = ask(Reply::json(200, &body), false).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), ("provider.invalid_request", false));
}

/// Spec: P4
#[tokio::test]
async fn json_labelled_as_a_page_is_read() {
    let body = r#"{"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}"#;
    for begin in ["", "\u{feff}", " \n"] {
        let reply = Reply::new(200, "text/html; charset=UTF-8", format!("{begin}{body}"));
        for streamed in [false, true] {
            let answer = ask(reply.clone(), streamed).await.unwrap();
            assert_eq!(&*answer.text, "42");
        }
    }
}
