//! An error with everything that caused it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most errors of a chain that are read, so that a source that leads back to itself ends.
const MAX_SOURCES: usize = 64;

/// Walks an error and its sources, outermost first, 64 at most.
pub fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| Error::source(*error)).take(MAX_SOURCES)
}

/// Collects the text of an error and of each of its sources, outermost first.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
    sources(error).map(ToString::to_string).collect()
}

/// Prints an error with its sources on one line: `a: b: c`.
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

/// An error and its sources as text, for an error that outlives its value or is reported more than once. Cloning shares
/// it.
///
/// ```
/// use layer0::error::{OperatorError, OrchError};
/// use layer0::failure::{Chain, ErrorText};
///
/// let error = OrchError::from(OperatorError::Retryable("queue is full".into()));
/// let kept = ErrorText::of(&error);
/// assert_eq!(Chain(&kept).to_string(), Chain(&error).to_string());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorText {
    text: Arc<str>,
    source: Option<Arc<ErrorText>>,
}

impl ErrorText {
    /// Keeps an error and its sources, 64 at most.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        Self::from_chain(chain(error)).unwrap_or_default()
    }

    /// Makes a chain of texts, the outermost first, 64 at most; `None` of no texts.
    #[must_use]
    pub fn from_chain(
        texts: impl IntoIterator<Item = String, IntoIter: DoubleEndedIterator>,
    ) -> Option<Self> {
        // A longer one would be dropped text by text, down to the end of the stack.
        let texts: Vec<String> = texts.into_iter().take(MAX_SOURCES).collect();
        let around = |source: Option<Self>, text: String| {
            Some(Self { text: text.into(), source: source.map(Arc::new) })
        };
        texts.into_iter().rev().fold(None, around)
    }

    /// Puts `cause` behind the innermost error.
    #[must_use]
    pub fn caused_by(&self, cause: &Self) -> Self {
        let texts = chain(self).into_iter().chain(chain(cause)).collect::<Vec<_>>();
        Self::from_chain(texts).unwrap_or_default()
    }
}

/// As the list of its texts, the outermost first.
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
