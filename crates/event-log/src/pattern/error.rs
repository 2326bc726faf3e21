use std::borrow::Cow;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

use crate::one_line;

/// Error of a text that is not a valid [`Pattern`](crate::Pattern). Columns are counted from 1, in characters.
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
        /// Start of the condition that cannot hold.
        column: usize,
        /// Explanation of why it cannot hold.
        why: String,
        /// Hint for fixing the pattern.
        hint: Option<String>,
    },
    /// Events of this type are delivered to no subscription.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: `{event_type}` is delivered to no subscription")]
    #[non_exhaustive]
    NotDelivered {
        /// Start of the type.
        column: usize,
        /// The type as written.
        event_type: String,
    },
    /// The text does not have the syntax of a pattern.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Syntax {
        /// Start of the unexpected text.
        column: usize,
        /// The expected text.
        expected: String,
        /// The text found instead.
        found: String,
        /// Hint for fixing the pattern.
        hint: Option<String>,
    },
    /// The events have no such field.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: `{event_type}` has no field `{field}`")]
    #[non_exhaustive]
    UnknownField {
        /// Start of the field.
        column: usize,
        /// The type as written.
        event_type: String,
        /// The field, up to the first name that does not exist.
        field: String,
        /// The nearest field, or all fields.
        hint: Option<String>,
    },
    /// The catalogue has no such event type.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pattern at column {column}: there is no event type `{event_type}`")]
    #[non_exhaustive]
    UnknownType {
        /// Start of the type.
        column: usize,
        /// The type as written.
        event_type: String,
        /// The nearest type.
        hint: Option<String>,
    },
}

impl PatternError {
    /// Returns the column of the error, counted from 1, in characters.
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

    /// Returns a hint for fixing the pattern.
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

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.hint().map(Cow::Borrowed)
    }
}

/// Maximum characters of the pattern's text in a message.
const MAX_SHOWN: usize = 60;

/// Shortens text of the pattern for a message, in one line.
pub(crate) fn shorten(text: &str) -> String {
    let cut: String = text.chars().take(MAX_SHOWN).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", one_line(&cut))
}
