use std::sync::{Arc, Mutex, PoisonError};

/// Standard error of a command, for a call that succeeds: the model reads it after the output, and the record has it
/// next to the output.
///
/// ```
/// use backstop_tool::Stderr;
///
/// let stderr = Stderr::default();
/// stderr.keep("warning: 3 files skipped");
/// assert_eq!(stderr.so_far().as_deref(), Some("warning: 3 files skipped"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stderr(Arc<Mutex<Option<Arc<str>>>>);

impl Stderr {
    /// Stores a text, which replaces an earlier one.
    pub fn keep(&self, text: impl Into<Arc<str>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
    }

    /// Returns the stored text.
    #[must_use]
    pub fn so_far(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
