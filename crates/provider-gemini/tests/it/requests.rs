use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_gemini::Gemini;
use backstop_provider_http::ProviderConfigError;
use backstop_testkit::{Loopback, Reply, Request, ScriptedEndpoint};
use layer0::message::{Image, Message, ToolCall, Transcript};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use super::ask::{KEY, hello, send, to};

async fn sent(
    model: &str,
    setup: fn(Gemini) -> Gemini,
    request: &ModelRequest,
    streamed: bool,
) -> Request {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::gemini(vec![said]);
    let provider = setup(to(model, &server.base_url())).build().unwrap();
    send(&provider, request, streamed).await.unwrap();
    server.requests().remove(0)
}

/// A conversation with every kind of message.
fn conversation() -> ModelRequest {
    let call =
        |id: &str, name: &str, arguments: serde_json::Value| ToolCall::new(id, name, arguments);
    let mut messages = Transcript::default();
    messages.push(Message::system("Be brief."));
    messages.push(Message::system("Be polite."));
    let image = Image::from_bytes(b"GIF89a").unwrap();
    messages.push(Message::User { content: "What is in `a`?".into(), images: [image].into() });
    messages.push(Message::assistant(
        "",
        Arc::new([
            call("~1", "fs_read", json!({ "path": "a" })),
            call("~2", "fs_search", json!(r#"{"path": "#)),
        ]),
    ));
    messages.push(Message::tool("~1".into(), "Grüße", false));
    messages.push(Message::tool("~2".into(), "Tool 'fs_search' failed: not JSON", true));
    messages.push(Message::assistant("Again.", Arc::new([call("call-1", "now", json!({}))])));
    messages.push(Message::tool("call-1".into(), "noon", false));
    messages.push(Message::assistant("It says hello.", Arc::default()));
    messages.push(Message::assistant("", Arc::default()));
    messages.push(Message::user("And `b`?"));
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest::new(messages)
        .tools([
            ToolSpec::new("fs_read", "Reads a file.", schema.clone()),
            ToolSpec::new("fs_search", "Searches files.", schema),
        ])
        .settings(ModelSettings::new().max_output_tokens(512).temperature(0.5))
}

#[tokio::test]
async fn what_is_sent() {
    let request = sent("gemini-3-pro", |it| it, &conversation(), true).await;
    assert_eq!(request.path, "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse");
    assert_eq!(request.header("x-goog-api-key"), Some(KEY));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn unsigned_thinking_is_sent_no_signature() {
    let newer = sent("gemini-3-pro", |it| it, &conversation(), false).await;
    assert_eq!(newer.path, "/v1beta/models/gemini-3-pro:generateContent");
    assert!(newer.body.to_string().contains("thoughtSignature"));
    for older in ["gemini-2.5-flash", "models/gemini-1.5-pro", "gemma-3-27b-it"] {
        let older = sent(older, |it| it, &conversation(), false).await;
        assert!(!older.body.to_string().contains("thoughtSignature"));
    }
}

/// Returns a conversation in which a tool returns an image.
fn shown() -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("draw"));
    messages.push(Message::assistant("", Arc::new([ToolCall::new("call-1", "draw", json!({}))])));
    messages.push(Message::Tool {
        tool_call_id: "call-1".into(),
        content: "[a drawing]".into(),
        images: [Image::from_bytes(b"GIF89a").unwrap()].into(),
        is_error: false,
    });
    ModelRequest::new(messages)
}

/// Spec: Q8
#[tokio::test]
async fn images_of_tools_stand_in_their_result() {
    let data = json!({ "mimeType": "image/gif", "data": "R0lGODlh" });
    for (model, parts) in [
        ("gemini-3-pro", json!([{ "inlineData": data }])),
        ("gemini-2.5-flash", serde_json::Value::Null),
    ] {
        let request = sent(model, |it| it, &shown(), false).await;
        let response = &request.body["contents"][2]["parts"][0]["functionResponse"];
        assert_eq!(response["response"], json!({ "output": "[a drawing]" }));
        assert_eq!(response["parts"], parts);
    }
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent("model-1", |it| it, &hello(), false).await;
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn thoughts_are_asked_for_on_request() {
    let request =
        sent("model-1", |it| it.with(|it| it.includes_thoughts(true)), &hello(), true).await;
    let config = &request.body["generationConfig"];
    assert_eq!(*config, json!({ "thinkingConfig": { "includeThoughts": true } }));
}

#[tokio::test]
async fn result_without_its_call_is_sent_as_text() {
    let mut messages = Transcript::default();
    messages.push(Message::user("go on"));
    messages.push(Message::tool("call-7".into(), "noon", false));
    let request = sent("model-1", |it| it, &ModelRequest::new(messages), false).await;
    assert_eq!(
        request.body["contents"][1],
        json!({ "role": "user", "parts": [{ "text": "noon" }] })
    );
}

#[tokio::test]
async fn model_name_is_escaped_in_the_path() {
    for (model, path) in [
        ("gemini-2.5-flash", "/models/gemini-2.5-flash:generateContent"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash:generateContent"),
        ("tunedModels/mine", "/tunedModels/mine:generateContent"),
        ("a model?x#ü", "/models/a%20model%3Fx%23%C3%BC:generateContent"),
    ] {
        let server = Loopback::replying([Reply::html(404)]);
        let provider = to(model, &server.url()).build().unwrap();
        send(&provider, &hello(), false).await.unwrap_err();
        assert_eq!(server.requests()[0].path, path);
    }
}

#[tokio::test]
async fn gateway_with_its_own_key_gets_none() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::gemini(vec![said]);
    let slash = format!("{}/", server.base_url());
    let provider = Gemini::new("m").base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    assert_eq!(server.requests()[0].header("x-goog-api-key"), None);
}

/// Spec: P11
#[tokio::test]
async fn a_real_request_is_denied_in_tests() {
    backstop_process::deny_real_requests();
    let provider = Gemini::new("m").api_key("sk-0123456789").build().unwrap();
    let error = provider.complete(&hello()).await.unwrap_err();
    let chain = layer0::failure::chain(&error);
    let denied = "real requests are denied in this process: `";
    assert!(chain.last().unwrap().starts_with(denied), "{chain:?}");
}

#[test]
fn without_a_key_gemini_itself_cannot_be_asked() {
    let error = Gemini::new("m").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    assert!(error.to_string().contains("`GEMINI_API_KEY`"));
}

/// Code that Google ran is sent back between the same texts.
#[tokio::test]
async fn served_parts_go_back_in_place() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::gemini(vec![said]);
    let provider = to("gemini-3-pro", &server.base_url()).build().unwrap();
    let parts = json!([
        { "text": "I compute." },
        { "executableCode": { "language": "PYTHON", "code": "6*7" }, "thoughtSignature": "SIG" },
        { "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "42" }, "thought": true },
        { "toolCall": { "toolType": "GOOGLE_SEARCH_WEB", "args": { "queries": ["x"] }, "id": "s1" }, "thoughtSignature": "SIG" },
        { "toolResponse": { "toolType": "GOOGLE_SEARCH_WEB", "response": { "n": 1.5 }, "id": "s1" } },
        { "text": "It is 42." },
    ]);
    let candidate =
        json!({ "content": { "role": "model", "parts": parts }, "finishReason": "STOP" });
    let body = json!({ "candidates": [candidate] }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    assert_eq!(&*answer.text, "I compute.It is 42.");
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    messages.push(Message::user("sure?"));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    let back = r#"{"text":"I compute."},{"executableCode":{"code":"6*7","language":"PYTHON"},"thoughtSignature":"SIG"},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"42"},"thought":true},{"thoughtSignature":"SIG","toolCall":{"args":{"queries":["x"]},"id":"s1","toolType":"GOOGLE_SEARCH_WEB"}},{"toolResponse":{"id":"s1","response":{"n":1.5},"toolType":"GOOGLE_SEARCH_WEB"}},{"text":"It is 42."}"#;
    assert!(body.contains(back), "{body}");
}

/// A text stays before the calls after it, whichever of them are signed.
#[tokio::test]
async fn signed_calls_go_back_behind_their_text() {
    let server = ScriptedEndpoint::gemini(vec![ScriptedAnswer::saying("ok")]);
    let provider = to("gemini-3-pro", &server.base_url()).build().unwrap();
    let call = |id: &str, signature: &str| json!({ "functionCall": { "id": id, "name": "now", "args": {} }, "thoughtSignature": signature });
    let parts = json!([{ "text": "I look." }, call("c1", "SIG-1"), call("c2", "SIG-2")]);
    let candidate =
        json!({ "content": { "role": "model", "parts": parts }, "finishReason": "STOP" });
    let body = json!({ "candidates": [candidate] }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    messages.push(Message::tool("c1".into(), "noon", false));
    messages.push(Message::tool("c2".into(), "noon", false));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    let places = ["I look.", "SIG-1", "SIG-2"].map(|part| body.find(part).unwrap());
    assert!(places.is_sorted(), "{body}");
}
