//! Servers that refuse what the real endpoints are reported to refuse.
//!
//! Each [`Rule`] is a row: what is refused, the endpoint's own words, and the document or report that
//! they are taken from. The rows know nothing of Backstop's adapters, and requests are read by another
//! library than the one that writes them: a mistake of an adapter is not repeated by what judges it.
//!
//! [`StrictServer`] answers from a script as long as requests keep the rules. It remembers what it said,
//! for endpoints that want it back: signatures, reasoning, ids of calls.
//!
//! ```
//! use backstop_testkit::strict::{Dialect, Said, check};
//!
//! let body = br#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[]}]}"#;
//! let refused = check(Dialect::Anthropic, &Said::default(), "/v1/messages", body).unwrap_err();
//! assert_eq!(refused.rule, "anthropic.content_given");
//! ```

mod dress;
mod json;
mod rule;
mod rules;
mod said;
mod schema;
mod server;

use json::Node;
use rule::Asked;

pub use rule::{Refusal, Rule};
pub use said::Said;
pub use server::StrictServer;

/// An endpoint, by what it takes.
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

    /// Returns the name that files and messages have for it.
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

    /// Returns an id as the endpoint gives it to a call; empty where it gives none.
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

/// Judges a request.
///
/// # Errors
///
/// The refusal by the first rule that the request breaks.
pub fn check(dialect: Dialect, said: &Said, path: &str, body: &[u8]) -> Result<(), Refusal> {
    if dialect.is_streamed(path, body).is_none() {
        return Err(rules::PATH.refusal(dialect, &[path.to_owned()]));
    }
    let read = match json::read(body) {
        Ok(read) => read,
        Err(why) => return Err(rules::JSON.refusal(dialect, &[why])),
    };
    let asked = Asked { dialect, body: Node::new(&read), said };
    for rule in rules(dialect) {
        if let Some(parts) = (rule.find)(asked) {
            return Err(rule.refusal(dialect, &parts));
        }
    }
    Ok(())
}

/// Returns the rules of an endpoint, in the order in which they are applied.
pub fn rules(dialect: Dialect) -> impl Iterator<Item = &'static Rule> {
    rules::TABLES.into_iter().flatten().filter(move |rule| rule.dialects.contains(&dialect))
}

#[cfg(test)]
mod tests;
