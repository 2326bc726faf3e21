//! Every adapter keeps the contract of a provider, over real HTTP.

use std::sync::Arc;
use std::time::Duration;

use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses};
use provider::{ErrorKind, ScriptedAnswer};
use provider_http::Timeouts;
use serde_json::Value;
use testkit::{Wire, provider_conformance};

fn timeouts() -> Timeouts {
    let short = Duration::from_secs(1);
    Timeouts { first_byte: short, idle: short, ..Timeouts::default() }
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_chat_keeps_the_contract() {
    let provider = |url: &str| {
        let openai = OpenAi::new("m").base_url(format!("{url}/v1")).timeouts(timeouts());
        Arc::new(openai.build().unwrap()) as Arc<_>
    };
    provider_conformance(Wire::of(provider, testkit::openai::reply)).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropic_keeps_the_contract() {
    let provider = |url: &str| {
        let anthropic = Anthropic::new("m").base_url(url).api_key("0123456789");
        Arc::new(anthropic.timeouts(timeouts()).build().unwrap()) as Arc<_>
    };
    provider_conformance(Wire::of(provider, testkit::anthropic::reply)).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_responses_keeps_the_contract() {
    let provider = |url: &str| {
        let openai = OpenAiResponses::new("m").base_url(format!("{url}/v1")).timeouts(timeouts());
        Arc::new(openai.build().unwrap()) as Arc<_>
    };
    provider_conformance(Wire::of(provider, testkit::responses::reply)).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ollama_keeps_the_contract() {
    let provider = |url: &str| {
        let ollama = Ollama::new("m").base_url(url).timeouts(timeouts());
        Arc::new(ollama.build().unwrap()) as Arc<_>
    };
    // A line in the middle of a stream has no status that could say so.
    let only_at_the_start = &[
        ErrorKind::RateLimited,
        ErrorKind::InvalidRequest,
        ErrorKind::AuthFailed,
        ErrorKind::QuotaExhausted,
        ErrorKind::Timeout,
    ];
    let wire = Wire::of(provider, testkit::ollama::reply);
    let without = &[ErrorKind::ContentBlocked];
    provider_conformance(Wire { without, only_at_the_start, ..wire }).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_keeps_the_contract() {
    let provider = |url: &str| {
        let gemini = Gemini::new("m").base_url(format!("{url}/v1beta")).api_key("0123456789");
        Arc::new(gemini.timeouts(timeouts()).build().unwrap()) as Arc<_>
    };
    let reply = |answer: &ScriptedAnswer, request: &Value| {
        testkit::gemini::reply(answer, request, request["stream"] == true)
    };
    provider_conformance(Wire::of(provider, reply)).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bedrock_keeps_the_contract() {
    let provider = |url: &str| {
        let bedrock = Bedrock::new("m").base_url(url).region("eu-central-1").api_key("0123456789");
        Arc::new(bedrock.timeouts(timeouts()).build().unwrap()) as Arc<_>
    };
    let reply = |answer: &ScriptedAnswer, request: &Value| {
        testkit::bedrock::reply(answer, request, request["stream"] == true)
    };
    let without = &[ErrorKind::ContentBlocked];
    provider_conformance(Wire { without, ..Wire::of(provider, reply) }).await;
}
