//! Items of tools that run at the provider.

use backstop_provider::ModelRequest;
use backstop_testkit::strict::{Dialect, Said, check};
use backstop_testkit::{Loopback, Reply, send};
use layer0::failure::Failure;
use layer0::message::{Message, Transcript};
use serde_json::{Value, json};

use super::ask::{ask, to};

fn reasoning(id: &str, encrypted: Option<&str>) -> Value {
    json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": encrypted })
}

fn search(id: &str, status: &str) -> Value {
    json!({ "type": "web_search_call", "id": id, "status": status,
        "action": { "type": "search", "query": "x" } })
}

fn message() -> Value {
    let content = json!([{ "type": "output_text", "text": "42", "annotations": [] }]);
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content })
}

fn call() -> Value {
    json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "act", "arguments": "{}",
        "status": "completed" })
}

/// An answer as a whole, as a stream, and as a stream whose last event omits the items.
#[derive(Debug, Clone, Copy)]
enum Form {
    Whole,
    Streamed,
    EmptyEnd,
}

fn reply(output: &[Value], form: Form) -> Reply {
    let whole = |output: &[Value]| json!({ "id": "r", "status": "completed", "output": output });
    let items = output.iter().enumerate().map(|(at, item)| {
        json!({ "type": "response.output_item.done", "output_index": at, "item": item })
    });
    let end = match form {
        Form::Whole => return Reply::json(200, &whole(output)),
        Form::Streamed => whole(output),
        Form::EmptyEnd => whole(&[]),
    };
    let end = json!({ "type": "response.completed", "response": end });
    Reply::events(items.chain([end]).map(|event| format!("data: {event}\n\n")).collect::<String>())
}

/// Returns the items of an answer that are sent back; the endpoint accepts them.
async fn sent_back(output: &[Value], form: Form) -> Vec<Value> {
    let server = Loopback::replying([reply(output, form), reply(&[message()], Form::Whole)]);
    let provider = to(&server.url()).build().unwrap();
    let streamed = !matches!(form, Form::Whole);
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    let said = send(&provider, &ModelRequest::new(messages.clone()), streamed).await.unwrap();
    let calls = said.tool_calls.clone();
    messages.push(Message::Assistant {
        content: said.text,
        tool_calls: said.tool_calls,
        provider_state: said.provider_state,
    });
    calls.iter().for_each(|call| messages.push(Message::tool(call.id.clone(), "ok", false)));
    messages.push(Message::user("sure?"));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    let sent = server.requests().remove(1);
    let mut told = Said::default();
    told.remember(Dialect::OpenAiResponses, &json!({ "output": output }));
    if let Err(refusal) = check(Dialect::OpenAiResponses, &told, "/v1/responses", &sent.bytes) {
        panic!("{form:?}: {refusal:?}: {}", sent.body);
    }
    let items = sent.body["input"].as_array().unwrap();
    items[1..items.len() - 1].to_vec()
}

/// Spec: P1
#[tokio::test]
async fn served_items_go_back_with_their_reasoning() {
    let kinds = |items: &[Value]| -> Vec<String> {
        let kind = |item: &Value| item["type"].as_str().unwrap().to_owned();
        items.iter().map(kind).collect()
    };
    let (one, two) = (reasoning("rs_1", Some("E1")), reasoning("rs_2", Some("E2")));
    let unkept = reasoning("rs_1", None);
    let image = json!({ "type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA" });
    let done = search("ws_1", "completed");
    for (label, output, expected) in [
        (
            "reasoned",
            vec![one.clone(), done.clone(), two.clone(), message()],
            vec!["reasoning", "web_search_call", "reasoning", "message"],
        ),
        (
            "before a call",
            vec![one.clone(), done.clone(), two.clone(), call()],
            vec![
                "reasoning",
                "web_search_call",
                "reasoning",
                "function_call",
                "function_call_output",
            ],
        ),
        ("unreasoned", vec![done.clone(), message()], vec!["web_search_call", "message"]),
        ("reasoning not kept", vec![unkept, done.clone(), message()], vec!["message"]),
        (
            "cut",
            vec![one.clone(), search("ws_1", "searching"), two, message()],
            vec!["reasoning", "reasoning", "message"],
        ),
        ("image", vec![one.clone(), image, message()], vec!["reasoning", "message"]),
        (
            "two in a row",
            vec![one, done.clone(), search("ws_2", "completed"), message()],
            vec!["reasoning", "web_search_call", "web_search_call", "message"],
        ),
    ] {
        for form in [Form::Whole, Form::Streamed, Form::EmptyEnd] {
            let items = sent_back(&output, form).await;
            assert_eq!(kinds(&items), expected, "{label}, {form:?}");
            let sent = items.iter().find(|item| item["id"] == done["id"]);
            assert!(sent.is_none_or(|sent| *sent == done), "{label}, {form:?}: {sent:?}");
        }
    }
}

/// A call that nobody answers would be silently lost.
///
/// Spec: P7
#[tokio::test]
async fn item_that_wants_an_answer_is_a_failure() {
    for kind in ["custom_tool_call", "mcp_approval_request", "local_shell_call", "computer_call"] {
        let item =
            json!({ "type": kind, "id": "x_1", "call_id": "c9", "name": "act", "input": "do" });
        for (form, streamed) in [(Form::Whole, false), (Form::Streamed, true)] {
            let output = [item.clone(), message()];
            let error = ask(reply(&output, form), streamed).await.unwrap_err();
            assert_eq!(error.code(), "provider.invalid_request", "{kind}");
            assert!(error.to_string().contains(kind), "{error}");
        }
    }
}
