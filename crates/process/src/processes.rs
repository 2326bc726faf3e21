//! A program and its child processes, which do not outlive this process.

mod tree;
#[cfg(unix)]
mod watchdog;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use self::tree::kill_all;
#[cfg(unix)]
use self::watchdog::Watchdog;
use crate::privileges::spawn_without_new_privileges;

pub use self::tree::{MARK, new_mark};

/// A running program with all processes that it started.
///
/// It runs in its own process group and, on Linux, gains no privileges that this process does not
/// have. When this is dropped, or when this process dies (even by SIGKILL), the group is killed,
/// and on Linux also the processes that the program started in other groups and sessions: its
/// descendants, and the processes with the variable [`MARK`] that it was started with. A process
/// that has left the tree and cleared its environment is not found.
///
/// ```
/// use backstop_process::Processes;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # #[cfg(unix)] {
/// let mut processes = Processes::start("true", |command| {
///     command.env_clear();
/// })?;
/// assert!(processes.wait().await?.success());
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Processes {
    child: Box<dyn ChildWrapper>,
    mark: String,
    is_over: bool,
    #[cfg(unix)]
    watchdog: Option<Watchdog>,
}

impl Processes {
    /// Starts a program as described, with pipes for its outputs, and for its input unless the
    /// description sets another one: a [`CompleteInput`](crate::CompleteInput) is complete before
    /// the program begins.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started; [`io::ErrorKind::NotFound`] if there is no such program.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn start(
        program: impl AsRef<OsStr>,
        describe: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mark = new_mark();
        let mut command = CommandWrap::with_new(program, |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            describe(command);
            command.env(MARK, &mark);
        });
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(unix)]
        let mut watchdog = Watchdog::start(&mark);
        let spawned = spawn_without_new_privileges(command);
        #[cfg(unix)]
        if let Some(watchdog) = &mut watchdog
            && let Some(group) = spawned.as_ref().ok().and_then(|child| child.id())
        {
            watchdog.watch(group);
        }
        Ok(Self {
            child: spawned?,
            mark,
            is_over: false,
            #[cfg(unix)]
            watchdog,
        })
    }

    /// Returns the ends of the program's standard input, output and error; each can be taken once.
    pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin().take(), self.child.stdout().take(), self.child.stderr().take())
    }

    /// Waits for the end of the program, but not of processes that it started.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot wait for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; it can be waited for again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // Waiting for the group would wait for the program's child processes too.
        self.child.inner_mut().wait().await
    }

    /// Kills the program and all processes that it started, without waiting. A second call does nothing.
    pub fn kill(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        // The processes that the program started are killed first, while they are still its children.
        kill_all(self.child.id(), &self.mark);
        let _ = self.child.start_kill();
        self.dismiss();
    }

    /// Lets the processes continue that the program left running when it ended.
    pub fn let_go(mut self) {
        self.is_over = true;
        self.dismiss();
    }

    /// Dismisses the watchdog: nothing is left that must die with this process.
    fn dismiss(&mut self) {
        #[cfg(unix)]
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processes").field("id", &self.child.id()).finish_non_exhaustive()
    }
}
