use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_http::ProviderConfigError;
use backstop_provider_ollama::{HOSTED_URL, KEY_VARIABLE, Ollama};
use backstop_testkit::{Request, ScriptedEndpoint};
use layer0::message::{Image, Message, ToolCall, Transcript};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use super::ask::{KEY, hello, send, to};

async fn sent(setup: fn(Ollama) -> Ollama, request: &ModelRequest, streamed: bool) -> Request {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::ollama(vec![said]);
    let provider = setup(to(&server.base_url())).build().unwrap();
    send(&provider, request, streamed).await.unwrap();
    server.requests().remove(0)
}

/// A conversation with every kind of message.
fn conversation() -> ModelRequest {
    let call =
        |id: &str, name: &str, arguments: serde_json::Value| ToolCall::new(id, name, arguments);
    let mut messages = Transcript::default();
    messages.push(Message::system("Be brief."));
    let image = Image::from_bytes(b"GIF89a").unwrap();
    messages.push(Message::User { content: "What is in `a`?".into(), images: [image].into() });
    messages.push(Message::assistant(
        "",
        Arc::new([
            call("call-1", "fs_read", json!({ "path": "a" })),
            call("call-2", "fs_read", json!(r#"{"path": "#)),
        ]),
    ));
    messages.push(Message::tool("call-1".into(), "Grüße", false));
    messages.push(Message::tool("call-2".into(), "Tool 'fs_read' failed: not JSON", true));
    messages.push(Message::assistant("It says hello.", Arc::default()));
    messages.push(Message::user("And `b`?"));
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest::new(messages)
        .tools([ToolSpec::new("fs_read", "Reads a file.", schema)])
        .settings(ModelSettings::new().max_output_tokens(512).temperature(0.5))
}

#[tokio::test]
async fn what_is_sent_to_stream() {
    let request = sent(|it| it.with(|it| it.context_tokens(8192)), &conversation(), true).await;
    assert_eq!(request.path, "/api/chat");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent(|it| it, &hello(), false).await;
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

/// A result whose call is missing, as after a conversation was cut, has no name to send. A user
/// message is inserted if a conversation begins without one.
#[tokio::test]
async fn a_result_names_the_tool_of_its_call() {
    let call = |name: &str| ToolCall::new("call-1", name, json!({}));
    let mut messages = Transcript::default();
    messages.push(Message::tool("call-1".into(), "of nobody", false));
    messages.push(Message::assistant("", Arc::new([call("one")])));
    messages.push(Message::tool("call-1".into(), "of one", false));
    messages.push(Message::assistant("", Arc::new([call("two")])));
    messages.push(Message::tool("call-1".into(), "of two", false));
    let request = sent(|it| it, &ModelRequest::new(messages), false).await;
    let names: Vec<_> = [1, 3, 5].map(|at| &request.body["messages"][at]["tool_name"]).into();
    assert_eq!(names, [&json!(null), &json!("one"), &json!("two")]);
}

#[tokio::test]
async fn self_hosted_server_gets_no_key() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::ollama(vec![said]);
    let slash = format!("{}/", server.base_url());
    let provider = Ollama::new("m").base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[test]
fn without_a_base_url_it_asks_this_machine() {
    let provider = Ollama::new("m").build().unwrap();
    assert!(format!("{provider:?}").contains("http://localhost:11434"), "{provider:?}");
}

/// Spec: P11
#[tokio::test]
async fn a_real_request_is_denied_in_tests() {
    backstop_process::deny_real_requests();
    let provider = Ollama::new("m").base_url(HOSTED_URL).api_key(KEY).build().unwrap();
    let error = provider.complete(&hello()).await.unwrap_err();
    let chain = layer0::failure::chain(&error);
    let denied = "real requests are denied in this process: `";
    assert!(chain.last().unwrap().starts_with(denied), "{chain:?}");
}

#[test]
fn the_hosted_service_needs_a_key() {
    // If the user has set the variable, there is nothing to test.
    if std::env::var_os(KEY_VARIABLE).is_some() {
        return;
    }
    let error = Ollama::from_env("m").unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    assert!(error.to_string().contains("`OLLAMA_API_KEY`"));
}

/// Thinking is sent back only with the calls it led to.
#[tokio::test]
async fn thinking_goes_back_with_its_calls() {
    let call = json!([{ "function": { "name": "now", "arguments": {} } }]);
    for (calls, count) in [(call, 1), (json!([]), 0)] {
        let server = ScriptedEndpoint::ollama(vec![ScriptedAnswer::saying("ok")]);
        let provider = to(&server.base_url()).build().unwrap();
        let message = json!({ "content": "x", "thinking": "I \"look\".", "tool_calls": calls });
        let body = json!({ "message": message, "done": true, "done_reason": "stop" }).to_string();
        let answer = provider.read("application/x-ndjson", body).await.unwrap();
        let results = answer.tool_calls.len();
        let mut messages = Transcript::default();
        messages.push(Message::user("hi"));
        messages.push(Message::Assistant {
            content: answer.text,
            tool_calls: answer.tool_calls,
            provider_state: answer.provider_state,
        });
        (0..results).for_each(|_| messages.push(Message::tool("".into(), "noon", false)));
        send(&provider, &ModelRequest::new(messages), false).await.unwrap();
        let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
        let back = r#""content":"x","thinking":"I \"look\".","tool_calls":["#;
        assert_eq!(body.matches(back).count(), count, "{body}");
        assert_eq!(body.contains("thinking"), count > 0, "{body}");
    }
}
