use std::fmt;
use std::sync::{Arc, OnceLock};

type Read = dyn Fn() -> Option<String> + Send + Sync;

/// What a tool has written so far, for a call that is given up before it answers.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use backstop_tool::Written;
///
/// let lines = Arc::new(Mutex::new(String::from("first line\n")));
/// let written = Written::default();
/// written.read_with({
///     let lines = Arc::clone(&lines);
///     move || Some(lines.lock().ok()?.clone())
/// });
/// assert_eq!(written.so_far().as_deref(), Some("first line\n"));
/// ```
#[derive(Clone, Default)]
pub struct Written(Arc<OnceLock<Box<Read>>>);

impl Written {
    /// Says how to read it. It may be read at any time, from another thread, while the tool runs and
    /// after it was stopped; only the first way given counts.
    pub fn read_with(&self, read: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(read));
    }

    /// Reads it; `None` when the tool has written nothing, or does not say.
    #[must_use]
    pub fn so_far(&self) -> Option<String> {
        self.0.get()?()
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").finish_non_exhaustive()
    }
}
