//! Commentary and the final answer.

use backstop_provider::{ModelRequest, Provider};
use backstop_testkit::{Loopback, Reply, send};
use layer0::message::{Message, Transcript};
use serde_json::{Value, json};

use super::ask::to;

fn message(phase: Option<&str>, text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    let mut message = json!({
        "type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content,
    });
    if let Some(phase) = phase {
        message["phase"] = json!(phase);
    }
    message
}

fn reply(output: &[Value], streamed: bool) -> Reply {
    let whole = json!({ "id": "r", "status": "completed", "output": output });
    if !streamed {
        return Reply::json(200, &whole);
    }
    let event = |kind: &str, event: Value| format!("event: {kind}\ndata: {event}\n\n");
    let mut body = String::new();
    for (at, item) in output.iter().enumerate() {
        let kind = "response.output_item.done";
        body += &event(kind, json!({ "type": kind, "output_index": at, "item": item }));
    }
    let kind = "response.completed";
    body += &event(kind, json!({ "type": kind, "response": whole }));
    Reply::events(body)
}

/// Spec: P9
#[tokio::test]
async fn phases_go_back_and_the_answer_stands_alone() {
    let told = [message(Some("commentary"), "I look."), message(Some("final_answer"), "It is 42.")];
    for streamed in [false, true] {
        let server = Loopback::replying([reply(&told, streamed), reply(&told[1..], streamed)]);
        let provider = to(&server.url()).build().unwrap();
        let mut messages = Transcript::default();
        messages.push(Message::user("hi"));
        let said = send(&provider, &ModelRequest::new(messages.clone()), streamed).await.unwrap();
        assert_eq!(&*said.text, "I look.\n\nIt is 42.");
        assert_eq!(said.answer.as_deref(), Some("It is 42."));
        messages.push(Message::Assistant {
            content: said.text,
            tool_calls: said.tool_calls,
            provider_state: said.provider_state,
        });
        messages.push(Message::user("sure?"));
        provider.complete(&ModelRequest::new(messages)).await.unwrap();
        let body = String::from_utf8(server.requests()[1].bytes.clone()).unwrap();
        let back = r#"{"type":"message","role":"assistant","content":"I look.","phase":"commentary"},{"type":"message","role":"assistant","content":"It is 42.","phase":"final_answer"}"#;
        assert!(body.contains(back), "{body}");
    }
}

#[tokio::test]
async fn an_answer_without_commentary_is_the_text() {
    for told in [vec![message(None, "42")], vec![message(Some("final_answer"), "42")]] {
        let server = Loopback::replying([reply(&told, false)]);
        let provider = to(&server.url()).build().unwrap();
        let mut messages = Transcript::default();
        messages.push(Message::user("hi"));
        let said = provider.complete(&ModelRequest::new(messages)).await.unwrap();
        assert_eq!((&*said.text, said.answer), ("42", None));
    }
}

#[tokio::test]
async fn a_call_goes_back_in_its_namespace() {
    let call = json!({
        "type": "function_call", "id": "fc", "call_id": "c1", "name": "act", "namespace": "crm",
        "arguments": "{}", "status": "completed",
    });
    for streamed in [false, true] {
        let server = Loopback::replying([
            reply(std::slice::from_ref(&call), streamed),
            reply(&[message(None, "ok")], streamed),
        ]);
        let provider = to(&server.url()).build().unwrap();
        let mut messages = Transcript::default();
        messages.push(Message::user("hi"));
        let said = send(&provider, &ModelRequest::new(messages.clone()), streamed).await.unwrap();
        messages.push(Message::Assistant {
            content: said.text,
            tool_calls: said.tool_calls,
            provider_state: said.provider_state,
        });
        messages.push(Message::tool("c1".into(), "done", false));
        send(&provider, &ModelRequest::new(messages), streamed).await.unwrap();
        let body = String::from_utf8(server.requests()[1].bytes.clone()).unwrap();
        let back = r#""name":"act","arguments":"{}","namespace":"crm"}"#;
        assert!(body.contains(back), "{body}");
    }
}
