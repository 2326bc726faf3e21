//! Decoding of responses, in one piece or in many of the same form.

use backstop_provider_http::{CallDraft, lenient};
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A whole response, or one of its lines.
#[derive(Deserialize)]
pub struct Chunk {
    pub(crate) message: Option<OllamaAnswerMessage>,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(crate) done: bool,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) done_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    eval_count: Option<u64>,
}

impl Chunk {
    /// Returns whether this is at least a part of an answer.
    pub(crate) const fn is_answer(&self) -> bool {
        self.message.is_some() || self.done
    }

    /// Returns the tokens, which the last line counts. Cached ones are not counted separately.
    pub(crate) fn usage(&self) -> Option<TokenUsage> {
        self.prompt_eval_count.or(self.eval_count)?;
        Some(TokenUsage::new(
            self.prompt_eval_count.unwrap_or_default(),
            self.eval_count.unwrap_or_default(),
        ))
    }
}

#[derive(Deserialize)]
pub(crate) struct OllamaAnswerMessage {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) content: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) thinking: Option<String>,
    pub(crate) tool_calls: Option<Vec<OllamaAnswerCall>>,
}

/// A call, which is never sent in pieces.
#[derive(Deserialize)]
pub(crate) struct OllamaAnswerCall {
    /// Sent by newer versions.
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    function: AnswerFunction,
}

#[derive(Deserialize)]
struct AnswerFunction {
    name: String,
    /// An object; a string is the model's text if a server in between could not parse it.
    arguments: Option<Box<RawValue>>,
}

impl From<OllamaAnswerCall> for CallDraft {
    fn from(call: OllamaAnswerCall) -> Self {
        let mut draft = Self::new(call.id.unwrap_or_default(), call.function.name);
        draft.take(call.function.arguments);
        draft
    }
}
