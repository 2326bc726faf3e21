//! Answers whose last event omits earlier items.

use std::sync::Arc;

use backstop_testkit::{Heard, Loopback, Reply};
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

use super::ask::{ask, to};
use crate::it::ask::{hello, send};

fn stream(events: &[Value], output: &Value) -> Reply {
    let response = json!({ "status": "completed", "output": output });
    let end = json!({ "type": "response.completed", "response": response });
    let events = events.iter().chain([&end]);
    Reply::events(events.map(|event| format!("data: {event}\n\n")).collect::<String>())
}

fn done(index: u64, item: &Value) -> Value {
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn call(id: &str, name: &str, x: u32) -> Value {
    let arguments = format!("{{\"x\":{x}}}");
    json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
}

fn message(text: &str) -> Value {
    json!({ "type": "message", "content": [{ "type": "output_text", "text": text }] })
}

/// Spec: P7
#[tokio::test]
async fn done_items_stay_whatever_the_end_repeats() {
    let items = [message("first"), call("a", "one", 1), message("second"), call("b", "two", 2)];
    let events: Vec<Value> = (0..).zip(&items).map(|(at, item)| done(at, item)).collect();
    for mask in 0..16_u32 {
        let kept = items.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0);
        let output: Vec<&Value> = kept.map(|(_, item)| item).collect();
        let server = Loopback::replying([stream(&events, &json!(output))]);
        let heard = Arc::new(Heard::default());
        let provider = to(&server.url()).build().unwrap();
        let answer = send(&provider, &hello().sink(heard.clone()), true).await.unwrap();
        assert_eq!(&*answer.text, "first\n\nsecond", "{output:?}");
        assert_eq!(heard.text(), *answer.text, "{output:?}");
        let calls: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}{}", it.name, it.arguments)).collect();
        assert_eq!(calls, [r#"one{"x":1}"#, r#"two{"x":2}"#], "{output:?}");
    }
}

/// Some endpoints give all items one index.
///
/// Spec: P7
#[tokio::test]
async fn items_with_one_index_stay_apart() {
    let text = |piece: &str| json!({ "type": "response.output_text.delta", "output_index": 0, "delta": piece });
    let pieces = |piece: &str| {
        let kind = "response.function_call_arguments.delta";
        json!({ "type": kind, "output_index": 0, "delta": piece })
    };
    let head = |id: &str, name: &str| {
        let item = json!({ "type": "function_call", "call_id": id, "name": name, "arguments": "" });
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item })
    };
    let (one, two) = (call("a", "one", 1), call("b", "two", 2));
    let whole =
        [done(0, &message("first")), done(0, &one), done(0, &message("second")), done(0, &two)];
    let in_pieces = [
        text("first"),
        done(0, &message("first")),
        head("a", "one"),
        pieces("{\"x\":1}"),
        done(0, &one),
        text("second"),
        done(0, &message("second")),
        head("b", "two"),
        pieces("{\"x\":"),
        pieces("2}"),
        done(0, &two),
        // A repetition.
        done(0, &one),
        done(0, &message("second")),
    ];
    for events in [&whole[..], &in_pieces] {
        for output in [json!([]), json!([message("first"), one, message("second"), two])] {
            let server = Loopback::replying([stream(events, &output)]);
            let heard = Arc::new(Heard::default());
            let provider = to(&server.url()).build().unwrap();
            let answer = send(&provider, &hello().sink(heard.clone()), true).await.unwrap();
            assert_eq!(&*answer.text, "first\n\nsecond", "{output:?}");
            assert_eq!(heard.text(), *answer.text, "{output:?}");
            let calls: Vec<String> =
                answer.tool_calls.iter().map(|it| format!("{}{}", it.name, it.arguments)).collect();
            assert_eq!(calls, [r#"one{"x":1}"#, r#"two{"x":2}"#], "{output:?}");
        }
    }
}

/// Spec: P7
#[tokio::test]
async fn calls_without_ids_stay_apart() {
    let call = |name: &str, x: u32| {
        let arguments = format!("{{\"x\":{x}}}");
        json!({ "type": "function_call", "name": name, "arguments": arguments })
    };
    for (second, output, expected) in [
        (0, json!([]), [r#"one{"x":1}"#, r#"two{"x":2}"#]),
        (1, json!([]), [r#"one{"x":1}"#, r#"two{"x":2}"#]),
        (0, json!([call("two", 2)]), [r#"one{"x":1}"#, r#"two{"x":2}"#]),
        (1, json!([call("two", 2)]), [r#"one{"x":1}"#, r#"two{"x":2}"#]),
        (1, json!([call("one", 1)]), [r#"one{"x":1}"#, r#"two{"x":2}"#]),
        // The last event overrides a call.
        (1, json!([call("one", 3)]), [r#"one{"x":3}"#, r#"two{"x":2}"#]),
        (1, json!([call("one", 1), call("two", 3)]), [r#"one{"x":1}"#, r#"two{"x":3}"#]),
    ] {
        let events = [done(0, &call("one", 1)), done(second, &call("two", 2))];
        let server = Loopback::replying([stream(&events, &output)]);
        let provider = to(&server.url()).build().unwrap();
        let answer = send(&provider, &hello(), true).await.unwrap();
        let calls: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}{}", it.name, it.arguments)).collect();
        assert_eq!(calls, expected, "{second} {output:?}");
    }
    let events = [done(0, &call("pay", 1)), done(1, &call("pay", 2))];
    let server = Loopback::replying([stream(&events, &json!([call("pay", 2)]))]);
    let answer = send(&to(&server.url()).build().unwrap(), &hello(), true).await.unwrap();
    let calls: Vec<String> = answer.tool_calls.iter().map(|it| it.arguments.to_string()).collect();
    assert_eq!(calls, [r#"{"x":1}"#, r#"{"x":2}"#]);
}

/// Spec: P7, D5. Each item of a list has its own place.
#[tokio::test]
async fn equal_calls_of_a_list_are_two() {
    let item =
        json!({ "type": "function_call", "call_id": "k", "name": "act", "arguments": "{\"x\":1}" });
    let output = json!([item, item]);
    let whole = Reply::json(200, &json!({ "status": "completed", "output": output }));
    let events = [done(0, &item), done(1, &item)];
    for (reply, is_streamed) in
        [(whole, false), (stream(&[], &output), true), (stream(&events, &output), true)]
    {
        let answer = ask(reply, is_streamed).await.unwrap();
        let calls: Vec<_> = answer.tool_calls.iter().map(|it| it.arguments.get()).collect();
        assert_eq!(calls, [r#"{"x":1}"#; 2], "streamed: {is_streamed}");
    }
    let once = stream(&[done(0, &item)], &json!([item]));
    assert_eq!(ask(once, true).await.unwrap().tool_calls.len(), 1);
}

/// Spec: P7, D5. An endpoint may give one id to several calls.
#[tokio::test]
async fn calls_with_one_id_stay_apart() {
    for item_ids in [["fc_0", "fc_1"], ["", ""]] {
        let item = |at: usize, arguments: &str| json!({ "type": "function_call", "id": item_ids[at], "call_id": "k", "name": "act", "arguments": arguments });
        let arguments = [r#"{"x":1}"#, r#"{"x":2}"#];
        let events = (0..2).flat_map(|at| {
            let added = "response.output_item.added";
            let delta = "response.function_call_arguments.delta";
            [
                json!({ "type": added, "output_index": at, "item": item(at, "") }),
                json!({ "type": delta, "output_index": at, "item_id": item_ids[at], "delta": arguments[at] }),
                done(at as u64, &item(at, arguments[at])),
            ]
        });
        let events: Vec<Value> = events.collect();
        let whole = json!([item(0, arguments[0]), item(1, arguments[1])]);
        let alone = json!({ "status": "completed", "output": whole });
        for (reply, is_streamed) in [
            (stream(&events, &whole), true),
            (stream(&events, &json!([])), true),
            (stream(&[], &whole), true),
            (Reply::json(200, &alone), false),
        ] {
            let answer = ask(reply, is_streamed).await.unwrap();
            let calls: Vec<_> = answer.tool_calls.iter().map(|it| it.arguments.get()).collect();
            assert_eq!(calls, arguments, "{item_ids:?}");
        }
    }
}

/// Spec: P7
#[tokio::test]
async fn call_with_a_late_new_id_is_one() {
    for (told, repeated) in [
        (call("a", "one", 1), call("z", "one", 1)),
        (call("", "one", 1), call("z", "one", 1)),
        (call("a", "one", 1), call("", "one", 1)),
    ] {
        let answer = ask(stream(&[done(0, &told)], &json!([repeated])), true).await.unwrap();
        assert_eq!(answer.tool_calls.len(), 1, "{told}");
        // The last event omits the item before.
        let events = [done(0, &message("so")), done(1, &told)];
        let answer = ask(stream(&events, &json!([told])), true).await.unwrap();
        assert_eq!((answer.tool_calls.len(), &*answer.text), (1, "so"), "{told}");
    }
}

#[tokio::test]
async fn tokens_written_to_the_cache_are_billed() {
    let usage = json!({
        "input_tokens": 30, "output_tokens": 7, "total_tokens": 87,
        "input_tokens_details": { "cached_tokens": 4, "cache_write_tokens": 6 },
        "output_tokens_details": { "reasoning_tokens": 50 },
    });
    let body =
        json!({ "status": "completed", "output": [message("a")], "usage": usage, "error": {} });
    let answer = ask(Reply::json(200, &body), false).await.unwrap();
    let billed = TokenUsage::new(30, 57).cached_tokens(4).cache_write_tokens(6);
    assert_eq!(answer.usage, Some(billed));
}
