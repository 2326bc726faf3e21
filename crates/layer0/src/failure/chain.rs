//! An error with its chain of sources.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum number of errors that are read from a chain, so that a cycle of sources ends.
const MAX_SOURCES: usize = 64;

/// Returns an error and its sources, outermost first, at most 64.
pub fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| Error::source(*error)).take(MAX_SOURCES)
}

/// Returns the texts of an error and of its sources, outermost first.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
    sources(error).map(ToString::to_string).collect()
}

/// An error with its sources, formatted on one line: `a: b: c`.
///
/// ```
/// use layer0::error::OperatorError;
/// use layer0::error::OrchError;
/// use layer0::failure::Chain;
///
/// let error = OrchError::from(OperatorError::Retryable("queue is full".into()));
/// assert_eq!(Chain(&error).to_string(), "operator failed: queue is full");
/// ```
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "it is an error, and prints nothing else")]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, error) in sources(self.0).enumerate() {
            if depth > 0 {
                f.write_str(": ")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// The texts of an error and its sources, for an error that outlives its value or is reported more than once. Clones
/// share the texts.
///
/// ```
/// use layer0::error::{OperatorError, OrchError};
/// use layer0::failure::{Chain, ErrorText};
///
/// let error = OrchError::from(OperatorError::Retryable("queue is full".into()));
/// let kept = ErrorText::from_error(&error);
/// assert_eq!(Chain(&kept).to_string(), Chain(&error).to_string());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorText {
    text: Arc<str>,
    source: Option<Arc<ErrorText>>,
}

impl ErrorText {
    /// Copies the texts of an error and its sources, at most 64.
    #[must_use]
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        Self::from_chain(chain(error)).unwrap_or_default()
    }

    /// Builds a chain from texts, outermost first, at most 64; `None` without texts.
    #[must_use]
    pub fn from_chain(
        texts: impl IntoIterator<Item = String, IntoIter: DoubleEndedIterator>,
    ) -> Option<Self> {
        // A longer chain would be dropped recursively, and overflow the stack.
        let texts: Vec<String> = texts.into_iter().take(MAX_SOURCES).collect();
        let around = |source: Option<Self>, text: String| {
            Some(Self { text: text.into(), source: source.map(Arc::new) })
        };
        texts.into_iter().rev().fold(None, around)
    }

    /// Appends `cause` to the innermost error.
    #[must_use]
    pub fn caused_by(&self, cause: &Self) -> Self {
        let texts = chain(self).into_iter().chain(chain(cause)).collect::<Vec<_>>();
        Self::from_chain(texts).unwrap_or_default()
    }
}

/// Serialises as the list of texts, outermost first.
impl Serialize for ErrorText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(chain(self))
    }
}

impl<'de> Deserialize<'de> for ErrorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_chain(Vec::deserialize(deserializer)?).unwrap_or_default())
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ErrorText {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
