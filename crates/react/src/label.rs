//! Labels of runs.

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// Maximum number of labels of a run.
const MAX_LABELS: usize = 32;
/// Maximum number of bytes of a key.
const MAX_KEY: usize = 64;
/// Maximum number of bytes of a value.
const MAX_VALUE: usize = 256;

/// The error of a run's labels.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LabelError {
    /// A key is blank, too long, or contains control characters.
    ///
    /// Retry: never. Effect: none.
    #[error("a key has 1 to {MAX_KEY} bytes without control characters, and `{0}` has not")]
    Key(String),
    /// The run has too many labels.
    ///
    /// Retry: never. Effect: none.
    #[error("a run has at most {MAX_LABELS} labels, and this one has {0}")]
    TooMany(usize),
    /// The value of this key is too long, or contains control characters.
    ///
    /// Retry: never. Effect: none.
    #[error(
        "a value has at most {MAX_VALUE} bytes without control characters, and that of `{0}` has not"
    )]
    Value(String),
}

impl Failure for LabelError {
    fn facts(&self) -> Facts {
        match self {
            Self::Key(_) | Self::TooMany(_) | Self::Value(_) => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
        }
    }
}

impl LabelError {
    /// Checks a label.
    ///
    /// # Errors
    ///
    /// [`LabelError::Key`], [`LabelError::Value`].
    pub fn check(key: &str, value: &str) -> Result<(), Self> {
        if key.trim().is_empty() || key.len() > MAX_KEY || key.contains(char::is_control) {
            return Err(Self::Key(key.to_owned()));
        }
        if value.len() > MAX_VALUE || value.contains(char::is_control) {
            return Err(Self::Value(key.to_owned()));
        }
        Ok(())
    }

    /// Checks all labels of a run.
    pub(crate) fn check_all<'a>(
        labels: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
    ) -> Result<(), Self> {
        if labels.len() > MAX_LABELS {
            return Err(Self::TooMany(labels.len()));
        }
        labels.into_iter().try_for_each(|(key, value)| Self::check(key, value))
    }
}
