//! What a person says of a call whose outcome is unknown.

use std::sync::Arc;

use layer0::JsonText;
use layer0::event::Verdict;
use serde::{Deserialize, Serialize};

/// What a person says of a call whose outcome is unknown.
///
/// ```
/// use backstop_event_log::Settlement;
/// use serde_json::json;
///
/// let settlement = Settlement::happened("ops").with_output(json!({ "payment": "p-7" }));
/// assert!(settlement.happened);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settlement {
    /// Who says so.
    pub by: Arc<str>,
    /// Did the call happen?
    pub happened: bool,
    /// What it answered, where the person knows it.
    pub output: Option<JsonText>,
}

impl Settlement {
    /// The call happened.
    pub fn happened(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), happened: true, output: None }
    }

    /// The call did not happen.
    pub fn did_not(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), happened: false, output: None }
    }

    /// Adds what the call answered.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<JsonText>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Returns it as events say it.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.happened {
            true => Verdict::Happened,
            false => Verdict::DidNot,
        }
    }
}
