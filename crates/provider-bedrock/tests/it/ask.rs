//! The parts of the conformance suite that are specific to Amazon Bedrock Converse.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_bedrock::{AwsCredentials, Bedrock, BedrockProvider};
use backstop_testkit::bedrock::{event, exception, frame, stream};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) use backstop_testkit::{KEY, TOKEN, hello, send};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::bedrock::wire(|url, timeouts| {
        Arc::new(to_model(MODEL, url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::bedrock,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || {
        let bearer = to(NOWHERE).api_key(KEY);
        let built = bearer.clone().build().unwrap();
        format!("{:?} {:?} {bearer:?} {built:?}", to(NOWHERE), *READER)
    },
    failures: || failures::samples(&["bedrock"]),
    no_answers,
    repeating,
    reasons: &[
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::MaxTokens),
        ("tool_use", StopReason::ToolUse),
        ("content_filtered", StopReason::ContentFilter),
        ("malformed_model_output", StopReason::Malformed),
        ("malformed_tool_use", StopReason::Malformed),
        ("guardrail_intervened", StopReason::ContentFilter),
        ("model_context_window_exceeded", StopReason::ContextExceeded),
    ],
    stopped: |reason| {
        let content = json!([{ "text": "so far" }, { "ofTomorrow": { "a": 1 } }]);
        let message = json!({ "role": "assistant", "content": content });
        let body = json!({ "output": { "message": message }, "stopReason": reason });
        vec![(Reply::json(200, &body), false)]
    },
    transient_inside: Some(424),
    no_arguments: || vec![json!({}), Value::Null],
    // The usage follows the stop reason.
    after_the_end: || billed().len(),
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (
            Reply::json(200, &json!({})),
            false,
            "not the expected JSON: missing field `output` at line 1 column 2",
        ),
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid type: integer `1`, expected struct WireOutput at line 1 column 2",
        ),
        (
            stream(frame(
                &[(":message-type", "event"), (":event-type", "messageStop")],
                b"pardon?",
            )),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ]
}

fn repeating(told: &str, _: &Value) -> Vec<Reply> {
    vec![
        Reply::json(400, &json!({ "__type": told, "message": told })),
        Reply::json(400, &json!({ "message": format!("it was signed with {TOKEN}") })),
        Reply::json(200, &json!({ "output": told })),
        Reply::json(200, &json!({ "output": {}, "stopReason": told })),
        stream(exception(KEY, &json!({ "message": told }))),
        stream(frame(&[(":message-type", "error"), (":error-message", told)], b"")),
        stream(event("messageStop", &json!({ "stopReason": told }))),
        stream(event("messageStop", &json!(told))),
    ]
}

/// Returns the last frame of a stream whose script has no tokens.
pub(super) fn billed() -> Vec<u8> {
    let usage = json!({
        "inputTokens": 0, "outputTokens": 0, "totalTokens": 0,
        "cacheReadInputTokens": 0, "cacheWriteInputTokens": 0,
    });
    event("metadata", &json!({ "usage": usage, "metrics": { "latencyMs": 1 } }))
}

const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<BedrockProvider> =
    LazyLock::new(|| to_model(MODEL, NOWHERE).build().unwrap());

/// A model that supports all of the protocol.
const MODEL: &str = "amazon.nova-pro-v1:0";

pub(super) fn to(base_url: &str) -> Bedrock {
    to_model("model-1:0", base_url)
}

pub(super) fn to_model(model: &str, base_url: &str) -> Bedrock {
    backstop_process::deny_real_requests();
    let credentials = AwsCredentials::new("AKIDEXAMPLE", KEY).session_token(TOKEN);
    Bedrock::new(model)
        .base_url(base_url)
        .with(|it| it.region("eu-central-1").credentials(credentials))
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
