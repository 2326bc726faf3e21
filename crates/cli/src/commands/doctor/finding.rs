//! The finding of a check.

use serde::Serialize;

use crate::exit::CliError;

/// The finding of a check.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: FindingState,
    pub(super) message: String,
    /// Advice, if the message does not contain it.
    pub(super) hint: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FindingState {
    /// A problem to fix.
    Mend,
    Ok,
    /// The check was skipped.
    Skipped,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, state: FindingState::Ok, message: message.into(), hint: None }
    }

    pub(super) fn skip(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, state: FindingState::Skipped, message: message.into(), hint: None }
    }

    pub(super) fn mend(
        check: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check, state: FindingState::Mend, message: message.into(), hint: Some(hint.into()) }
    }

    pub(super) fn from_error(check: &'static str, error: &CliError) -> Self {
        let hint = error.hint().map(ToOwned::to_owned);
        Self { check, state: FindingState::Mend, message: error.to_string(), hint }
    }
}
