//! The program as its own helper.

#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod group;
#[cfg(target_os = "linux")]
mod inner;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod namespaces;
pub(crate) mod names;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod outer;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod seccomp_rules;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use layer0::error::EnvError;

use names::THIS_PROGRAM;
#[cfg(target_os = "linux")]
use names::{INNER, OUTER};

static CAN_HELP: AtomicBool = AtomicBool::new(false);

/// Becomes the helper, where this process was started as one; otherwise notes that it can be.
///
/// It has to be the first line of `main`, before any thread is started: of a plain `main`, that is, since the body of
/// a `#[tokio::main]` runs where threads are already.
///
/// ```
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     backstop_environment::enter();
///     // The program.
///     ExitCode::SUCCESS
/// }
/// ```
pub fn enter() {
    #[cfg(target_os = "linux")]
    match std::env::args_os().next() {
        Some(name) if name == OUTER => std::process::exit(outer::run()),
        Some(name) if name == INNER => std::process::exit(inner::run()),
        _ => {}
    }
    CAN_HELP.store(true, Ordering::Relaxed);
}

/// The program that puts up walls around itself, and starts what is walled then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper(PathBuf);

impl Helper {
    /// This program is its own helper.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when its `main` has not called [`enter`]: run again, it would do its own work.
    pub fn this_program() -> Result<Self, EnvError> {
        if CAN_HELP.load(Ordering::Relaxed) {
            return Ok(Self(THIS_PROGRAM.into()));
        }
        let why = "this program cannot be its own helper: the first line of its `main` must be \
                   `backstop_environment::enter()`";
        Err(EnvError::ProvisionFailed(why.to_owned()))
    }

    /// Another program is the helper, one whose `main` begins with [`enter`] of this version of Backstop.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns where the helper is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}
