//! Start of a server's program.

mod local;
#[cfg(feature = "walls")]
mod walled;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use layer0::error::EnvError;
use tokio::io::{AsyncRead, AsyncWrite};

pub use local::LocalSpawner;
#[cfg(feature = "walls")]
pub use walled::WalledSpawner;

/// Writer to a program's standard input.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;
/// Reader of a program's output.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// Starts the programs of servers. [`LocalSpawner`] starts them with the rights of this process; an environment with
/// limits starts them inside its limits.
///
/// ```
/// use backstop_mcp::{LocalSpawner, ServerCommand, Spawn, SpawnedProgram};
///
/// /// Runs programs with a lower priority.
/// #[derive(Debug)]
/// struct Nice;
///
/// #[async_trait::async_trait]
/// impl Spawn for Nice {
///     async fn spawn(&self, command: &ServerCommand) -> std::io::Result<SpawnedProgram> {
///         let mut nice = command.clone();
///         nice.arguments.insert(0, std::mem::replace(&mut nice.program, "nice".into()));
///         LocalSpawner.spawn(&nice).await
///     }
/// }
/// ```
#[async_trait]
pub trait Spawn: Send + Sync + fmt::Debug {
    /// Starts a program, whose environment is exactly [`ServerCommand::variables`].
    ///
    /// # Errors
    ///
    /// If it cannot be started; [`io::ErrorKind::NotFound`] if it does not exist.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing running.
    async fn spawn(&self, command: &ServerCommand) -> io::Result<SpawnedProgram>;
}

/// A program with its arguments, folder and environment.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCommand {
    /// The program: a path, or a name to look up in the `PATH` of the variables.
    pub program: String,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The folder to run in; the folder of this process if `None`.
    pub folder: Option<PathBuf>,
    /// The whole environment.
    pub variables: BTreeMap<String, String>,
}

impl ServerCommand {
    /// Creates a command with these arguments and no variables.
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            folder: None,
            variables: BTreeMap::new(),
        }
    }
}

/// Shows the names of variables and no value.
impl fmt::Debug for ServerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCommand")
            .field("program", &self.program)
            .field("arguments", &self.arguments)
            .field("folder", &self.folder)
            .field("variables", &self.variables.keys())
            .finish()
    }
}

/// Returns all operations that the walls have blocked.
pub(crate) type BlockedOperationsFn = Box<dyn Fn() -> Vec<EnvError> + Send + Sync>;

/// A started program.
#[non_exhaustive]
pub struct SpawnedProgram {
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// The program, which is killed when this is dropped.
    pub running: Box<dyn RunningProgram>,
    secrets: Vec<String>,
    pub(crate) held: Option<BlockedOperationsFn>,
}

impl SpawnedProgram {
    /// Creates a started program from its parts.
    #[must_use]
    pub fn new(
        stdin: Input,
        stdout: Output,
        stderr: Output,
        running: Box<dyn RunningProgram>,
    ) -> Self {
        Self { stdin, stdout, stderr, running, secrets: Vec::new(), held: None }
    }

    /// Adds a secret that the program received and the server's description does not hold, such as a credential that
    /// was fetched for this start. It is redacted from texts of the server.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Sets a function that returns all operations that the walls around the program have blocked so far; a failed call
    /// reports the ones blocked during the call.
    #[must_use]
    pub fn with_blocked_operations(
        mut self,
        held: impl Fn() -> Vec<EnvError> + Send + Sync + 'static,
    ) -> Self {
        self.held = Some(Box::new(held));
        self
    }

    pub(crate) fn secrets(&self) -> &[String] {
        &self.secrets
    }
}

impl fmt::Debug for SpawnedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnedProgram").finish_non_exhaustive()
    }
}

/// A running program. Dropping it kills the program and the processes that it has started.
#[async_trait]
pub trait RunningProgram: Send {
    /// Waits for the program's end, and returns its status, such as `exit status: 1`.
    ///
    /// # Errors
    ///
    /// If waiting for it fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; `wait` can be called again.
    async fn wait(&mut self) -> io::Result<String>;

    /// Kills the program and the processes that it has started, without waiting for their end.
    fn kill(&mut self);
}
