//! The program as its own helper.

#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod executable;
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

/// Becomes the helper if this process was started as one; otherwise records that it can become one.
///
/// This has to be the first line of `main`, before any thread is started. The `main` has to be a plain one, because the
/// body of a `#[tokio::main]` runs when there are already threads.
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

/// The program that puts up walls around itself, and then starts the walled program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper(PathBuf);

impl Helper {
    /// Uses this program as its own helper.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`] if its `main` has not called [`enter`]: started again, it would do its own work.
    pub fn this_program() -> Result<Self, EnvError> {
        if CAN_HELP.load(Ordering::Relaxed) {
            return Ok(Self(THIS_PROGRAM.into()));
        }
        let why = "this program cannot be its own helper: the first line of its `main` must be \
                   `backstop_environment::enter()`";
        Err(EnvError::ProvisionFailed(why.to_owned()))
    }

    /// Uses another program as helper, whose `main` begins with [`enter`] of this version of Backstop.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path of the helper.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}
