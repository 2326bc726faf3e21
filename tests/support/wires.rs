//! The wires to all providers that Backstop speaks to, for tests that fail them.

use std::sync::Arc;

use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses};
use backstop_testkit::failures::{Sample, responses_samples, samples};
use backstop_testkit::{KEY, Wire};

/// A provider's endpoint: an adapter, how its server answers, and how it is known to fail.
pub(crate) struct Endpoint {
    /// As it stands in agent files and in events.
    pub(crate) name: &'static str,
    /// As people call it.
    pub(crate) title: &'static str,
    pub(crate) wire: Wire,
    pub(crate) failures: fn() -> Vec<Sample>,
}

pub(crate) const ENDPOINTS: [Endpoint; 6] = [ANTHROPIC, OPENAI, RESPONSES, GEMINI, BEDROCK, OLLAMA];

pub(crate) const ANTHROPIC: Endpoint = Endpoint {
    name: "anthropic",
    title: "Anthropic Messages",
    wire: backstop_testkit::anthropic::wire(|url, timeouts| {
        let anthropic = Anthropic::new("m").base_url(url).api_key(KEY);
        Arc::new(anthropic.timeouts(timeouts).build().unwrap())
    }),
    failures: || samples(&["anthropic"]),
};

pub(crate) const OPENAI: Endpoint = Endpoint {
    name: "openai",
    title: "OpenAI Chat Completions",
    wire: backstop_testkit::openai::wire(|url, timeouts| {
        let openai = OpenAi::new("m").base_url(format!("{url}/v1")).api_key(KEY);
        Arc::new(openai.timeouts(timeouts).build().unwrap())
    }),
    failures: || samples(&["openai", "llama.cpp", "mistral", "cohere"]),
};

const RESPONSES: Endpoint = Endpoint {
    name: "openai-responses",
    title: "OpenAI Responses",
    wire: backstop_testkit::responses::wire(|url, timeouts| {
        let openai = OpenAiResponses::new("m").base_url(format!("{url}/v1")).api_key(KEY);
        Arc::new(openai.timeouts(timeouts).build().unwrap())
    }),
    failures: responses_samples,
};

const GEMINI: Endpoint = Endpoint {
    name: "gemini",
    title: "Gemini",
    wire: backstop_testkit::gemini::wire(|url, timeouts| {
        let gemini = Gemini::new("m").base_url(format!("{url}/v1beta")).api_key(KEY);
        Arc::new(gemini.timeouts(timeouts).build().unwrap())
    }),
    failures: || samples(&["gemini"]),
};

const BEDROCK: Endpoint = Endpoint {
    name: "bedrock",
    title: "Amazon Bedrock Converse",
    wire: backstop_testkit::bedrock::wire(|url, timeouts| {
        let bedrock =
            Bedrock::new("m").base_url(url).with(|it| it.region("eu-central-1")).api_key(KEY);
        Arc::new(bedrock.timeouts(timeouts).build().unwrap())
    }),
    failures: || samples(&["bedrock"]),
};

const OLLAMA: Endpoint = Endpoint {
    name: "ollama",
    title: "Ollama",
    wire: backstop_testkit::ollama::wire(|url, timeouts| {
        let ollama = Ollama::new("m").base_url(url).api_key(KEY);
        Arc::new(ollama.timeouts(timeouts).build().unwrap())
    }),
    failures: || samples(&["ollama"]),
};

#[test]
fn each_endpoint_is_called_what_its_adapter_is() {
    for endpoint in ENDPOINTS {
        let adapter = (endpoint.wire.provider)("http://127.0.0.1:9", Default::default());
        assert_eq!(adapter.name(), endpoint.name);
    }
}
