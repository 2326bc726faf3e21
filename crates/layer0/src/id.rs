//! Names of runs, sessions, calls and stored things.
//!
//! Ids are plain text so that a person can grep for them. They are made where randomness and time
//! are allowed, which is not here.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id! {
    /// Names one run: `run_` and a UUIDv7, so that ids sort by start time.
    RunId
}
text_id! {
    /// Names the session that runs share.
    SessionId
}
text_id! {
    /// Names one tool call; the text is the model's.
    CallId
}
text_id! {
    /// Names one stored error: `err_YYYYMMDD_HHMMSS_xxxxxx`, UTC, 26 characters.
    ErrorId
}
text_id! {
    /// Names one stored result: `res_YYYYMMDD_HHMMSS_xxxxxx`, UTC, 26 characters.
    ResultId
}
text_id! {
    /// Names one approval that a person has to decide.
    ApprovalId
}
text_id! {
    /// Names one dispatch in flight in an orchestrator.
    WorkflowId
}
