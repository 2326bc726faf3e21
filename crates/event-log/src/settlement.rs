//! A person's settlement of a call whose outcome is unknown.

use std::sync::Arc;

use layer0::JsonText;
use layer0::event::Verdict;
use serde::{Deserialize, Serialize};

/// A person's settlement of a call whose outcome is unknown.
///
/// ```
/// use backstop_event_log::Settlement;
/// use serde_json::json;
///
/// let settlement = Settlement::call_happened("ops").with_output(json!({ "payment": "p-7" }));
/// assert!(settlement.happened);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settlement {
    /// The person.
    pub by: Arc<str>,
    /// Whether the call happened.
    pub happened: bool,
    /// The answer of the call, if the person knows it.
    pub output: Option<JsonText>,
}

impl Settlement {
    /// Settles a call that happened.
    pub fn call_happened(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), happened: true, output: None }
    }

    /// Settles a call that did not happen.
    pub fn did_not(by: impl Into<Arc<str>>) -> Self {
        Self { by: by.into(), happened: false, output: None }
    }

    /// Adds the answer of the call.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<JsonText>) -> Self {
        self.output = Some(output.into());
        self
    }

    /// Returns the verdict, as events contain it.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        match self.happened {
            true => Verdict::Happened,
            false => Verdict::DidNot,
        }
    }
}
