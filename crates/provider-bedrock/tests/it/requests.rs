use std::fmt::Write;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_bedrock::{AwsCredentials, Bedrock};
use backstop_provider_http::ProviderConfigError;
use backstop_testkit::{Request, ScriptedEndpoint};
use layer0::message::{Image, Message, ToolCall, Transcript};
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::ask::{KEY, TOKEN, hello, send, to, to_model};

fn endpoint() -> ScriptedEndpoint {
    let said = ScriptedAnswer::saying("ok");
    ScriptedEndpoint::bedrock(vec![said])
}

async fn sent(request: &ModelRequest, streamed: bool) -> Request {
    let server = endpoint();
    let provider = to(&server.base_url()).build().unwrap();
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
    messages.push(Message::user("Look it up."));
    messages.push(Message::assistant(
        "",
        Arc::new([
            call("call-1", "fs_read", json!({ "path": "a" })),
            call("call-1~2", "fs_read", json!(r#"{"path": "#)),
            call("call-2", "fs_read", json!({ "path": "empty" })),
        ]),
    ));
    messages.push(Message::tool("call-1".into(), "Grüße", false));
    messages.push(Message::tool("call-1~2".into(), "Tool 'fs_read' failed: not JSON", true));
    messages.push(Message::tool("call-2".into(), "", false));
    messages.push(Message::assistant("It says hello.", Arc::default()));
    messages.push(Message::user("And `b`?"));
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest::new(messages)
        .tools([ToolSpec::new("fs_read", "Reads a file.", schema)])
        .settings(ModelSettings::new().max_output_tokens(512).temperature(0.5))
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
    let image = json!({ "image": { "format": "gif", "source": { "bytes": "R0lGODlh" } } });
    for (model, is_shown) in [
        ("eu.anthropic.claude-sonnet-4", true),
        ("amazon.nova-lite-v1:0", true),
        ("amazon.nova-micro-v1:0", false),
        ("meta.llama3", false),
    ] {
        let server = endpoint();
        let provider = to_model(model, &server.base_url()).build().unwrap();
        send(&provider, &shown(), false).await.unwrap();
        let request = server.requests().remove(0);
        let mut content = vec![json!({ "text": "[a drawing]" })];
        content.extend(is_shown.then(|| image.clone()));
        let result = &request.body["messages"][2]["content"][0]["toolResult"];
        assert_eq!(result["content"], json!(content), "{model}");
    }
}

#[tokio::test]
async fn what_is_sent() {
    let request = sent(&conversation(), true).await;
    assert_eq!(request.path, "/model/model-1%3A0/converse-stream");
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent(&hello(), false).await;
    assert_eq!(request.path, "/model/model-1%3A0/converse");
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

/// Requests have the signature of the specification, computed here by hand:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.
#[tokio::test]
async fn what_arrives_is_what_was_signed() {
    for streamed in [false, true] {
        let request = sent(&conversation(), streamed).await;
        let header = |name: &str| request.header(name).unwrap();
        assert_eq!(header("x-amz-security-token"), TOKEN);
        // The path is encoded once more than in the request.
        let mut canonical = format!("POST\n{}\n\n", request.path.replace('%', "%25"));
        let signed = ["content-type", "host", "x-amz-date", "x-amz-security-token"];
        for name in signed {
            writeln!(canonical, "{name}:{}", header(name)).unwrap();
        }
        write!(canonical, "\n{}\n{}", signed.join(";"), hex(&Sha256::digest(&request.bytes)))
            .unwrap();

        let date = header("x-amz-date");
        let scope = format!("{}/eu-central-1/bedrock/aws4_request", &date[..8]);
        let digest = hex(&Sha256::digest(&canonical));
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let mut key = format!("AWS4{KEY}").into_bytes();
        for part in scope.split('/') {
            key = hmac(&key, part.as_bytes());
        }
        let signature = hex(&hmac(&key, to_sign.as_bytes()));
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{scope}, SignedHeaders={}, Signature={signature}",
            signed.join(";")
        );
        assert_eq!(header("authorization"), expected);
    }
}

/// RFC 2104.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block.resize(64, 0);
    let padded = |pad: u8| block.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = Sha256::digest([padded(0x36), message.to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[tokio::test]
async fn an_api_key_is_sent_as_it_is() {
    let server = endpoint();
    backstop_process::deny_real_requests();
    let provider = Bedrock::new("m").base_url(server.base_url()).api_key(KEY).build().unwrap();
    provider.complete(&hello()).await.unwrap();
    let request = server.requests().remove(0);
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(request.header("x-amz-date"), None);
}

#[tokio::test]
async fn gateway_with_its_own_key_gets_none() {
    let server = endpoint();
    let slash = format!("{}/", server.base_url());
    let arn = "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.m-v1:0";
    let provider = Bedrock::new(arn).base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    let request = server.requests().remove(0);
    assert_eq!(request.header("authorization"), None);
    let path = "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Feu.m-v1%3A0";
    assert_eq!(request.path, format!("{path}/converse"));
}

/// Spec: P11
#[tokio::test]
async fn a_real_request_is_denied_in_tests() {
    backstop_process::deny_real_requests();
    let provider = Bedrock::new("m").with(|it| it.region("eu-central-1")).api_key("0123456789");
    let provider = provider.build().unwrap();
    let error = provider.complete(&hello()).await.unwrap_err();
    let chain = layer0::failure::chain(&error);
    let denied = "real requests are denied in this process: `";
    assert!(chain.last().unwrap().starts_with(denied), "{chain:?}");
}

#[test]
fn missing_or_wrong_settings_fail_before_sending() {
    #[track_caller]
    fn check(setup: Bedrock, expected: &str) {
        let error = setup.build().unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!error.hint().is_empty());
    }
    let credentials = || AwsCredentials::new("AKIDEXAMPLE", KEY);
    check(
        Bedrock::new("m").with(|it| it.region("eu-central-1")),
        "no API key: environment variable `AWS_ACCESS_KEY_ID` is not set",
    );
    let no_region = "no region: environment variable `AWS_REGION` is not set";
    check(Bedrock::new("m").api_key(KEY), no_region);
    check(
        Bedrock::new("m").with(|it| it.credentials(credentials())).base_url("http://localhost"),
        no_region,
    );
    check(
        Bedrock::new("m").api_key(KEY).with(|it| it.region("example.com/")),
        "base URL `https://bedrock-runtime.example.com/.amazonaws.com` is not usable: the region is \
         not a name such as `eu-central-1`",
    );
    for broken in [
        AwsCredentials::new("AKID\nEXAMPLE", KEY),
        AwsCredentials::new("AKIDEXAMPLE", KEY).session_token("a\nb"),
    ] {
        let error =
            Bedrock::new("m").with(|it| it.region("eu-central-1").credentials(broken)).build();
        assert!(matches!(error, Err(ProviderConfigError::InvalidKey)), "{error:?}");
    }
}

/// Spec: P12
#[tokio::test]
async fn claude_is_sent_marks_for_its_cache() {
    let mark = json!({ "cachePoint": { "type": "default" } });
    for (model, caches, is_marked) in [
        ("eu.anthropic.claude-sonnet-4-5-v1:0", true, true),
        ("eu.anthropic.claude-sonnet-4-5-v1:0", false, false),
        ("meta.llama3", true, false),
    ] {
        let server = endpoint();
        let bedrock = Bedrock::new(model).base_url(server.base_url());
        let bedrock = bedrock.with(|it| it.region("eu-central-1").caches_prompts(caches));
        let provider = bedrock.api_key(KEY).build().unwrap();
        // The server may not know a model of this name; only the request matters.
        let _ = send(&provider, &conversation(), false).await;
        let body = server.requests().remove(0).body;
        let last = body["messages"].as_array().unwrap().last().unwrap();
        for parts in [&body["system"], &body["toolConfig"]["tools"], &last["content"]] {
            let parts = parts.as_array().unwrap();
            assert_eq!(parts.last() == Some(&mark), is_marked, "{body}");
            assert_ne!(parts.first(), Some(&mark), "{body}");
        }
    }
}
