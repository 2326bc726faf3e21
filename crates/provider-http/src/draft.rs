use backstop_provider::{ModelResponse, ProviderError};
use layer0::JsonText;
use layer0::message::{StatePart, StopReason};
use layer0::usage::TokenUsage;
use serde_json::Value;

use crate::calls::{CallDraft, finish_calls};
use crate::reply::Reply;

/// An answer that is being put together.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Draft {
    /// What it says so far.
    pub text: String,
    /// What it thinks so far.
    pub thinking: String,
    /// The calls so far.
    pub calls: Vec<CallDraft>,
    /// What the provider wants back with the answer, in its order.
    pub kept: Vec<StatePart>,
    /// The tokens billed so far; `None` until the provider states some.
    pub usage: Option<TokenUsage>,
    /// The type of data in it that is not kept.
    media: Option<String>,
}

impl Draft {
    /// Takes a piece of text, and tells it.
    pub fn say(&mut self, piece: &str, reply: &Reply<'_>) {
        self.text.push_str(piece);
        reply.tell_text(piece);
    }

    /// Takes a piece of thinking, and tells it.
    pub fn think(&mut self, piece: &str, reply: &Reply<'_>) {
        self.thinking.push_str(piece);
        reply.tell_thinking(piece);
    }

    /// Takes the tokens billed so far, and tells them. Zeros state nothing: every request has a prompt,
    /// and some endpoints send them in place of what they did not count.
    pub fn bill(&mut self, usage: TokenUsage, reply: &Reply<'_>) {
        if usage != TokenUsage::default() {
            self.usage = Some(usage);
            reply.tell_usage(usage);
        }
    }

    /// Returns how many bytes it holds, about.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(CallDraft::held_bytes).sum();
        let kept = self.kept.iter().map(|part| size_of::<StatePart>() + part.data.get().len());
        self.text.len() + self.thinking.len() + calls + kept.sum::<usize>()
    }

    /// Notes data of this type, such as an image, which no answer keeps.
    pub fn note_media(&mut self, media_type: &str) {
        self.media.get_or_insert_with(|| media_type.to_owned());
    }

    /// Refuses an answer that ended and has neither text nor calls, but data. Asked again, the model would
    /// answer with data again.
    ///
    /// # Errors
    ///
    /// [`ProviderError::InvalidRequest`]: it asks for what is not read.
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

    /// Keeps a part that the provider wants back in this place, behind what was said and called so far. A part
    /// that is nested too deep to be recorded is not kept.
    pub fn keep(&mut self, data: &Value) {
        if let Ok(data) = JsonText::parse(&data.to_string()) {
            self.keep_text(data);
        }
    }

    /// Keeps a part as it came, in this place.
    pub fn keep_text(&mut self, data: JsonText) {
        let mut part = StatePart::new(data);
        (part.text_before, part.calls_before) = (self.text.len(), self.calls.len());
        self.kept.push(part);
    }

    /// Ends the answer, which stopped for this reason.
    ///
    /// Only in an answer that came to its end do arguments without text mean none. In one that was
    /// cut, what is no whole object stays the text it is, which no tool takes as its input.
    #[must_use]
    pub fn finish(self, stop_reason: StopReason, reply: &Reply<'_>) -> ModelResponse {
        let calls = finish_calls(self.calls, &stop_reason);
        let mut response = ModelResponse::new(self.text, calls, stop_reason, self.usage);
        response.thinking = (!self.thinking.is_empty()).then(|| self.thinking.into());
        response.provider_state = reply.state_of(self.kept);
        response
    }
}
