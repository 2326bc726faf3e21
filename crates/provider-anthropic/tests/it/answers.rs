//! Answers with parts in an unusual form, none of them lost.

use backstop_provider::ModelResponse;
use backstop_testkit::Reply;
use layer0::usage::TokenUsage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ask::{ADAPTER, ask};

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

#[tokio::test]
async fn zeros_at_the_end_take_no_count_back() {
    for (later, billed) in [
        (json!({ "output_tokens": 20 }), (900, 20)),
        (
            json!({ "input_tokens": 0, "output_tokens": 20, "cache_read_input_tokens": 0 }),
            (900, 20),
        ),
        (json!({ "input_tokens": 0, "output_tokens": 0 }), (900, 1)),
        (json!({ "input_tokens": 500, "output_tokens": 20 }), (900, 20)),
        (Value::Null, (900, 1)),
    ] {
        let begun =
            json!({ "input_tokens": 500, "output_tokens": 1, "cache_read_input_tokens": 400 });
        let body = events(&[
            json!({ "type": "message_start", "message": { "usage": begun } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": later }),
            json!({ "type": "message_stop" }),
        ]);
        let answer = ask(Reply::events(body), true).await.unwrap();
        let (input, output) = billed;
        let expected = TokenUsage::new(input, output).cached_tokens(400);
        assert_eq!(answer.usage, Some(expected), "{later}");
    }
}

/// A block of an answer.
#[derive(Debug, Clone)]
enum Told {
    Text(String),
    Thinking(String),
    Call { name: &'static str, arguments: String },
}

fn told() -> impl Strategy<Value = Told> {
    let arguments = ("[a-c]{1,3}", "[{}\"\\\\\\[ é]{0,6}", 0..999_u32);
    prop_oneof![
        "[a-z é{}]{1,12}".prop_map(Told::Text),
        "[a-z ]{1,12}".prop_map(Told::Thinking),
        (prop::sample::select(vec!["one", "two"]), arguments).prop_map(
            |(name, (key, text, number))| {
                let text = Value::from(text);
                Told::Call { name, arguments: format!("{{\"{key}\":{text},\"n\":{number}.50}}") }
            }
        ),
    ]
}

/// Encodes blocks; `index` is 0 for their positions, 1 for the same index for all, 2 for none.
/// Arguments are sent with the start of a block, in pieces, or both.
fn body(told: &[Told], index: u8, piece_chars: usize, arguments_at: u8) -> String {
    let mut written = String::new();
    for (at, told) in told.iter().enumerate() {
        let mut event = |kind: &str, field: &str, value: String| {
            let index = match index {
                0 => format!("\"index\":{at},"),
                1 => "\"index\":0,".to_owned(),
                _ => String::new(),
            };
            written += &format!("data: {{\"type\":\"{kind}\",{index}\"{field}\":{value}}}\n\n");
        };
        let (begin, text, kind, field) = match told {
            Told::Text(text) => {
                (json!({ "type": "text", "text": "" }).to_string(), text, "text_delta", "text")
            }
            Told::Thinking(text) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }).to_string(),
                text,
                "thinking_delta",
                "thinking",
            ),
            Told::Call { name, arguments } => {
                let input = if arguments_at > 0 { arguments.as_str() } else { "{}" };
                let begin = format!(
                    "{{\"type\":\"tool_use\",\"id\":\"id-{at}\",\"name\":\"{name}\",\"input\":{input}}}"
                );
                (begin, arguments, "input_json_delta", "partial_json")
            }
        };
        event("content_block_start", "content_block", begin);
        let is_told = matches!(told, Told::Call { .. }) && arguments_at == 1;
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece_chars).filter(|_| !is_told) {
            let piece: String = piece.iter().collect();
            event(
                "content_block_delta",
                "delta",
                json!({ "type": kind, field: piece }).to_string(),
            );
        }
        event("content_block_stop", "x", "0".to_owned());
    }
    let tail = [
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 7 } }),
        json!({ "type": "message_stop" }),
    ];
    written + &events(&tail)
}

fn read(body: String) -> ModelResponse {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on((ADAPTER.read)("text/event-stream", body.into_bytes())).unwrap()
}

proptest! {
    /// Spec: P7
    #[test]
    fn nothing_that_was_told_is_missing(
        told in prop::collection::vec(told(), 1..6),
        index in 0..3_u8,
        piece_chars in 1..30_usize,
        arguments_at in 0..3_u8,
    ) {
        let answer = read(body(&told, index, piece_chars, arguments_at));
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        for (at, told) in told.iter().enumerate() {
            match told {
                Told::Text(said) => text += said,
                Told::Thinking(thought) => thinking += thought,
                Told::Call { name, arguments } => {
                    let arguments = layer0::JsonText::parse(arguments).unwrap();
                    calls.push(format!("id-{at} {name}({arguments})"));
                }
            }
        }
        prop_assert_eq!(&*answer.text, text);
        prop_assert_eq!(answer.thinking.as_deref().unwrap_or_default(), thinking);
        let called: Vec<String> = answer
            .tool_calls
            .iter()
            .map(|it| format!("{} {}({})", it.id.as_str(), it.name, it.arguments))
            .collect();
        prop_assert_eq!(called, calls);
        prop_assert_eq!(answer.usage, Some(TokenUsage::new(0, 7)));
    }
}

/// Spec: P7
#[tokio::test]
async fn arguments_beyond_a_record_are_given_back() {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    for input in [r#"{"n":1e999}"#.to_owned(), format!("{{\"n\":{deep}}}")] {
        let body = format!(
            r#"{{"content":[{{"type":"text","text":"I pay."}},
                {{"type":"odd_tool_result","x":{input}}},
                {{"type":"tool_use","id":"c1","name":"pay","input":{input},"caller":{input}}}],
                "stop_reason":"tool_use"}}"#
        );
        let answer = (ADAPTER.read)("application/json", body.into_bytes()).await.unwrap();
        assert_eq!(&*answer.text, "I pay.");
        assert_eq!(answer.tool_calls[0].arguments.as_string().as_deref(), Some(&*input));
    }
}

/// Spec: P7
#[tokio::test]
async fn streams_are_bounded_as_answers_are() {
    let long = "x".repeat(2 * 1024 * 1024);
    let delta = |kind: &str, field: &str| {
        let delta = json!({ "type": kind, field: long });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    for (block, event) in [
        (json!({ "type": "text", "text": "" }), delta("text_delta", "text")),
        (json!({ "type": "thinking" }), delta("thinking_delta", "thinking")),
        (json!({ "type": "thinking" }), delta("signature_delta", "signature")),
        (
            json!({ "type": "tool_use", "id": "a", "name": "b", "input": {} }),
            delta("input_json_delta", "partial_json"),
        ),
        (
            json!({ "type": "server_tool_use", "id": "a", "name": "b", "input": {} }),
            delta("input_json_delta", "partial_json"),
        ),
    ] {
        let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
        let body = format!("data: {start}\n\n") + &format!("data: {event}\n\n").repeat(18);
        let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too large"), "{error}");
    }
}

/// Spec: P7. The beginning of a call that is received twice is one call.
#[tokio::test]
async fn repeated_beginning_of_a_call_is_one_call() {
    let begin = json!({ "type": "content_block_start", "index": 0, "content_block":
        { "type": "tool_use", "id": "toolu_1", "name": "pay", "input": {} } });
    let another = json!({ "type": "content_block_start", "index": 0, "content_block":
        { "type": "tool_use", "id": "toolu_2", "name": "pay", "input": {} } });
    let arguments = json!({ "type": "content_block_delta", "index": 0,
        "delta": { "type": "input_json_delta", "partial_json": "{\"n\":1}" } });
    let ends = [
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ];
    for (events, expected) in [
        (vec![&begin, &begin, &arguments], vec![r#"{"n":1}"#]),
        (vec![&begin, &arguments, &begin], vec![r#"{"n":1}"#]),
        (vec![&begin, &another, &arguments], vec!["{}", r#"{"n":1}"#]),
        (vec![&begin, &arguments, &begin, &arguments], vec![r#"{"n":1}"#, r#"{"n":1}"#]),
    ] {
        let body: String =
            events.into_iter().chain(&ends).map(|it| format!("data: {it}\n\n")).collect();
        let answer = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap();
        let calls: Vec<String> =
            answer.tool_calls.iter().map(|it| it.arguments.display_text().into_owned()).collect();
        assert_eq!(calls, expected);
    }
}
