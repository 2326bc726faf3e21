//! Rules of all endpoints.

use crate::strict::dialect::Dialect;
use crate::strict::rule::{Asked, Found, Rule, found};

/// Answer to a path that the endpoint does not have.
pub(in crate::strict) const PATH: Rule = Rule::new(
    "every.path",
    &Dialect::ALL,
    "Invalid URL (POST {})",
    "https://platform.openai.com/docs/guides/error-codes",
    |_| None,
)
.status(404);

/// Answer to a body that is not JSON.
pub(in crate::strict) const JSON: Rule = Rule::new(
    "every.json",
    &Dialect::ALL,
    "We could not parse the JSON body of your request: {}",
    "https://www.rfc-editor.org/rfc/rfc8259",
    |_| None,
);

pub(super) const RULES: &[Rule] = &[
    Rule::new(
        "every.keys_once",
        &Dialect::ALL,
        "The JSON body has the key '{}' twice in one object.",
        "https://www.rfc-editor.org/rfc/rfc8259#section-4",
        |asked| Some(found![asked.body.repeated_key()?]),
    ),
    Rule::new(
        "every.no_private_keys",
        &Dialect::ALL,
        "The JSON body has the key '{}', which only serde_json writes.",
        "https://github.com/serde-rs/json/issues/779",
        no_private_keys,
    ),
    Rule::new(
        "every.model",
        &[
            Dialect::OpenAiChat,
            Dialect::Anthropic,
            Dialect::ChatTemplate,
            Dialect::DeepSeek,
            Dialect::GeminiCompatible,
            Dialect::Mistral,
            Dialect::Ollama,
            Dialect::OpenAiResponses,
            Dialect::OpenRouter,
        ],
        "you must provide a model parameter",
        "https://platform.openai.com/docs/api-reference/chat/create",
        |asked| asked.body.get("model").text_or_empty().is_empty().then(Vec::new),
    ),
];

fn no_private_keys(asked: Asked<'_>) -> Found {
    let key = asked.body.find_key(&|key| key.contains("$serde_json"))?;
    Some(found![key])
}
