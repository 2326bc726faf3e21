//! Properties: nothing is lost, however an answer is cut into lines.

use backstop_provider::ModelResponse;
use layer0::usage::TokenUsage;
use proptest::prelude::*;
use serde_json::json;

use super::ask::ADAPTER;

fn read(label: &str, body: String) -> ModelResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on((ADAPTER.read)(label, body.into_bytes())).unwrap()
}

proptest! {
    /// Spec: P7
    #[test]
    fn nothing_that_was_told_is_missing(
        lines in prop::collection::vec((0..3_u8, "[a-z é{}\"]{1,9}"), 1..8),
        label in prop::sample::select(vec!["application/x-ndjson", "application/json", "text/html"]),
        for_people in any::<bool>(),
        gap in prop::sample::select(vec!["\n", "\r\n", "\n\n"]),
    ) {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        let mut body = String::new();
        let mut write = |value: serde_json::Value| {
            let written = match for_people {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            body += &(written.replace('\n', gap) + gap);
        };
        for (kind, said) in &lines {
            write(match kind {
                0 => {
                    text += said;
                    json!({ "message": { "content": said }, "done": false })
                }
                1 => {
                    thinking += said;
                    json!({ "message": { "content": "", "thinking": said }, "done": false })
                }
                _ => {
                    let arguments = json!({ "said": said });
                    calls.push(format!("t({arguments})"));
                    let call = json!({ "function": { "name": "t", "arguments": arguments } });
                    json!({ "message": { "tool_calls": [call] }, "done": false, "error": "" })
                }
            });
        }
        write(json!({
            "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 4,
        }));
        let answer = read(label, body);
        prop_assert_eq!(&*answer.text, text);
        prop_assert_eq!(answer.thinking.as_deref().unwrap_or_default(), thinking);
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
    for message in [
        json!({ "content": long }),
        json!({ "content": "", "thinking": long }),
        json!({ "content": "", "tool_calls": [{ "function": { "name": "a", "arguments": { "b": long } } }] }),
    ] {
        let body = format!("{}\n", json!({ "message": message, "done": false })).repeat(18);
        let error = (ADAPTER.read)("application/x-ndjson", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too large"), "{error}");
    }
}
