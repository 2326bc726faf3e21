//! What comes back, in one piece or in many of the same shape.

use std::collections::BTreeMap;

use backstop_provider_http::lenient;
use layer0::JsonText;
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// Parts of tools that run at Google: code and its result, other calls and their responses.
const SERVED: [&str; 4] = ["executableCode", "codeExecutionResult", "toolCall", "toolResponse"];

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
    /// What is no text, such as an image.
    pub(crate) inline_data: Option<AnswerData>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) thought_signature: Option<String>,
    #[serde(default, deserialize_with = "lenient::json")]
    executable_code: Option<JsonText>,
    #[serde(default, deserialize_with = "lenient::json")]
    code_execution_result: Option<JsonText>,
    #[serde(default, deserialize_with = "lenient::json")]
    tool_call: Option<JsonText>,
    #[serde(default, deserialize_with = "lenient::json")]
    tool_response: Option<JsonText>,
}

impl AnswerPart {
    /// Returns a part of a tool that runs at Google, as it goes back; `None` for any other part.
    pub(crate) fn served(&self) -> Option<JsonText> {
        let signature = self.thought_signature.as_deref().map(JsonText::string);
        let Self { executable_code, code_execution_result, tool_call, tool_response, .. } = self;
        let values = [executable_code, code_execution_result, tool_call, tool_response];
        let fields = SERVED.into_iter().zip(values);
        let mut fields: BTreeMap<_, _> =
            fields.filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        if fields.is_empty() {
            return None;
        }
        fields.extend(signature.map(|signature| ("thoughtSignature", signature)));
        let is_thought = self.thought.filter(|is_thought| *is_thought);
        fields.extend(is_thought.map(|yes| ("thought", Value::Bool(yes).into())));
        JsonText::of(&fields).ok()
    }
}

/// Returns whether a kept part is one of a tool that runs at Google.
pub(crate) fn is_served(part: &JsonText) -> bool {
    let fields = part.read::<BTreeMap<String, IgnoredAny>>().unwrap_or_default();
    SERVED.iter().any(|name| fields.contains_key(*name))
}

/// Data that the model made; it is not kept.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerData {
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    pub(crate) mime_type: String,
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
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerCall {
    /// Left out by most models.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) id: Option<String>,
    /// Left out behind the first piece of a call whose arguments are streamed.
    #[serde(default, deserialize_with = "lenient::text_or_empty")]
    pub(crate) name: String,
    pub(crate) args: Option<Box<RawValue>>,
    /// Pieces of arguments that are streamed.
    pub(crate) partial_args: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(crate) will_continue: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PromptFeedback {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) block_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) block_reason_message: Option<String>,
}

/// The counts of the answer so far, each piece of which has its own.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_token_count: Option<u64>,
    /// What the results of Google's own tools added to the prompt.
    #[serde(default, deserialize_with = "lenient::count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    thoughts_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cached_content_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    total_token_count: Option<u64>,
}

impl WireUsage {
    /// Returns the tokens billed. The protocol counts cached tokens in, and thoughts apart. A piece may leave
    /// out a count that its total has.
    fn billed(&self) -> TokenUsage {
        let [prompt, tools, said, thought] = [
            self.prompt_token_count,
            self.tool_use_prompt_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
        ]
        .map(Option::unwrap_or_default);
        let input = prompt.saturating_add(tools);
        let by_total = self.total_token_count.unwrap_or_default().saturating_sub(input);
        let output = if input > 0 { by_total } else { 0 }.max(said.saturating_add(thought));
        TokenUsage::new(input, output)
            .cached_tokens(self.cached_content_token_count.unwrap_or_default())
    }
}

/// Returns the tokens billed once a later piece states its own; what it leaves out stays.
pub(crate) fn update_billed(earlier: TokenUsage, later: &WireUsage) -> TokenUsage {
    let later = later.billed();
    let newer = |earlier, later| if later > 0 { later } else { earlier };
    TokenUsage::new(
        newer(earlier.input_tokens, later.input_tokens),
        newer(earlier.output_tokens, later.output_tokens),
    )
    .cached_tokens(newer(earlier.cached_tokens, later.cached_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_counted_by_itself() {
        #[track_caller]
        fn check(pieces: &[&str], input: u64, output: u64) {
            let billed = pieces.iter().fold(TokenUsage::default(), |billed, piece| {
                update_billed(billed, &serde_json::from_str(piece).unwrap())
            });
            assert_eq!((billed.input_tokens, billed.output_tokens), (input, output), "{pieces:?}");
        }
        let begin = r#"{"promptTokenCount":10,"candidatesTokenCount":4,"totalTokenCount":14}"#;
        check(&[begin], 10, 4);
        check(&[begin, r#"{"promptTokenCount":10,"totalTokenCount":10}"#], 10, 4);
        check(
            &[begin, r#"{"promptTokenCount":10,"thoughtsTokenCount":20,"totalTokenCount":36}"#],
            10,
            26,
        );
        let thinks = r#"{"promptTokenCount":10,"thoughtsTokenCount":20,"totalTokenCount":30}"#;
        let ends = r#"{"promptTokenCount":10,"candidatesTokenCount":25,"totalTokenCount":35}"#;
        check(&[thinks, ends], 10, 25);
        check(
            &[r#"{"promptTokenCount":10,"candidatesTokenCount":4,"thoughtsTokenCount":20}"#],
            10,
            24,
        );
        check(
            &[
                r#"{"promptTokenCount":10,"toolUsePromptTokenCount":90,"candidatesTokenCount":4,"totalTokenCount":104}"#,
            ],
            100,
            4,
        );
        check(&[begin, "{}", r#"{"totalTokenCount":"n/a"}"#], 10, 4);
    }
}
