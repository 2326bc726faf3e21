//! Names of helpers, and the path of their program.

/// Name of the outer helper: `argv[0]`.
#[cfg(target_os = "linux")]
pub(crate) const OUTER: &str = "backstop-walls";

/// Name of the inner helper.
#[cfg(target_os = "linux")]
pub(super) const INNER: &str = "backstop-walls-init";

/// The program of this process, even if its file was moved or removed.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
