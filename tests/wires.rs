//! Every adapter keeps the contract of a provider, over real HTTP.

use std::sync::Arc;
use std::time::Duration;

use backstop::{Anthropic, OpenAi};
use provider_http::Timeouts;
use testkit::{Wire, provider_conformance};

fn timeouts() -> Timeouts {
    let short = Duration::from_millis(400);
    Timeouts { first_byte: short, idle: short, ..Timeouts::default() }
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_chat_keeps_the_contract() {
    let provider = |url: &str| {
        let openai = OpenAi::new("m").base_url(format!("{url}/v1")).timeouts(timeouts());
        Arc::new(openai.build().unwrap()) as Arc<_>
    };
    provider_conformance(Wire { provider, reply: testkit::openai::reply }).await;
}

/// Spec: P1, P3, P4, P7, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropic_keeps_the_contract() {
    let provider = |url: &str| {
        let anthropic = Anthropic::new("m").base_url(url).api_key("0123456789");
        Arc::new(anthropic.timeouts(timeouts()).build().unwrap()) as Arc<_>
    };
    provider_conformance(Wire { provider, reply: testkit::anthropic::reply }).await;
}
