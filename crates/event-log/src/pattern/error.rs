use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

use crate::one_line;

/// Says why a text is no [`Pattern`](crate::Pattern). Columns are counted from 1, in characters.
///
/// ```
/// use backstop_event_log::Pattern;
///
/// let error = "run.faild".parse::<Pattern>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid pattern at column 1: there is no event type `run.faild`"
/// );
/// assert_eq!((error.column(), error.hint()), (1, Some("did you mean `run.failed`?")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// No event can ever match it.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: it can never match: {why}")]
    #[non_exhaustive]
    Impossible {
        /// Where the condition begins that cannot hold.
        column: usize,
        /// What cannot hold.
        why: String,
        /// What can be done about it.
        hint: Option<String>,
    },
    /// Events of this type are delivered to no subscription.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: `{event_type}` is delivered to no subscription")]
    #[non_exhaustive]
    NotDelivered {
        /// Where the type begins.
        column: usize,
        /// The type, as it was written.
        event_type: String,
    },
    /// It is not written as a pattern is.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Syntax {
        /// Where something else was expected.
        column: usize,
        /// What was expected.
        expected: String,
        /// What stands there.
        found: String,
        /// What can be done about it.
        hint: Option<String>,
    },
    /// The events have no such field.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: `{event_type}` has no field `{field}`")]
    #[non_exhaustive]
    UnknownField {
        /// Where the field begins.
        column: usize,
        /// The type, as it was written.
        event_type: String,
        /// The field, as far as there is none.
        field: String,
        /// The nearest one, or all of them.
        hint: Option<String>,
    },
    /// The catalogue has no such event type.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: there is no event type `{event_type}`")]
    #[non_exhaustive]
    UnknownType {
        /// Where the type begins.
        column: usize,
        /// The type, as it was written.
        event_type: String,
        /// The nearest one.
        hint: Option<String>,
    },
}

impl PatternError {
    /// Returns the column at which something is wrong, counted from 1, in characters.
    #[must_use]
    pub const fn column(&self) -> usize {
        match self {
            Self::Impossible { column, .. }
            | Self::NotDelivered { column, .. }
            | Self::Syntax { column, .. }
            | Self::UnknownField { column, .. }
            | Self::UnknownType { column, .. } => *column,
        }
    }

    /// Returns what can be done about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Impossible { hint, .. }
            | Self::Syntax { hint, .. }
            | Self::UnknownField { hint, .. }
            | Self::UnknownType { hint, .. } => hint.as_deref(),
            Self::NotDelivered { .. } => Some(
                "of what is recorded about subscriptions, only `behavior.failed` can be subscribed to",
            ),
        }
    }
}

impl Failure for PatternError {
    fn facts(&self) -> Facts {
        match self {
            Self::Impossible { .. }
            | Self::NotDelivered { .. }
            | Self::Syntax { .. }
            | Self::UnknownField { .. }
            | Self::UnknownType { .. } => Facts::never(code::INPUT_INVALID, Effect::None),
        }
    }
}

/// How much of what was written is shown.
const MAX_SHOWN: usize = 60;

/// Cuts what was written to what a message shows of it, in one line.
pub(crate) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(MAX_SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", one_line(&cut))
}
