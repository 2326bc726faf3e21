//! Tools that run at the provider: their calls and results are sent back as they were received.

use backstop_provider::{ModelRequest, ScriptedAnswer};
use backstop_testkit::ScriptedEndpoint;
use backstop_testkit::bedrock::event;
use backstop_testkit::strict::{Dialect, Said, check};
use layer0::message::{Message, Transcript};
use serde_json::{Value, json};

use super::ask::{send, to_model};

const MODEL: &str = "amazon.nova-pro-v1:0";

fn call() -> Value {
    json!({ "toolUseId": "s-1", "name": "nova_code_interpreter", "type": "server_tool_use",
        "input": { "snippet": "1+1", "n": 1.5 } })
}

fn result() -> Value {
    json!({ "toolUseId": "s-1", "type": "nova_code_interpreter_result", "status": "success",
        "content": [{ "json": { "stdOut": "2", "exitCode": 0 } }] })
}

/// Returns the body of an answer with these blocks, and its type.
fn whole(blocks: &[Value], reason: &str) -> (&'static str, Vec<u8>) {
    let message = json!({ "role": "assistant", "content": blocks });
    let body = json!({ "output": { "message": message }, "stopReason": reason });
    ("application/json", body.to_string().into_bytes())
}

/// Returns the same as a stream.
fn streamed(blocks: &[Value], reason: &str) -> (&'static str, Vec<u8>) {
    let mut body = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let mut write = |name: &str, field: &str, value: Value| {
            body.extend(event(name, &json!({ "contentBlockIndex": index, field: value })));
        };
        if let Some(text) = block.get("text") {
            write("contentBlockDelta", "delta", json!({ "text": text }));
        } else if let Some(reasoning) = block.get("reasoningContent") {
            for (name, told) in reasoning["reasoningText"].as_object().unwrap() {
                let piece = json!({ "reasoningContent": { (name): told } });
                write("contentBlockDelta", "delta", piece);
            }
        } else if let Some(call) = block.get("toolUse") {
            let mut head = call.clone();
            let input = head.as_object_mut().unwrap().remove("input").unwrap().to_string();
            write("contentBlockStart", "start", json!({ "toolUse": head }));
            let (one, two) = input.split_at(input.len() / 2);
            for piece in [one, two] {
                write("contentBlockDelta", "delta", json!({ "toolUse": { "input": piece } }));
            }
        } else {
            let mut head = block["toolResult"].clone();
            let content = head.as_object_mut().unwrap().remove("content").unwrap();
            write("contentBlockStart", "start", json!({ "toolResult": head }));
            write("contentBlockDelta", "delta", json!({ "toolResult": content }));
        }
        write("contentBlockStop", "x", json!(0));
    }
    body.extend(event("messageStop", &json!({ "stopReason": reason })));
    body.extend(event("metadata", &json!({ "usage": { "inputTokens": 9, "outputTokens": 4 } })));
    ("application/vnd.amazon.eventstream", body)
}

/// Returns the content of an answer as it is sent back, and the number of calls of the agent's tools.
async fn sent_back((label, body): (&'static str, Vec<u8>)) -> (Value, usize) {
    let server = ScriptedEndpoint::bedrock(vec![ScriptedAnswer::saying("ok")]);
    let provider = to_model(MODEL, &server.base_url()).build().unwrap();
    let answer = provider.read(label, body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    let calls = answer.tool_calls.clone();
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    calls.iter().for_each(|call| messages.push(Message::tool(call.id.clone(), "noon", false)));
    messages.push(Message::user("sure?"));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    let sent = server.requests().remove(0);
    if let Err(refusal) = check(Dialect::Bedrock, &Said::default(), &sent.path, &sent.bytes) {
        panic!("{refusal:?}: {}", sent.body);
    }
    (sent.body["messages"][1]["content"].clone(), calls.len())
}

/// Spec: P1. The endpoint refuses reasoning without a signature.
#[tokio::test]
async fn unsigned_reasoning_is_not_sent_back() {
    let reasoning = |told: Value| json!({ "reasoningContent": { "reasoningText": told } });
    let call = json!({ "toolUse": { "toolUseId": "c-1", "name": "now", "input": {} } });
    for told in [json!({ "text": "I think." }), json!({ "text": "I think.", "signature": "" })] {
        let blocks = [reasoning(told), call.clone()];
        for answer in [whole(&blocks, "tool_use"), streamed(&blocks, "tool_use")] {
            assert_eq!(sent_back(answer).await, (json!([call]), 1));
        }
    }
}

/// Spec: P1
#[tokio::test]
async fn served_blocks_go_back_as_they_came() {
    let own = json!({ "toolUse": { "toolUseId": "c-1", "name": "now", "input": {} } });
    let blocks = [
        json!({ "text": "I count." }),
        json!({ "toolUse": call() }),
        json!({ "toolResult": result() }),
        json!({ "text": "It is 2." }),
        own,
    ];
    for answer in [whole(&blocks, "tool_use"), streamed(&blocks, "tool_use")] {
        assert_eq!(sent_back(answer).await, (json!(blocks), 1));
    }
}

/// An answer that was cut off within a search would make the endpoint refuse each later request.
///
/// Spec: P1
#[tokio::test]
async fn served_call_without_result_is_left_out() {
    let blocks = [json!({ "text": "I count." }), json!({ "toolUse": call() })];
    for answer in [whole(&blocks, "max_tokens"), streamed(&blocks, "max_tokens")] {
        assert_eq!(sent_back(answer).await, (json!([{ "text": "I count." }]), 0));
    }
}
