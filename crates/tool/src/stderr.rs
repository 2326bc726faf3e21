use std::sync::{Arc, Mutex, PoisonError};

/// Standard error of a command, for a call that succeeds: the model reads it after the output, the record has
/// it next to it.
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
    /// Keeps a text, instead of one that was kept before.
    pub fn keep(&self, text: impl Into<Arc<str>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.into());
    }

    /// Returns the text that is kept.
    #[must_use]
    pub fn so_far(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
