//! What helpers are called, and where their program is.

/// What the outer helper is called: `argv[0]`.
#[cfg(target_os = "linux")]
pub(crate) const OUTER: &str = "backstop-walls";

/// What the inner helper is called.
#[cfg(target_os = "linux")]
pub(super) const INNER: &str = "backstop-walls-init";

/// The program that this process runs, whatever became of its file.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
