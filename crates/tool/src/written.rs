use std::fmt;
use std::sync::{Arc, OnceLock};

type Read = dyn Fn() -> Option<String> + Send + Sync;

/// The output that a tool has written so far, for a call that is given up before it answers.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use backstop_tool::PartialOutput;
///
/// let lines = Arc::new(Mutex::new(String::from("first line\n")));
/// let written = PartialOutput::default();
/// written.read_with({
///     let lines = Arc::clone(&lines);
///     move || Some(lines.lock().ok()?.clone())
/// });
/// assert_eq!(written.so_far().as_deref(), Some("first line\n"));
/// ```
#[derive(Clone, Default)]
pub struct PartialOutput(Arc<OnceLock<Box<Read>>>);

impl PartialOutput {
    /// Sets the function that reads the output. It may be called at any time, from another thread, while the tool runs
    /// and after it was stopped; only the first function counts.
    pub fn read_with(&self, read: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(read));
    }

    /// Reads the output; `None` if the tool has written nothing, or has set no function.
    #[must_use]
    pub fn so_far(&self) -> Option<String> {
        self.0.get()?()
    }
}

impl fmt::Debug for PartialOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialOutput").finish_non_exhaustive()
    }
}
