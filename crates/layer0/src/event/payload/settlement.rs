//! Calls whose outcome was unknown, and what is known of them since.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::json_text::JsonText;

/// What is known of a call whose outcome was unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It did not happen.
    DidNot,
    /// It happened.
    Happened,
    /// It cannot be said.
    Unknown,
}

impl Verdict {
    /// Returns the text that stands in events.
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
    /// A tool was asked whether a call of it happened.
    ToolProbed {
        /// The call.
        call_id: CallId,
        /// What the tool said; `unknown` where it failed to say.
        verdict: Verdict,
        /// What the call answered, where the tool knows it.
        output: Option<JsonText>,
    }
}

impl ToolProbed {
    /// States what a tool said of a call.
    #[must_use]
    pub fn new(call_id: impl Into<CallId>, verdict: Verdict, output: Option<JsonText>) -> Self {
        Self { call_id: call_id.into(), verdict, output }
    }
}

payload! {
    /// A person said whether a call happened.
    ToolResolved {
        /// The call.
        call_id: CallId,
        /// Who.
        by: Arc<str>,
        /// What the person said: that it happened, or that it did not.
        verdict: Verdict,
        /// What the call answered, where the person knows it.
        output: Option<JsonText>,
        /// What the model is told of it.
        message: Arc<str>,
    }
}

impl ToolResolved {
    /// States what a person said of a call.
    #[must_use]
    pub fn new(
        call_id: impl Into<CallId>,
        by: impl Into<Arc<str>>,
        verdict: Verdict,
        output: Option<JsonText>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        let (call_id, by, message) = (call_id.into(), by.into(), message.into());
        Self { call_id, by, verdict, output, message }
    }
}
