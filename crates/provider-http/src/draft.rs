use backstop_provider::ModelResponse;
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

    /// Keeps what the provider wants back in this place, behind what was said and called so far.
    /// What is nested too deep to be recorded is not kept.
    pub fn keep(&mut self, data: &Value) {
        let Ok(data) = JsonText::parse(&data.to_string()) else { return };
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
