//! Endpoints that speak Chat Completions, and the limits of each, as data.

use backstop_provider_http::{Accepts, CallIds, Endpoint, MessageOrder};

/// An endpoint that speaks Chat Completions in its own way.
///
/// The base URL identifies known ones; one behind a gateway is set by
/// [`ChatCompletions::dialect`](crate::ChatCompletions::dialect).
///
/// ```
/// use backstop_provider_openai::ChatDialect;
///
/// assert_eq!(ChatDialect::from_name("mistral"), Some(ChatDialect::Mistral));
/// assert_eq!(ChatDialect::from_host("api.mistral.ai"), ChatDialect::Mistral);
/// assert_eq!(ChatDialect::from_host("localhost"), ChatDialect::Compatible);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ChatDialect {
    /// An unknown endpoint, for requests that all endpoints accept.
    Compatible,
    /// DeepSeek, and others that require `reasoning_content` back.
    DeepSeek,
    /// Gemini behind its compatible endpoint.
    Gemini,
    /// Mistral's API.
    Mistral,
    /// OpenAI itself, and Azure.
    OpenAi,
    /// OpenRouter.
    OpenRouter,
}

/// The facts of a dialect.
struct DialectProfile {
    dialect: ChatDialect,
    name: &'static str,
    /// Suffixes of host names.
    hosts: &'static [&'static str],
    accepts: Accepts,
    reasoning: KeptReasoning,
    fields: RequestFields,
}

/// Names of the fields of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFields {
    /// Mistral's fields: unknown ones are refused with status 422, `stream_options` among them;
    /// streams have usage without a request for it.
    Mistral,
    Usual,
}

/// The reasoning of an earlier answer that is sent back to its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeptReasoning {
    /// `reasoning_content` with calls, and details as they were received.
    AsItCame,
    /// `reasoning` and `reasoning_details`, with or without calls.
    Details,
    Nothing,
    /// Thoughts, as parts of the content, with or without calls.
    Parts,
    /// As received, and a placeholder for calls that another endpoint made.
    Required,
    /// As received, and a signature that is not validated for calls that another endpoint made.
    Signed,
}

/// Limits of an endpoint that may be any of them, or a gateway to any provider. Ids that it gave
/// itself are kept.
const COMPATIBLE: Accepts =
    Accepts::everything().call_ids(CallIds::up_to(40)).turns(MessageOrder::Alternate).plain_keys();

const ROWS: [DialectProfile; 6] = [
    // Chat templates of llama.cpp and vLLM raise "Conversation roles must alternate user/assistant".
    DialectProfile {
        dialect: ChatDialect::Compatible,
        name: "compatible",
        hosts: &[],
        accepts: COMPATIBLE,
        reasoning: KeptReasoning::AsItCame,
        fields: RequestFields::Usual,
    },
    // "The `reasoning_content` in the thinking mode must be passed back to the API":
    // <https://api-docs.deepseek.com/guides/thinking_mode>, <https://platform.moonshot.ai/docs>.
    DialectProfile {
        dialect: ChatDialect::DeepSeek,
        name: "deepseek",
        hosts: &["api.deepseek.com", "api.kimi.com", "api.moonshot.ai", "api.moonshot.cn"],
        accepts: COMPATIBLE,
        reasoning: KeptReasoning::Required,
        fields: RequestFields::Usual,
    },
    // Signatures of thoughts come in `extra_content`: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
    // "parameters.properties: should be non-empty for OBJECT type".
    DialectProfile {
        dialect: ChatDialect::Gemini,
        name: "gemini",
        hosts: &["generativelanguage.googleapis.com", "aiplatform.googleapis.com"],
        accepts: COMPATIBLE.no_empty_properties(),
        reasoning: KeptReasoning::Signed,
        fields: RequestFields::Usual,
    },
    // "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9" (code 3280) and "Unexpected role 'user'
    // after role 'tool'" (code 3230). Thoughts are to be replayed with every answer:
    // <https://github.com/mistralai/client-ts/blob/main/examples/src/reasoning_multi_turn.ts>.
    DialectProfile {
        dialect: ChatDialect::Mistral,
        name: "mistral",
        hosts: &["api.mistral.ai", "codestral.mistral.ai"],
        accepts: COMPATIBLE.call_ids(CallIds::exactly(9).strict()),
        reasoning: KeptReasoning::Parts,
        fields: RequestFields::Mistral,
    },
    // "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40".
    DialectProfile {
        dialect: ChatDialect::OpenAi,
        name: "openai",
        hosts: &["api.openai.com", "openai.azure.com", "cognitiveservices.azure.com"],
        accepts: Accepts::everything().call_ids(CallIds::up_to(40).strict()),
        reasoning: KeptReasoning::Nothing,
        fields: RequestFields::Usual,
    },
    // <https://openrouter.ai/docs/use-cases/reasoning-tokens#preserving-reasoning-blocks>
    DialectProfile {
        dialect: ChatDialect::OpenRouter,
        name: "openrouter",
        hosts: &["openrouter.ai"],
        accepts: COMPATIBLE,
        reasoning: KeptReasoning::Details,
        fields: RequestFields::Usual,
    },
];

impl ChatDialect {
    /// The names of all dialects in agent files.
    pub const NAMES: [&str; ROWS.len()] = {
        let mut names = [""; ROWS.len()];
        let mut at = 0;
        while at < ROWS.len() {
            names[at] = ROWS[at].name;
            at += 1;
        }
        names
    };

    /// Returns the dialect with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.dialect)
    }

    /// Returns the dialect of a host; [`ChatDialect::Compatible`] for an unknown one.
    #[must_use]
    pub fn from_host(host: &str) -> Self {
        let is_at = |end: &str| {
            host.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
                || host.ends_with(&format!("-{end}"))
        };
        ROWS.iter()
            .find(|row| row.hosts.iter().any(|end| is_at(end)))
            .map_or(Self::Compatible, |row| row.dialect)
    }

    /// Returns the dialect of an endpoint: the given one, or else that of its host.
    pub(crate) fn at(endpoint: &Endpoint, named: Option<Self>) -> Self {
        named.unwrap_or_else(|| match endpoint.is_own() {
            true => Self::OpenAi,
            false => Self::from_host(endpoint.host()),
        })
    }

    pub(crate) fn accepts(self) -> Accepts {
        self.row().accepts
    }

    pub(crate) fn reasoning(self) -> KeptReasoning {
        self.row().reasoning
    }

    pub(crate) fn fields(self) -> RequestFields {
        self.row().fields
    }

    fn row(self) -> &'static DialectProfile {
        ROWS.iter().find(|row| row.dialect == self).unwrap_or(&ROWS[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart_by_their_ends() {
        for (host, expected) in [
            ("api.mistral.ai", ChatDialect::Mistral),
            ("eu.api.mistral.ai", ChatDialect::Mistral),
            ("evil-api.mistral.ai.example.com", ChatDialect::Compatible),
            ("mine.openai.azure.com", ChatDialect::OpenAi),
            ("openrouter.ai", ChatDialect::OpenRouter),
            ("notopenrouter.ai", ChatDialect::Compatible),
            ("europe-west1-aiplatform.googleapis.com", ChatDialect::Gemini),
            ("api.moonshot.cn", ChatDialect::DeepSeek),
            ("codestral.mistral.ai", ChatDialect::Mistral),
            ("api.kimi.com", ChatDialect::DeepSeek),
            ("127.0.0.1", ChatDialect::Compatible),
        ] {
            assert_eq!(ChatDialect::from_host(host), expected, "{host}");
        }
    }

    #[test]
    fn each_dialect_has_one_row() {
        for name in ChatDialect::NAMES {
            let dialect = ChatDialect::from_name(name).unwrap();
            assert_eq!(ROWS.iter().filter(|row| row.dialect == dialect).count(), 1, "{name}");
        }
        assert_eq!(ChatDialect::from_name("klingon"), None);
    }
}
