//! Answers whose last event leaves out what was told before.

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
        // What comes before it is left out at the end.
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
