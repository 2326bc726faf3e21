//! The parts of the conformance suite that are specific to Anthropic Messages.

use std::sync::{Arc, LazyLock};

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_anthropic::{Anthropic, AnthropicProvider};
use backstop_testkit::contract::adapter::Adapter;
use backstop_testkit::{Reply, ScriptedEndpoint, failures};
use layer0::message::StopReason;
use serde_json::{Value, json};

pub(super) use backstop_testkit::{KEY, hello, send};

pub(super) const ADAPTER: Adapter = Adapter {
    wire: backstop_testkit::anthropic::wire(|url, timeouts| {
        Arc::new(to(url).timeouts(timeouts).build().unwrap())
    }),
    endpoint: ScriptedEndpoint::anthropic,
    read: |content_type, body| Box::pin(READER.read(content_type, body)),
    shown: || format!("{:?} {:?}", to(NOWHERE), *READER),
    failures: || failures::samples(&["anthropic"]),
    no_answers,
    repeating,
    reasons: &[
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::MaxTokens),
        ("tool_use", StopReason::ToolUse),
        ("pause_turn", StopReason::Pause),
        ("refusal", StopReason::Refusal),
        ("model_context_window_exceeded", StopReason::ContextExceeded),
    ],
    stopped: |reason| {
        let text = json!({ "type": "text", "text": "so far" });
        let content = json!([text, { "type": "of_tomorrow", "a": 1 }]);
        let body = json!({ "type": "message", "content": content, "stop_reason": reason });
        vec![(Reply::json(200, &body), false)]
    },
    transient_inside: Some(529),
    no_arguments: || vec![json!({}), Value::Null],
    // The empty line that ends the last event.
    after_the_end: || 2,
};

fn no_answers() -> Vec<(Reply, bool, &'static str)> {
    vec![
        (
            Reply::json(200, &json!({})),
            false,
            "not the expected JSON: missing field `content` at line 1 column 2",
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
        Reply::json(200, &json!({ "content": told })),
        Reply::json(200, &json!({ "content": [], "stop_reason": told })),
        Reply::events(format!("data: {error}\n\n")),
        Reply::events(format!("data: {{\"type\": \"{KEY}\", \"type\": 3}}\n\n")),
    ]
}

const NOWHERE: &str = "http://127.0.0.1:9";

/// A provider that is never called, and decodes recorded responses.
static READER: LazyLock<AnthropicProvider> = LazyLock::new(|| to(NOWHERE).build().unwrap());

pub(super) fn to(base_url: &str) -> Anthropic {
    backstop_process::deny_real_requests();
    Anthropic::new("model-1").base_url(base_url).api_key(KEY)
}

/// Calls a server that sends this reply once.
pub(super) async fn ask(reply: Reply, streamed: bool) -> Result<ModelResponse, ProviderError> {
    ADAPTER.wire.ask(reply, streamed).await
}
