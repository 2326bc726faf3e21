//! Properties: nothing is lost, whatever an endpoint omits or repeats.

use backstop_provider::ModelResponse;
use layer0::usage::TokenUsage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ask::ADAPTER;

fn read(body: String) -> ModelResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on((ADAPTER.read)("text/event-stream", body.into_bytes())).unwrap()
}

proptest! {
    /// `how` is 0 if an item is sent in pieces before it is done. `end` has a bit for each item
    /// that the last event repeats.
    ///
    /// Spec: P7
    #[test]
    fn nothing_that_was_told_is_missing(
        items in prop::collection::vec((any::<bool>(), "[a-z é{}\"]{1,9}", 0..2_u8), 1..6),
        has_index in any::<bool>(),
        has_item_ids in any::<bool>(),
        piece_chars in 1..12_usize,
        end in 0..64_u32,
    ) {
        let (mut texts, mut calls, mut events, mut output) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, (is_call, said, how)) in items.iter().enumerate() {
            let said = format!("{said}{at}");
            let index = has_index.then_some(at);
            let id = has_item_ids.then(|| format!("item-{at}"));
            let mut event = |kind: &str, mut event: Value| {
                event["type"] = json!(format!("response.{kind}"));
                event["output_index"] = json!(index);
                events.push(event);
            };
            let arguments = json!({ "said": said }).to_string();
            let item = |arguments: &str| match is_call {
                true => json!({ "type": "function_call", "id": id, "call_id": format!("call-{at}"),
                    "name": "t", "arguments": arguments }),
                false => json!({ "type": "message", "id": id,
                    "content": [{ "type": "output_text", "text": said }] }),
            };
            let (whole, kind) = match is_call {
                true => (&arguments, "function_call_arguments.delta"),
                false => (&said, "output_text.delta"),
            };
            if *how == 0 {
                if *is_call {
                    event("output_item.added", json!({ "item": item("") }));
                }
                let chars: Vec<char> = whole.chars().collect();
                for piece in chars.chunks(piece_chars) {
                    let piece: String = piece.iter().collect();
                    event(kind, json!({ "item_id": id, "delta": piece }));
                }
            }
            event("output_item.done", json!({ "item": item(&arguments) }));
            if end & (1 << at) != 0 {
                output.push(item(&arguments));
            }
            match is_call {
                true => calls.push(format!("t({arguments})")),
                false => texts.push(said),
            }
        }
        let usage = json!({ "input_tokens": 9, "output_tokens": 4 });
        let response = json!({ "status": "completed", "output": output, "usage": usage });
        events.push(json!({ "type": "response.completed", "response": response }));
        let answer = read(events.iter().map(|event| format!("data: {event}\n\n")).collect());
        prop_assert_eq!(&*answer.text, texts.join("\n\n"));
        let called: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}({})", it.name, it.arguments)).collect();
        prop_assert_eq!(called, calls);
        prop_assert_eq!(answer.usage, Some(TokenUsage::new(9, 4)));
    }
}

/// Spec: P7
#[tokio::test]
async fn streams_are_bounded_as_answers_are() {
    let long = "x".repeat(2 * 1024 * 1024);
    let delta = |kind: &str| json!({ "type": format!("response.{kind}.delta"), "delta": long });
    let item = json!({ "type": "reasoning", "encrypted_content": long });
    let served =
        |at: u32| json!({ "type": "web_search_call", "id": format!("ws_{at}"), "x": long });
    let done = |at| json!({ "type": "response.output_item.done", "item": served(at) });
    let body: String = (0..18).map(|at| format!("data: {}\n\n", done(at))).collect();
    let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
    assert!(format!("{error:?}").contains("too large"), "{error}");
    for event in [
        delta("output_text"),
        delta("reasoning_text"),
        delta("function_call_arguments"),
        json!({ "type": "response.output_item.done", "item": item }),
    ] {
        let body = format!("data: {event}\n\n").repeat(18);
        let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too large"), "{error}");
    }
}
