//! A program that runs, with walls around it or without.

use std::io;
#[cfg(unix)]
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use backstop_environment::Walled;
use backstop_process::Processes;
use layer0::error::EnvError;
use tokio::process::{ChildStderr, ChildStdout};

/// The reason that a program did not start.
pub(super) enum StartError {
    NotStarted(io::Error),
    Walls(EnvError),
}

/// A program that runs.
pub(super) enum StartedCommand {
    Free(Box<Processes>),
    Walled(Box<Walled>),
}

impl StartedCommand {
    /// Takes the ends of the program's standard output and error; each can be taken once.
    pub(super) fn outputs(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        match self {
            Self::Free(free) => {
                let (_, stdout, stderr) = free.streams();
                (stdout, stderr)
            }
            Self::Walled(walled) => (walled.stdout.take(), walled.stderr.take()),
        }
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Self::Free(free) => free.wait().await,
            Self::Walled(walled) => {
                let ended = walled.wait().await.map_err(io::Error::other)?;
                Ok(to_exit_status(&ended))
            }
        }
    }

    /// Leaves the program's remaining processes running; returns the walls around the program.
    pub(super) fn into_walls(self) -> Option<Box<Walled>> {
        match self {
            Self::Free(free) => {
                free.let_go();
                None
            }
            Self::Walled(walled) => Some(walled),
        }
    }
}

/// Returns the exit status of an end within walls.
#[cfg(unix)]
fn to_exit_status(ended: &backstop_environment::ProgramExit) -> ExitStatus {
    let raw = match (ended.code, ended.signal) {
        (Some(code), _) => code << 8,
        (None, Some(signal)) => signal,
        (None, None) => 1 << 8,
    };
    ExitStatusExt::from_raw(raw)
}

/// There are no walls elsewhere, and nothing that ends within.
#[cfg(not(unix))]
fn to_exit_status(_: &backstop_environment::ProgramExit) -> ExitStatus {
    ExitStatus::default()
}
