//! The wires to all providers that Backstop speaks to, for tests that fail them.

use std::sync::Arc;

use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses};
use testkit::{KEY, Wire};

/// A provider's endpoint: an adapter, and how its server answers.
pub(super) struct Endpoint {
    /// As it stands in agent files and in events.
    pub(super) name: &'static str,
    pub(super) wire: Wire,
}

pub(super) const ENDPOINTS: [Endpoint; 6] = [ANTHROPIC, OPENAI, RESPONSES, GEMINI, BEDROCK, OLLAMA];

pub(super) const ANTHROPIC: Endpoint = Endpoint {
    name: "anthropic",
    wire: Wire::of(
        |url, timeouts| {
            let anthropic = Anthropic::new("m").base_url(url).api_key(KEY);
            Arc::new(anthropic.timeouts(timeouts).build().unwrap())
        },
        testkit::anthropic::reply,
    ),
};

pub(super) const OPENAI: Endpoint = Endpoint {
    name: "openai",
    wire: Wire::of(
        |url, timeouts| {
            let openai = OpenAi::new("m").base_url(format!("{url}/v1")).api_key(KEY);
            Arc::new(openai.timeouts(timeouts).build().unwrap())
        },
        testkit::openai::reply,
    ),
};

const RESPONSES: Endpoint = Endpoint {
    name: "openai-responses",
    wire: Wire::of(
        |url, timeouts| {
            let openai = OpenAiResponses::new("m").base_url(format!("{url}/v1")).api_key(KEY);
            Arc::new(openai.timeouts(timeouts).build().unwrap())
        },
        testkit::responses::reply,
    ),
};

const GEMINI: Endpoint = Endpoint {
    name: "gemini",
    wire: Wire::of(
        |url, timeouts| {
            let gemini = Gemini::new("m").base_url(format!("{url}/v1beta")).api_key(KEY);
            Arc::new(gemini.timeouts(timeouts).build().unwrap())
        },
        |answer, request| testkit::gemini::reply(answer, request, request["stream"] == true),
    ),
};

const BEDROCK: Endpoint = Endpoint {
    name: "bedrock",
    wire: Wire::of(
        |url, timeouts| {
            let bedrock = Bedrock::new("m").base_url(url).region("eu-central-1").api_key(KEY);
            Arc::new(bedrock.timeouts(timeouts).build().unwrap())
        },
        |answer, request| testkit::bedrock::reply(answer, request, request["stream"] == true),
    ),
};

const OLLAMA: Endpoint = Endpoint {
    name: "ollama",
    wire: Wire::of(
        |url, timeouts| {
            Arc::new(Ollama::new("m").base_url(url).timeouts(timeouts).build().unwrap())
        },
        testkit::ollama::reply,
    ),
};

#[test]
fn each_endpoint_is_called_what_its_adapter_is() {
    for endpoint in ENDPOINTS {
        let adapter = (endpoint.wire.provider)("http://127.0.0.1:9", Default::default());
        assert_eq!(adapter.name(), endpoint.name);
    }
}
