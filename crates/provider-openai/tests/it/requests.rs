use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_http::ProviderConfigError;
use backstop_provider_openai::OpenAi;
use backstop_testkit::{Request, ScriptedEndpoint};
use layer0::message::{Image, Message, ToolCall, Transcript};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use super::ask::{KEY, hello, send, to};

async fn sent(setup: fn(OpenAi) -> OpenAi, request: &ModelRequest, streamed: bool) -> Request {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::openai(vec![said]);
    let provider = setup(to(&server.base_url())).build().unwrap();
    send(&provider, request, streamed).await.unwrap();
    server.requests().remove(0)
}

/// A conversation with every kind of message.
pub(super) fn conversation() -> ModelRequest {
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
async fn what_is_sent_to_a_compatible_endpoint() {
    let request = sent(|it| it, &conversation(), true).await;
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn openai_itself_gets_max_completion_tokens() {
    let request =
        sent(|it| it.with(|it| it.max_completion_tokens(true)), &conversation(), false).await;
    assert_eq!(request.body["max_completion_tokens"], 512);
    assert!(request.body.get("max_tokens").is_none());
    assert_eq!(request.body["stream"], false);
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent(|it| it, &hello(), false).await;
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn local_endpoint_gets_no_key() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::openai(vec![said]);
    let slash = format!("{}/", server.base_url());
    let provider = OpenAi::new("m").base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    assert_eq!(server.requests()[0].header("authorization"), None);
}

/// Spec: P11
#[tokio::test]
async fn a_real_request_is_denied_in_tests() {
    backstop_process::deny_real_requests();
    let provider = OpenAi::new("m").api_key("sk-0123456789").build().unwrap();
    let error = provider.complete(&hello()).await.unwrap_err();
    let chain = layer0::failure::chain(&error);
    let denied = "real requests are denied in this process: `";
    assert!(chain.last().unwrap().starts_with(denied), "{chain:?}");
}

#[test]
fn without_a_key_openai_itself_cannot_be_asked() {
    let error = OpenAi::new("m").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    assert!(error.to_string().contains("`OPENAI_API_KEY`"));
}
