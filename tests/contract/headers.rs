//! What requests carry beside their body, and what failures say of them.

use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses};
use backstop_provider::Provider;
use backstop_provider_http::{HttpProviderBuilder, Protocol, Timeouts};
use backstop_testkit::{KEY, Loopback, Reply, hello, send};
use layer0::failure::chain;
use serde_json::json;

use crate::support::wires::ENDPOINTS;

/// Spec: P12
#[tokio::test]
async fn every_request_says_who_asks() {
    for endpoint in &ENDPOINTS {
        let server = Loopback::replying([Reply::json(500, &json!({}))]);
        let provider = (endpoint.wire.provider)(&server.url(), Timeouts::default());
        send(&*provider, &hello(), false).await.unwrap_err();
        let requests = server.requests();
        let expected = concat!("backstop/", env!("CARGO_PKG_VERSION"));
        assert_eq!(requests[0].header("user-agent"), Some(expected), "{}", endpoint.title);
    }
}

/// Spec: E10. Headers are sent, and a secret one is in no error, wherever the server repeats it.
#[tokio::test]
async fn further_headers_are_sent_and_kept_secret() {
    async fn check<P: Protocol>(builder: HttpProviderBuilder<P>) {
        const TOKEN: &str = "gateway-token-0123456789";
        let told = json!({ "error": { "message": format!("who is {TOKEN}?") } });
        let server = Loopback::replying([Reply::json(400, &told)]);
        let builder = builder
            .base_url(server.url())
            .api_key(KEY)
            .header("x-project", "blue")
            .secret_header("x-gateway", TOKEN)
            .user_agent("triage/2");
        assert!(builder.secrets().any(|secret| secret.reveal() == TOKEN), "{}", P::NAME);
        assert!(!format!("{builder:?}").contains(TOKEN), "{}", P::NAME);
        let provider = builder.build().unwrap();
        let error = provider.complete(&hello()).await.unwrap_err();
        assert!(chain(&error).join(": ").contains("who is [redacted]?"), "{error}");
        let requests = server.requests();
        let sent = ["x-project", "x-gateway", "user-agent"].map(|name| requests[0].header(name));
        assert_eq!(sent, [Some("blue"), Some(TOKEN), Some("triage/2")], "{}", P::NAME);
    }
    check(Anthropic::new("m")).await;
    check(Bedrock::new("m").with(|it| it.region("eu-central-1"))).await;
    check(Gemini::new("m")).await;
    check(Ollama::new("m")).await;
    check(OpenAi::new("m")).await;
    check(OpenAiResponses::new("m")).await;
}

/// Spec: E12
#[test]
fn header_that_cannot_be_sent_is_refused() {
    for (name, value, why) in [
        ("two words", "x", "header `two words` cannot be sent: it is no name of a header"),
        (
            "x-a",
            "line\nbreak",
            "header `x-a` cannot be sent: its value holds characters that a header cannot carry",
        ),
        ("Content-Length", "0", "header `Content-Length` cannot be sent: it is set by the adapter"),
    ] {
        let builder = OpenAi::new("m").base_url("http://127.0.0.1:9").header(name, value);
        assert_eq!(builder.build().unwrap_err().to_string(), why);
    }
}

/// A gateway may want its own credential in place of the provider's.
#[tokio::test]
async fn header_takes_the_place_of_the_key() {
    let server = Loopback::replying([Reply::json(500, &json!({}))]);
    let openai = OpenAi::new("m").base_url(server.url()).api_key(KEY);
    let openai = openai.header("Authorization", "Basic abcdefgh").build().unwrap();
    openai.complete(&hello()).await.unwrap_err();
    assert_eq!(server.requests()[0].header("authorization"), Some("Basic abcdefgh"));
    let alone = OpenAi::new("m").header("authorization", "Basic abcdefgh").build();
    assert!(alone.is_ok(), "it needs no key");
}

/// Spec: E1. What a provider's support asks for stands in the failure.
#[tokio::test]
async fn failures_name_the_request() {
    let failed = json!({ "error": { "message": "no such model" } });
    for endpoint in &ENDPOINTS {
        let refused = Reply::json(400, &failed).header("x-request-id", "req_7");
        let inside = Reply::json(200, &failed).header("x-request-id", "req_7");
        for reply in [refused, inside] {
            let server = Loopback::replying([reply]);
            let provider = (endpoint.wire.provider)(&server.url(), Timeouts::default());
            let error = send(&*provider, &hello(), false).await.unwrap_err();
            let text = chain(&error).join(": ");
            assert!(text.contains("no such model (request `req_7`)"), "{}: {text}", endpoint.title);
        }
    }
}
