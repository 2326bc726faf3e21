use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_http::ProviderConfigError;
use backstop_provider_openai::OpenAiResponses;
use backstop_testkit::{Request, ScriptedEndpoint};
use layer0::JsonText;
use layer0::message::{Image, Message, ToolCall, Transcript};
use serde_json::json;

use super::ask::{to, to_model};
use crate::it::ask::{KEY, hello, send};
use crate::it::requests::conversation;

async fn sent(
    setup: fn(OpenAiResponses) -> OpenAiResponses,
    request: &ModelRequest,
    streamed: bool,
) -> Request {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::openai_responses(vec![said]);
    let provider = setup(to(&server.base_url())).build().unwrap();
    send(&provider, request, streamed).await.unwrap();
    server.requests().remove(0)
}

#[tokio::test]
async fn what_is_sent_is_the_whole_conversation() {
    let request =
        sent(|it| it.with(|it| it.reasoning_summaries(true)), &conversation(), true).await;
    assert_eq!(request.path, "/v1/responses");
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

/// Spec: Q8
#[tokio::test]
async fn images_of_tools_stand_in_their_result() {
    let mut messages = Transcript::default();
    messages.push(Message::user("draw"));
    messages.push(Message::assistant("", Arc::new([ToolCall::new("call-1", "draw", json!({}))])));
    messages.push(Message::Tool {
        tool_call_id: "call-1".into(),
        content: "[a drawing]".into(),
        images: [Image::from_bytes(b"GIF89a").unwrap()].into(),
        is_error: false,
    });
    let shown = ModelRequest::new(messages);
    let image = json!({ "type": "input_image", "image_url": "data:image/gif;base64,R0lGODlh" });
    let text = json!({ "type": "input_text", "text": "[a drawing]" });
    for (model, output) in
        [("gpt-5", json!([text, image])), ("o3-mini-2025-01-31", json!("[a drawing]"))]
    {
        let server = ScriptedEndpoint::openai_responses(vec![ScriptedAnswer::saying("ok")]);
        let provider = to_model(model, &server.base_url()).build().unwrap();
        send(&provider, &shown, false).await.unwrap();
        assert_eq!(server.requests().remove(0).body["input"][2]["output"], output, "{model}");
    }
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent(|it| it, &hello(), false).await;
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn a_system_message_further_on_keeps_its_place() {
    let mut messages = Transcript::default();
    messages.push(Message::system("Be brief."));
    messages.push(Message::system("Be kind."));
    messages.push(Message::user("hello"));
    messages.push(Message::system("Two calls are left."));
    let request = sent(|it| it, &ModelRequest::new(messages), false).await;
    assert_eq!(request.body["instructions"], "Be brief.\n\nBe kind.");
    insta::assert_snapshot!(JsonText::from(&request.body["input"]).pretty());
}

/// The rest of a budget may be less than the protocol accepts.
#[tokio::test]
async fn output_limit_respects_the_providers_minimum() {
    for (limit, expected) in [(1, 16), (16, 16), (17, 17)] {
        let settings = ModelSettings::new().max_output_tokens(limit);
        let request = sent(|it| it, &hello().settings(settings), true).await;
        assert_eq!(request.body["max_output_tokens"], expected);
    }
}

#[tokio::test]
async fn local_endpoint_gets_no_key() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::openai_responses(vec![said]);
    let slash = format!("{}/", server.base_url());
    let provider = OpenAiResponses::new("m").base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[test]
fn without_a_key_openai_itself_cannot_be_asked() {
    let error = OpenAiResponses::new("m").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    assert!(error.to_string().contains("`OPENAI_API_KEY`"));
}

/// The name used in agent files and in events.
#[test]
fn its_name_is_that_of_agent_files() {
    let provider = to("http://127.0.0.1:9").build().unwrap();
    assert_eq!((provider.name(), provider.model()), ("openai-responses", "model-1"));
}
