//! Calls of unknown outcome, and the verdicts on them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::json_text::JsonText;

/// The verdict on a call of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The call did not happen.
    DidNot,
    /// The call happened.
    Happened,
    /// The outcome is still unknown.
    Unknown,
}

impl Verdict {
    /// Returns the verdict's text in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DidNot => "did_not",
            Self::Happened => "happened",
            Self::Unknown => "unknown",
        }
    }
}

payload! {
    /// A tool was asked whether one of its calls happened.
    ToolProbed {
        /// The call.
        call_id: CallId,
        /// The tool's verdict; `unknown` if the probe failed.
        verdict: Verdict,
        /// The call's output, if the tool knows it.
        output: Option<JsonText>,
    }
}

impl ToolProbed {
    /// Creates the event for a tool's verdict on a call. An output of `null` is none, as in the record.
    #[must_use]
    pub fn new(call_id: impl Into<CallId>, verdict: Verdict, output: Option<JsonText>) -> Self {
        Self { call_id: call_id.into(), verdict, output: without_null(output) }
    }
}

payload! {
    /// A person decided whether a call happened.
    ToolResolved {
        /// The call.
        call_id: CallId,
        /// The person.
        by: Arc<str>,
        /// The verdict: the call happened, or it did not.
        verdict: Verdict,
        /// The call's output, if the person knows it.
        output: Option<JsonText>,
        /// The text for the model.
        message: Arc<str>,
    }
}

impl ToolResolved {
    /// Creates the event for a person's verdict on a call. An output of `null` is none, as in the record.
    #[must_use]
    pub fn new(
        call_id: impl Into<CallId>,
        by: impl Into<Arc<str>>,
        verdict: Verdict,
        output: Option<JsonText>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        let (call_id, by, message) = (call_id.into(), by.into(), message.into());
        Self { call_id, by, verdict, output: without_null(output), message }
    }
}

/// Returns the output, unless it is `null`: a record has the same text for it as for none, and a resumed run would
/// continue with another conversation.
fn without_null(output: Option<JsonText>) -> Option<JsonText> {
    output.filter(|output| output.get() != "null")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// Spec: D5
    #[test]
    fn verdicts_are_read_as_they_were_made() {
        let happened = Verdict::Happened;
        for output in [None, Some(JsonText::default()), Some(JsonText::string("paid"))] {
            let probed = ToolProbed::new("c1", happened, output.clone());
            let text = serde_json::to_string(&probed).unwrap();
            assert_eq!(serde_json::from_str::<ToolProbed>(&text).unwrap(), probed);
            let resolved = ToolResolved::new("c1", "ops", happened, output, "it happened");
            let text = serde_json::to_string(&resolved).unwrap();
            assert_eq!(serde_json::from_str::<ToolResolved>(&text).unwrap(), resolved);
        }
    }
}
