//! The parts of the conformance suite that are specific to OpenAI Chat Completions.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_openai::{OpenAi, OpenAiProvider};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) use backstop_testkit::{KEY, hello, send};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::openai::wire(|url, timeouts| {
        Arc::new(to(url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::openai,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || format!("{:?} {:?}", to(NOWHERE), *READER),
    failures: || failures::samples(&["openai", "llama.cpp", "mistral", "cohere"]),
    no_answers,
    repeating,
    reasons: &[
        ("stop", StopReason::End),
        ("length", StopReason::MaxTokens),
        ("tool_calls", StopReason::ToolUse),
        ("function_call", StopReason::ToolUse),
        ("content_filter", StopReason::ContentFilter),
        ("model_length", StopReason::ContextExceeded),
    ],
    stopped: |reason| {
        let message = json!({ "content": "so far" });
        let body = json!({ "choices": [{ "message": message, "finish_reason": reason }] });
        vec![(Reply::json(200, &body), false)]
    },
    transient_inside: Some(502),
    no_arguments: || vec![json!(""), json!("null")],
    // The empty line that ends the last event.
    after_the_end: || 2,
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (Reply::json(200, &json!({ "choices": [] })), false, "an answer without choices"),
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid type: integer `1`, expected a sequence at line 1 column 2",
        ),
        (
            Reply::events("data: pardon?\n\n"),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ]
}

fn repeating(told: &str, error: &Value) -> Vec<Reply> {
    vec![
        Reply::json(200, &json!({ "choices": told })),
        Reply::json(200, &json!({ "choices": [{ "finish_reason": told }] })),
        Reply::events(format!("data: {error}\n\n")),
        Reply::events(format!("data: {{\"choices\": \"{KEY}\"}}\n\n")),
    ]
}

const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<OpenAiProvider> = LazyLock::new(|| to(NOWHERE).build().unwrap());

pub(super) fn to(base_url: &str) -> OpenAi {
    backstop_process::deny_real_requests();
    OpenAi::new("model-1").base_url(base_url).api_key(KEY)
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
