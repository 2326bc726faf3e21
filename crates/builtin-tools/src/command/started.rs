//! A program that runs, with walls around it or without.

use std::io;
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use backstop_environment::Walled;
use backstop_process::spawn_without_new_privileges;
use layer0::error::EnvError;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::processes::kill_all;
#[cfg(unix)]
use super::watchdog::Watchdog;

/// Why a program did not start.
pub(super) enum StartError {
    NotStarted(io::Error),
    Walls(EnvError),
}

/// A program that runs.
pub(super) enum Started {
    Free(Box<Processes>),
    Walled(Box<Walled>),
}

impl Started {
    pub(super) fn streams(
        &mut self,
    ) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        match self {
            Self::Free(free) => {
                let child = &mut free.child;
                (child.stdin().take(), child.stdout().take(), child.stderr().take())
            }
            Self::Walled(walled) => {
                (walled.stdin.take(), walled.stdout.take(), walled.stderr.take())
            }
        }
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Free(free) => free.child.wait().await,
            Self::Walled(walled) => {
                let ended = walled.wait().await.map_err(io::Error::other)?;
                Ok(status_of(&ended))
            }
        }
    }

    /// Lets what the program left running be; returns the walls that it ran in.
    pub(super) fn ended(self) -> Option<Box<Walled>> {
        match self {
            Self::Free(mut free) => {
                free.ended = true;
                None
            }
            Self::Walled(walled) => Some(walled),
        }
    }
}

/// Returns an end within walls as the system says it.
#[cfg(unix)]
fn status_of(ended: &backstop_environment::Ended) -> ExitStatus {
    let raw = match (ended.code, ended.signal) {
        (Some(code), _) => code << 8,
        (None, Some(signal)) => signal,
        (None, None) => 1 << 8,
    };
    ExitStatusExt::from_raw(raw)
}

/// There are no walls elsewhere, and nothing that ends within.
#[cfg(not(unix))]
fn status_of(_: &backstop_environment::Ended) -> ExitStatus {
    ExitStatus::default()
}

/// The processes of a call, which are killed when it is given up before its command has ended.
pub(super) struct Processes {
    child: Box<dyn ChildWrapper>,
    mark: String,
    ended: bool,
    #[cfg(unix)]
    watchdog: Option<Watchdog>,
}

impl Processes {
    /// Starts a program with nothing around it but its group.
    pub(super) fn start(mut command: CommandWrap, mark: String) -> io::Result<Self> {
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
            ended: false,
            #[cfg(unix)]
            watchdog,
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if !self.ended {
            // First what the command has started, while it shows whose child that is.
            kill_all(self.child.id(), &self.mark);
            let _ = self.child.start_kill();
        }
        #[cfg(unix)]
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
    }
}
