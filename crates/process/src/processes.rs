//! A program and all that it starts, which do not outlive this process.

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

/// A program that runs, with all that it has started.
///
/// It runs in a process group of its own and, on Linux, gains no privileges that this process has not. When this is
/// dropped, or when this process dies (even by SIGKILL), the group is killed, and on Linux what the program has
/// started in other groups and sessions too: its descendants, and the processes that bear the variable [`MARK`] it
/// was started with. A process that has left the tree and thrown its environment away is not found.
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
    /// Starts a program as it is described, with pipes for its outputs, and for its input unless the description has
    /// another one: a [`CompleteInput`](crate::CompleteInput) is there before the program begins.
    ///
    /// # Errors
    ///
    /// When it cannot be started; [`io::ErrorKind::NotFound`] where it is not there.
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

    /// Takes the ends of the program's standard input, output and error; each can be taken once.
    pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin().take(), self.child.stdout().take(), self.child.stderr().take())
    }

    /// Waits for the end of the program, and not of what it has started.
    ///
    /// # Errors
    ///
    /// When it cannot be waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; it can be waited for again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        // Of the group, the wait would be for what the program has started too.
        self.child.inner_mut().wait().await
    }

    /// Kills the program and all that it has started, without waiting for that. A second time does nothing.
    pub fn kill(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        // First what the program has started, while it shows whose child that is.
        kill_all(self.child.id(), &self.mark);
        let _ = self.child.start_kill();
        self.dismiss();
    }

    /// Lets live what the program left running when it ended.
    pub fn let_go(mut self) {
        self.is_over = true;
        self.dismiss();
    }

    /// Nothing is left that must die with this process.
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
