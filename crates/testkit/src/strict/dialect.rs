//! The endpoints.

use super::json::{self, Node};

/// An endpoint, by the requests that it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dialect {
    /// Anthropic Messages.
    Anthropic,
    /// Amazon Bedrock Converse, with a model of Anthropic's.
    Bedrock,
    /// Chat completions of llama.cpp or vLLM, with a template whose roles alternate.
    ChatTemplate,
    /// DeepSeek's chat completions, with a model that thinks.
    DeepSeek,
    /// Gemini `generateContent`, with a model that signs its calls.
    Gemini,
    /// Gemini's chat completions.
    GeminiCompatible,
    /// Mistral's chat completions.
    Mistral,
    /// Ollama chat.
    Ollama,
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// OpenRouter's chat completions, with a model that thinks.
    OpenRouter,
}

impl Dialect {
    /// All dialects, by name.
    pub const ALL: [Self; 11] = [
        Self::Anthropic,
        Self::Bedrock,
        Self::ChatTemplate,
        Self::DeepSeek,
        Self::Gemini,
        Self::GeminiCompatible,
        Self::Mistral,
        Self::Ollama,
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::OpenRouter,
    ];

    /// Returns its name in files and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Bedrock => "bedrock",
            Self::ChatTemplate => "chat-template",
            Self::DeepSeek => "deepseek",
            Self::Gemini => "gemini",
            Self::GeminiCompatible => "gemini-compatible",
            Self::Mistral => "mistral",
            Self::Ollama => "ollama",
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::OpenRouter => "openrouter",
        }
    }

    /// Returns the dialect of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Returns the path that base URLs end with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Bedrock | Self::Ollama => "",
            Self::DeepSeek => "/beta",
            Self::Gemini => "/v1beta",
            Self::GeminiCompatible => "/v1beta/openai",
            Self::OpenRouter => "/api/v1",
            _ => "/v1",
        }
    }

    /// Returns an id as the endpoint gives it to a call; empty if it gives none.
    #[must_use]
    pub fn call_id(self, turn: usize, call: usize) -> String {
        match self {
            Self::Anthropic => format!("toolu_01A09q90qw90lq917835l{turn:02}{call}"),
            Self::Bedrock => format!("tooluse_kZJMlvQmRJ6eAyJE5GI{turn:02}{call}"),
            Self::ChatTemplate | Self::Mistral => format!("a1B2c3{turn:02}{call}"),
            Self::DeepSeek => format!("call_00_9nLfpIQ6VO1JCaEsJcU8{turn:02}{call}"),
            Self::Gemini | Self::Ollama => String::new(),
            Self::GeminiCompatible => {
                format!("function-call-120938457109384571{turn:02}{call}_{}", "x".repeat(40))
            }
            Self::OpenAiChat | Self::OpenAiResponses => {
                format!("call_DdmO9pD3xa9XTPNJ32zg{turn:02}{call}")
            }
            Self::OpenRouter => format!("tool_0_lookup_{turn:02}{call}"),
        }
    }

    /// Returns whether requests to this path are streamed; `None` if the path is not served.
    pub(crate) fn is_streamed(self, path: &str, body: &[u8]) -> Option<bool> {
        let in_body =
            || json::read(body).is_ok_and(|body| Node::new(&body).get("stream").is_true());
        let served = match self {
            Self::Bedrock => return crate::wire::bedrock::is_streamed(path),
            Self::Gemini => return crate::wire::gemini::is_streamed(path),
            Self::Anthropic => "/v1/messages",
            Self::Ollama => "/api/chat",
            Self::OpenAiResponses => "/v1/responses",
            _ => path.strip_prefix(self.prefix()).filter(|rest| *rest == "/chat/completions")?,
        };
        path.ends_with(served).then(in_body)
    }
}
