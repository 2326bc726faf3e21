//! Properties: nothing is lost, whatever an endpoint does with indices, ids, placeholders and pieces.

use backstop_provider::ModelResponse;
use layer0::usage::TokenUsage;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ask::ADAPTER;

/// Spec: P7
#[tokio::test]
async fn too_many_calls_are_refused() {
    let call = |at: usize| json!({ "id": format!("a{at}"), "function": { "name": "pay" } });
    let event = |calls: Vec<Value>| {
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "tool_calls": calls } }] }))
    };
    for body in
        [event((0..1025).map(call).collect()), (0..1025).map(|at| event(vec![call(at)])).collect()]
    {
        let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too many tool calls"), "{error}");
    }
}

/// A part of an answer.
#[derive(Debug, Clone)]
enum Told {
    Text(String),
    Call { name: &'static str, arguments: String },
}

/// The variants of an endpoint.
#[derive(Debug, Clone, Copy)]
struct Dialect {
    /// 0: by position; 1: the same for all; 2: none.
    index: u8,
    /// 0: one each; 1: none; 2: empty; 3: repeated with each piece.
    id: u8,
    /// 0: none; 1: empty text; 2: null; 3: an empty object.
    placeholder: u8,
    piece_bytes: usize,
    /// 0: whole at the end; 1: in parts; 2: followed by zeros; 3: none.
    usage: u8,
}

fn told() -> impl Strategy<Value = Told> {
    let arguments = ("[a-c]{1,3}", "[{}\"\\\\\\[ é]{0,6}", 0..999_u32);
    prop_oneof![
        "[a-z é{}]{1,12}".prop_map(Told::Text),
        (prop::sample::select(vec!["one", "two"]), arguments).prop_map(
            |(name, (key, text, number))| {
                let text = Value::from(text);
                Told::Call { name, arguments: format!("{{\"{key}\":{text},\"n\":{number}.50}}") }
            }
        ),
    ]
}

fn dialect() -> impl Strategy<Value = Dialect> {
    (0..3_u8, 0..4_u8, 0..4_u8, 1..30_usize, 0..4_u8).prop_map(
        |(index, id, placeholder, piece_bytes, usage)| Dialect {
            index,
            id,
            placeholder,
            piece_bytes,
            usage,
        },
    )
}

fn pieces(text: &str, bytes: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in text.chars() {
        if pieces.last().is_some_and(|piece| piece.len() >= bytes) {
            pieces.push(String::new());
        }
        pieces.last_mut().unwrap().push(c);
    }
    pieces
}

/// Encodes the answer as this endpoint does.
fn body(told: &[Told], dialect: Dialect) -> String {
    let mut deltas = Vec::new();
    for (at, told) in told.iter().enumerate() {
        match told {
            Told::Text(text) => {
                for piece in pieces(text, dialect.piece_bytes) {
                    deltas.push(json!({ "content": piece }));
                }
            }
            Told::Call { name, arguments } => {
                let call = |is_head: bool, function: Value| {
                    let mut call = json!({ "function": function });
                    match dialect.index {
                        0 => call["index"] = json!(at),
                        1 => call["index"] = json!(0),
                        _ => {}
                    }
                    match dialect.id {
                        0 if is_head => call["id"] = json!(format!("id-{at}")),
                        2 if is_head => call["id"] = json!(""),
                        3 => call["id"] = json!(format!("id-{at}")),
                        _ => {}
                    }
                    json!({ "tool_calls": [call] })
                };
                let mut head = json!({ "name": name });
                match dialect.placeholder {
                    1 => head["arguments"] = json!(""),
                    2 => head["arguments"] = Value::Null,
                    3 => head["arguments"] = json!({}),
                    _ => {}
                }
                deltas.push(call(true, head));
                for piece in pieces(arguments, dialect.piece_bytes) {
                    deltas.push(call(false, json!({ "arguments": piece })));
                }
            }
        }
    }
    let chunk = |delta: &Value, reason: Option<&str>| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] });
    let mut chunks: Vec<Value> = deltas.iter().map(|delta| chunk(delta, None)).collect();
    chunks.push(chunk(&json!({}), Some("stop")));
    let usage = |usage: Value| json!({ "choices": [], "usage": usage });
    match dialect.usage {
        0 => chunks.push(usage(json!({ "prompt_tokens": 90, "completion_tokens": 40 }))),
        1 => {
            chunks.insert(0, usage(json!({ "prompt_tokens": 90, "completion_tokens": 1 })));
            chunks.push(usage(json!({ "completion_tokens": 40 })));
        }
        2 => {
            chunks.push(usage(json!({ "prompt_tokens": 90, "completion_tokens": 40 })));
            chunks.push(usage(json!({ "prompt_tokens": 0, "completion_tokens": 0 })));
        }
        _ => {}
    }
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    body + "data: [DONE]\n\n"
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
        dialect in dialect(),
    ) {
        let answer = read(body(&told, dialect));
        let mut text = String::new();
        let mut calls = Vec::new();
        for told in &told {
            match told {
                Told::Text(said) => text += said,
                Told::Call { name, arguments } => {
                    let arguments = layer0::JsonText::parse(arguments).unwrap();
                    calls.push(format!("{name}({arguments})"));
                }
            }
        }
        prop_assert_eq!(&*answer.text, text);
        let called: Vec<String> =
            answer.tool_calls.iter().map(|it| format!("{}({})", it.name, it.arguments)).collect();
        prop_assert_eq!(called, calls);
        let usage = (dialect.usage < 3).then(|| TokenUsage::new(90, 40));
        prop_assert_eq!(answer.usage, usage);
    }
}

/// Spec: P7
#[tokio::test]
async fn streams_are_bounded_as_answers_are() {
    let long = "x".repeat(2 * 1024 * 1024);
    for delta in [
        json!({ "content": long }),
        json!({ "reasoning_content": long }),
        json!({ "reasoning_details": [{ "type": "x", "data": long }] }),
        json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": long }] }] }),
        json!({ "content": [{ "type": "thinking", "thinking": [], "signature": long }, "x"] }),
        json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "arguments": long } }] }),
    ] {
        let event = json!({ "choices": [{ "delta": delta }] });
        let body = format!("data: {event}\n\n").repeat(18);
        let error = (ADAPTER.read)("text/event-stream", body.into_bytes()).await.unwrap_err();
        assert!(format!("{error:?}").contains("too large"), "{error}");
    }
}
