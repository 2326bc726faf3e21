//! The parts of the conformance suite that are specific to Ollama chat.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_ollama::{Ollama, OllamaProvider};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) use backstop_testkit::{KEY, hello, send};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::ollama::wire(|url, timeouts| {
        Arc::new(to(url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::ollama,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || format!("{:?} {:?}", to(NOWHERE), *READER),
    failures: || failures::samples(&["ollama"]),
    no_answers,
    repeating,
    reasons: &[("stop", StopReason::End), ("length", StopReason::MaxTokens)],
    stopped: |reason| {
        let message = json!({ "content": "so far" });
        let body = json!({ "message": message, "done": true, "done_reason": reason });
        vec![(Reply::json(200, &body), false), (Reply::lines(format!("{body}\n")), true)]
    },
    transient_inside: None,
    no_arguments: || vec![json!(""), json!("null")],
    after_the_end: || 0,
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (Reply::json(200, &json!({})), false, "an answer without a message"),
        (
            Reply::json(200, &json!("?")),
            true,
            "not the expected JSON: invalid type: string \"?\", expected struct Chunk at line 1 column 3",
        ),
        (
            Reply::lines("pardon?\n"),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ]
}

fn repeating(told: &str, error: &Value) -> Vec<Reply> {
    vec![
        Reply::json(401, &json!({ "error": told })),
        Reply::json(200, &json!({ "message": told })),
        Reply::json(200, &json!({ "done": true, "done_reason": told })),
        Reply::lines(format!("{error}\n")),
        Reply::lines(format!("{}\n", json!({ "error": told }))),
        Reply::lines(format!("{{\"message\": \"{KEY}\"}}\n")),
    ]
}

const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<OllamaProvider> = LazyLock::new(|| to(NOWHERE).build().unwrap());

pub(super) fn to(base_url: &str) -> Ollama {
    backstop_process::deny_real_requests();
    Ollama::new("model-1").base_url(base_url).api_key(KEY)
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
