use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use layer0::error::BoxError;

use crate::line::line_number;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use std::borrow::Cow;

/// A mistake in a file, with its place and a hint.
///
/// Retry: never. Effect: none.
#[derive(Debug)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    span: Option<Range<usize>>,
    what: String,
    hint: Option<String>,
    source: Option<BoxError>,
}

impl Failure for ConfigError {
    fn facts(&self) -> Facts {
        Facts::never(code::CONFIG_INVALID, Effect::None)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.hint.as_deref().map(Cow::Borrowed)
    }
}

impl ConfigError {
    /// Returns an error about a file as a whole.
    pub fn new(file: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
            span: None,
            what: what.into(),
            hint: None,
            source: None,
        }
    }

    /// Returns an error about a key that has no effect without another one.
    pub(crate) fn goes_with(path: &Path, key: &str, other: &str) -> Self {
        Self::new(path, format!("`{key}` goes with `{other}`"))
    }

    /// Sets the line of the mistake, counted from 1.
    #[must_use]
    pub const fn in_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }

    /// Sets the place of the mistake in the text of the file.
    pub(crate) fn in_text(mut self, text: &str, span: Range<usize>) -> Self {
        self.line = Some(line_number(text, &span));
        self.span = Some(span);
        self
    }

    pub(crate) const fn span(&self) -> Option<&Range<usize>> {
        self.span.as_ref()
    }

    /// Returns the message.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Changes the words of message and hint.
    pub(crate) fn reworded(mut self, reword: impl Fn(&str) -> String) -> Self {
        self.what = reword(&self.what);
        self.hint = self.hint.as_deref().map(reword);
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the hint.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}
