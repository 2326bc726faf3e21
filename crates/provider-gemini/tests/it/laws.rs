//! Properties: nothing is lost, however an answer is cut into pieces.

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
    /// Spec: P7
    #[test]
    fn nothing_that_was_told_is_missing(
        parts in prop::collection::vec((0..3_u8, "[a-z é{}\"]{1,9}", any::<bool>()), 1..8),
        reason_in_each in any::<bool>(),
        usage_in_each in any::<bool>(),
        has_ids in any::<bool>(),
    ) {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        let mut chunks = vec![Vec::new()];
        for (at, (kind, said, begins_chunk)) in parts.iter().enumerate() {
            let part = match kind {
                0 => {
                    text += said;
                    json!({ "text": said })
                }
                1 => {
                    thinking += said;
                    json!({ "text": said, "thought": true })
                }
                _ => {
                    let arguments = json!({ "said": said });
                    calls.push(format!("t({arguments})"));
                    let id = has_ids.then(|| format!("id-{at}"));
                    json!({ "functionCall": { "name": "t", "args": arguments, "id": id } })
                }
            };
            if *begins_chunk {
                chunks.push(Vec::new());
            }
            chunks.last_mut().unwrap().push(part);
        }
        let last = chunks.len() - 1;
        let body: String = (0_u64..)
            .zip(&chunks)
            .map(|(at, parts)| {
                let is_last = at == last as u64;
                let usage = (is_last || usage_in_each).then(|| {
                    json!({ "promptTokenCount": 9, "candidatesTokenCount": at + 1,
                        "totalTokenCount": at + 10 })
                });
                let reason = (is_last || reason_in_each).then_some("STOP");
                let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
                let chunk: Value = json!({ "candidates": [candidate], "usageMetadata": usage });
                format!("data: {chunk}\n\n")
            })
            .collect();
        let answer = read(body);
        prop_assert_eq!(&*answer.text, text);
        prop_assert_eq!(answer.thinking.as_deref().unwrap_or_default(), thinking);
        let called: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}({})", it.name, it.arguments)).collect();
        prop_assert_eq!(called, calls);
        prop_assert_eq!(answer.usage, Some(TokenUsage::new(9, last as u64 + 1)));
    }
}

/// Spec: P7
#[tokio::test]
async fn streams_are_bounded_as_answers_are() {
    let long = "x".repeat(2 * 1024 * 1024);
    let pieces = json!([{ "jsonPath": "$.a", "stringValue": long }]);
    for part in [
        json!({ "text": long }),
        json!({ "text": long, "thought": true }),
        json!({ "functionCall": { "name": "a", "args": { "b": long } } }),
        json!({ "functionCall": { "partialArgs": pieces, "willContinue": true } }),
    ] {
        let call = json!({ "functionCall": { "name": "a", "willContinue": true } });
        let event = |part| json!({ "candidates": [{ "content": { "parts": [part] } }] });
        let (head, event) = (event(call), event(part));
        let body = format!("data: {head}\n\n") + &format!("data: {event}\n\n").repeat(18);
        let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too large"), "{error}");
    }
}
