//! Adapters for the endpoints.

use std::sync::Arc;

use backstop::openai::ChatDialect;
use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses, Provider};
use backstop_testkit::KEY;
use backstop_testkit::strict::{Dialect, StrictServer};

/// Makes the adapter that a user of the endpoint would make.
pub(super) fn connect(server: &StrictServer) -> Arc<dyn Provider> {
    let url = server.base_url();
    match server.dialect() {
        Dialect::Anthropic => {
            Arc::new(Anthropic::new("m").base_url(url).api_key(KEY).build().unwrap())
        }
        Dialect::Bedrock => {
            let bedrock = Bedrock::new("m").base_url(url).with(|it| it.region("eu-central-1"));
            Arc::new(bedrock.api_key(KEY).build().unwrap())
        }
        Dialect::Gemini => Arc::new(Gemini::new("m").base_url(url).api_key(KEY).build().unwrap()),
        Dialect::Ollama => Arc::new(Ollama::new("m").base_url(url).api_key(KEY).build().unwrap()),
        Dialect::OpenAiResponses => {
            Arc::new(OpenAiResponses::new("m").base_url(url).api_key(KEY).build().unwrap())
        }
        chat => {
            let openai = OpenAi::new("m").base_url(url).with(|it| it.dialect(chat_dialect(chat)));
            Arc::new(openai.api_key(KEY).build().unwrap())
        }
    }
}

/// Names the dialect, which the host of the real endpoint tells.
fn chat_dialect(dialect: Dialect) -> ChatDialect {
    match dialect {
        Dialect::DeepSeek => ChatDialect::DeepSeek,
        Dialect::GeminiCompatible => ChatDialect::Gemini,
        Dialect::Mistral => ChatDialect::Mistral,
        Dialect::OpenAiChat => ChatDialect::OpenAi,
        Dialect::OpenRouter => ChatDialect::OpenRouter,
        _ => ChatDialect::Compatible,
    }
}
