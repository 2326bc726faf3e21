//! The parts of the conformance suite that are specific to Gemini.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_gemini::{Gemini, GeminiProvider};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) use backstop_testkit::{KEY, hello, send};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::gemini::wire(|url, timeouts| {
        Arc::new(to(MODEL, url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::gemini,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || format!("{:?} {:?}", to(MODEL, NOWHERE), *READER),
    failures: || failures::samples(&["gemini"]),
    no_answers,
    repeating,
    reasons: &[
        ("STOP", StopReason::End),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("SAFETY", StopReason::ContentFilter),
        ("RECITATION", StopReason::ContentFilter),
        ("BLOCKLIST", StopReason::ContentFilter),
        ("PROHIBITED_CONTENT", StopReason::ContentFilter),
        ("SPII", StopReason::ContentFilter),
        ("MODEL_ARMOR", StopReason::ContentFilter),
        ("IMAGE_SAFETY", StopReason::ContentFilter),
        ("LANGUAGE", StopReason::ContentFilter),
        ("ESCALATION", StopReason::ContentFilter),
        ("PUP_LIMITED_DISABLED", StopReason::ContentFilter),
    ],
    stopped: |reason| {
        let parts = json!([{ "text": "so far" }, { "executableCode": { "code": "1" } }]);
        let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
        vec![(Reply::json(200, &json!({ "candidates": [candidate] })), false)]
    },
    transient_inside: Some(502),
    no_arguments: || vec![json!({}), Value::Null],
    // The empty line that ends the last event.
    after_the_end: || 4,
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (
            Reply::json(200, &json!({ "candidates": 3 })),
            false,
            "not the expected JSON: invalid type: integer `3`, expected a sequence at line 1 column 15",
        ),
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
        Reply::json(200, &json!({ "candidates": told })),
        Reply::json(200, &json!({ "candidates": [{ "finishReason": told }] })),
        Reply::json(200, &json!({ "promptFeedback": { "blockReason": told } })),
        Reply::events(format!("data: {error}\n\n")),
        Reply::events(format!("data: {{\"candidates\": \"{KEY}\"}}\n\n")),
    ]
}

const MODEL: &str = "model-1";
const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<GeminiProvider> = LazyLock::new(|| to(MODEL, NOWHERE).build().unwrap());

pub(super) fn to(model: &str, base_url: &str) -> Gemini {
    backstop_process::deny_real_requests();
    Gemini::new(model).base_url(base_url).api_key(KEY)
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
