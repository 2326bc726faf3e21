//! The parts of the conformance suite that are specific to OpenAI Responses.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_openai::{OpenAiResponses, OpenAiResponsesProvider};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{KEY, Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::responses::wire(|url, timeouts| {
        Arc::new(to(url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::openai_responses,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || format!("{:?} {:?}", to(NOWHERE), *READER),
    failures: failures::responses_samples,
    no_answers,
    repeating,
    reasons: &[
        ("max_output_tokens", StopReason::MaxTokens),
        ("max_messages", StopReason::MaxTokens),
        ("content_filter", StopReason::ContentFilter),
        ("steered", StopReason::Pause),
    ],
    stopped: failures::responses_stopped,
    transient_inside: Some(502),
    no_arguments: || vec![json!(""), json!("null")],
    // The empty line that ends the last event.
    after_the_end: || 2,
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid length 1, expected struct WireResponse with 5 elements at line 1 column 3",
        ),
        (
            Reply::events("data: pardon?\n\n"),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ]
}

fn repeating(told: &str, error: &Value) -> Vec<Reply> {
    let failed = json!({ "type": "response.failed", "response": error });
    vec![
        Reply::json(200, &json!({ "output": told })),
        Reply::json(200, &json!({ "status": told })),
        Reply::events(format!("data: {}\n\n", json!({ "type": "error", "message": told }))),
        Reply::events(format!("data: {failed}\n\n")),
        Reply::events(format!("data: {error}\n\n")),
        Reply::events(format!("data: {{\"item\": \"{KEY}\"}}\n\n")),
    ]
}

const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<OpenAiResponsesProvider> = LazyLock::new(|| to(NOWHERE).build().unwrap());

pub(super) fn to(base_url: &str) -> OpenAiResponses {
    to_model("model-1", base_url)
}

pub(super) fn to_model(model: &str, base_url: &str) -> OpenAiResponses {
    backstop_process::deny_real_requests();
    OpenAiResponses::new(model).base_url(base_url).api_key(KEY)
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
