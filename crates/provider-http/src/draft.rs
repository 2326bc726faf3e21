use backstop_provider::{ModelResponse, ProviderError};
use layer0::JsonText;
use layer0::message::{StatePart, StopReason};
use layer0::usage::TokenUsage;
use serde_json::Value;

use crate::calls::{CallDraft, finish_calls};
use crate::reply::Reply;

/// An answer that is being assembled.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Draft {
    /// The text so far.
    pub text: String,
    /// The thinking so far.
    pub thinking: String,
    /// The tool calls so far.
    pub calls: Vec<CallDraft>,
    /// Provider state to send back with the answer, in order.
    pub kept: Vec<StatePart>,
    /// The tokens billed so far; `None` until the provider reports some.
    pub usage: Option<TokenUsage>,
    /// The media type of data that is not kept.
    media: Option<String>,
}

impl Draft {
    /// Appends a piece of text and streams it.
    pub fn say(&mut self, piece: &str, reply: &Reply<'_>) {
        self.text.push_str(piece);
        reply.tell_text(piece);
    }

    /// Appends a piece of thinking and streams it.
    pub fn think(&mut self, piece: &str, reply: &Reply<'_>) {
        self.thinking.push_str(piece);
        reply.tell_thinking(piece);
    }

    /// Records the tokens billed so far and streams them. Zeros are ignored: every request has a
    /// prompt, and some endpoints send zeros in place of counts that they do not have.
    pub fn bill(&mut self, usage: TokenUsage, reply: &Reply<'_>) {
        if usage != TokenUsage::default() {
            self.usage = Some(usage);
            reply.tell_usage(usage);
        }
    }

    /// Returns the approximate number of bytes held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(CallDraft::held_bytes).sum();
        let kept = self.kept.iter().map(|part| size_of::<StatePart>() + part.data.get().len());
        self.text.len() + self.thinking.len() + calls + kept.sum::<usize>()
    }

    /// Records that the answer has data of this type, such as an image, which is not kept.
    pub fn note_media(&mut self, media_type: &str) {
        self.media.get_or_insert_with(|| media_type.to_owned());
    }

    /// Refuses a complete answer that has data, but neither text nor calls. A retry would return
    /// data again.
    ///
    /// # Errors
    ///
    /// [`ProviderError::InvalidRequest`]: the request asks for output that is not supported.
    pub fn refuse_media_alone(&self, stop_reason: &StopReason) -> Result<(), ProviderError> {
        let is_empty = self.text.trim().is_empty() && self.calls.is_empty();
        match self.media.as_deref().filter(|_| is_empty && stop_reason.lets_calls_run()) {
            Some(media) => {
                let is_type = |c: char| c.is_ascii_alphanumeric() || "/+-.".contains(c);
                let media: String = media.chars().filter(|c| is_type(*c)).take(64).collect();
                let why = format!("the model answers with data alone (`{media}`), not with text");
                Err(ProviderError::invalid_request(why, None))
            }
            None => Ok(()),
        }
    }

    /// Keeps provider state at this position, after the text and the calls so far. A value nested
    /// too deep to be recorded is dropped.
    pub fn keep(&mut self, data: &Value) {
        if let Ok(data) = JsonText::parse(&data.to_string()) {
            self.keep_text(data);
        }
    }

    /// Keeps provider state as it was received, at this position.
    pub fn keep_text(&mut self, data: JsonText) {
        let mut part = StatePart::new(data);
        (part.text_before, part.calls_before) = (self.text.len(), self.calls.len());
        self.kept.push(part);
    }

    /// Finishes the answer with this stop reason.
    ///
    /// Empty arguments mean none only in a complete answer. In one that was cut off, arguments that
    /// are not a whole object remain text, which no tool accepts as its input.
    #[must_use]
    pub fn finish(self, stop_reason: StopReason, reply: &Reply<'_>) -> ModelResponse {
        let calls = finish_calls(self.calls, &stop_reason);
        let mut response = ModelResponse::new(self.text, calls, stop_reason, self.usage);
        response.thinking = (!self.thinking.is_empty()).then(|| self.thinking.into());
        response.provider_state = reply.make_provider_state(self.kept);
        response
    }
}
