//! Properties: nothing is lost, however the blocks of an answer are cut into frames.

use backstop_provider::ModelResponse;
use backstop_testkit::bedrock::event;
use layer0::usage::TokenUsage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ask::ADAPTER;

fn read(body: Vec<u8>) -> ModelResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let label = "application/vnd.amazon.eventstream";
    runtime.block_on((ADAPTER.read)(label, body)).unwrap()
}

proptest! {
    /// Spec: P7
    #[test]
    fn nothing_that_was_told_is_missing(
        blocks in prop::collection::vec((0..3_u8, "[a-z é{}\"]{1,9}"), 1..6),
        step in 1..4_u64,
        piece_chars in 1..12_usize,
        usage_first in any::<bool>(),
    ) {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        let mut body = Vec::new();
        for (index, (kind, said)) in (0..).step_by(usize::try_from(step).unwrap()).zip(&blocks) {
            let index: u64 = index;
            let mut write = |name: &str, field: &str, value: Value| {
                body.extend(event(name, &json!({ "contentBlockIndex": index, field: value })));
            };
            let arguments = json!({ "said": said }).to_string();
            let (whole, delta): (&str, fn(String) -> Value) = match kind {
                0 => {
                    text += said;
                    (said, |piece| json!({ "text": piece }))
                }
                1 => {
                    thinking += said;
                    (said, |piece| json!({ "reasoningContent": { "text": piece } }))
                }
                _ => {
                    calls.push(format!("t({arguments})"));
                    let id = format!("id-{index}");
                    let start = json!({ "toolUse": { "toolUseId": id, "name": "t" } });
                    write("contentBlockStart", "start", start);
                    (&arguments, |piece| json!({ "toolUse": { "input": piece } }))
                }
            };
            let chars: Vec<char> = whole.chars().collect();
            for piece in chars.chunks(piece_chars) {
                write("contentBlockDelta", "delta", delta(piece.iter().collect()));
            }
        }
        let billed = event("metadata", &json!({ "usage": { "inputTokens": 9, "outputTokens": 4 } }));
        let stop = event("messageStop", &json!({ "stopReason": "end_turn" }));
        body.extend(if usage_first { [billed, stop] } else { [stop, billed] }.concat());
        let answer = read(body);
        prop_assert_eq!(&*answer.text, text);
        prop_assert_eq!(answer.thinking.as_deref().unwrap_or_default(), thinking);
        let called: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}({})", it.name, it.arguments)).collect();
        prop_assert_eq!(called, calls);
        prop_assert_eq!(answer.usage, Some(TokenUsage::new(9, 4)));
    }
}
