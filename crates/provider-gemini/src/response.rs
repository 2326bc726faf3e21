//! What comes back, in one piece or in many of the same shape.

use backstop_provider_http::lenient;
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An answer, or a piece of one: a stream has the same shape.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WireResponse {
    pub(crate) candidates: Option<Vec<Candidate>>,
    pub(crate) prompt_feedback: Option<PromptFeedback>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    pub(crate) usage_metadata: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(crate) index: Option<u64>,
    pub(crate) content: Option<AnswerContent>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct AnswerContent {
    pub(crate) parts: Option<Vec<AnswerPart>>,
}

/// Text, a thought or a call; what only servers' tools produce has none of these.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerPart {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) text: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    pub(crate) thought: Option<bool>,
    pub(crate) function_call: Option<AnswerCall>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) thought_signature: Option<String>,
}

/// What a signature of the model's thoughts came with, and goes back with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signed {
    Call,
    Text,
}

impl Signed {
    /// Returns the key that the signature is kept under.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call_signature",
            Self::Text => "text_signature",
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct AnswerCall {
    /// Left out by most models.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptFeedback {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) block_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) block_reason_message: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    thoughts_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cached_content_token_count: Option<u64>,
}

impl WireUsage {
    /// Takes what a later, cumulative count says anew.
    pub(crate) fn update(&mut self, later: &Self) {
        self.prompt_token_count = later.prompt_token_count.or(self.prompt_token_count);
        self.candidates_token_count = later.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = later.thoughts_token_count.or(self.thoughts_token_count);
        self.cached_content_token_count =
            later.cached_content_token_count.or(self.cached_content_token_count);
    }

    /// Returns what was billed. The protocol counts cached tokens in, and thoughts apart.
    pub(crate) fn billed(&self) -> TokenUsage {
        TokenUsage::new(
            self.prompt_token_count.unwrap_or_default(),
            self.candidates_token_count
                .unwrap_or_default()
                .saturating_add(self.thoughts_token_count.unwrap_or_default()),
        )
        .cached_tokens(self.cached_content_token_count.unwrap_or_default())
    }
}
