//! Phases of an answer: commentary, and the final answer.

use std::sync::Arc;

use backstop_provider_http::{Draft, keep_field};
use layer0::JsonText;

use super::paragraph::add;

/// The phase of the final answer.
const FINAL: &str = "final_answer";

/// The final answer within an answer that is being decoded.
#[derive(Default)]
pub(super) struct Phases {
    answer: String,
    has_commentary: bool,
}

impl Phases {
    /// Adds the next text, and keeps its phase at its position.
    pub(super) fn add(&mut self, phase: Option<String>, text: &str, draft: &mut Draft) {
        match phase.filter(|_| !text.is_empty()) {
            Some(phase) => {
                self.has_commentary |= phase != FINAL;
                if phase == FINAL {
                    add(&mut self.answer, text);
                }
                if let Some(kept) = keep_field("phase", &JsonText::string(&phase)) {
                    draft.keep_text(kept);
                }
            }
            None => add(&mut self.answer, text),
        }
    }

    /// Returns the final answer, if the text contains more than that.
    pub(super) fn answer(self) -> Option<Arc<str>> {
        (self.has_commentary && !self.answer.is_empty()).then(|| self.answer.into())
    }
}
