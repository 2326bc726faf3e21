//! How the program of a server is started.

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

/// What is written to a program.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;
/// What a program writes.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// Starts the programs of servers. [`LocalSpawner`] does it as this process may; an environment with limits does
/// it inside of them.
///
/// ```
/// use backstop_mcp::{LocalSpawner, ServerCommand, Spawn, Spawned};
///
/// /// Runs programs with a lower priority.
/// #[derive(Debug)]
/// struct Nice;
///
/// #[async_trait::async_trait]
/// impl Spawn for Nice {
///     async fn spawn(&self, command: &ServerCommand) -> std::io::Result<Spawned> {
///         let mut nice = command.clone();
///         nice.arguments.insert(0, std::mem::replace(&mut nice.program, "nice".into()));
///         LocalSpawner.spawn(&nice).await
///     }
/// }
/// ```
#[async_trait]
pub trait Spawn: Send + Sync + fmt::Debug {
    /// Starts a program, which sees [`ServerCommand::variables`] and nothing else of the environment.
    ///
    /// # Errors
    ///
    /// When it cannot be started; [`io::ErrorKind::NotFound`] where it is not there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing running.
    async fn spawn(&self, command: &ServerCommand) -> io::Result<Spawned>;
}

/// A program with its arguments, and where it runs.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCommand {
    /// The program: a path, or a name that is looked for in `PATH` of the variables.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs; the folder of this process where `None`.
    pub folder: Option<PathBuf>,
    /// All that it sees of the environment.
    pub variables: BTreeMap<String, String>,
}

impl ServerCommand {
    /// Describes a program with its arguments, without any variable.
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

/// Returns what walls have held.
pub(crate) type Held = Box<dyn Fn() -> Vec<EnvError> + Send + Sync>;

/// A program that was started.
#[non_exhaustive]
pub struct Spawned {
    /// What is written here, it reads.
    pub stdin: Input,
    /// What it answers.
    pub stdout: Output,
    /// What it says beside that.
    pub stderr: Output,
    /// The program, which is killed when this is dropped.
    pub running: Box<dyn Running>,
    secrets: Vec<String>,
    pub(crate) held: Option<Held>,
}

impl Spawned {
    /// Puts together what is known of a program that was started.
    #[must_use]
    pub fn new(stdin: Input, stdout: Output, stderr: Output, running: Box<dyn Running>) -> Self {
        Self { stdin, stdout, stderr, running, secrets: Vec::new(), held: None }
    }

    /// Adds a secret that the program was given and the description of the server does not hold, such as a
    /// credential that was fetched for this start. It is kept out of what the server is quoted with.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secrets.push(secret.into());
        self
    }

    /// Takes what returns all that walls around the program have held until then: a call that fails says what they
    /// have held meanwhile.
    #[must_use]
    pub fn held(mut self, held: impl Fn() -> Vec<EnvError> + Send + Sync + 'static) -> Self {
        self.held = Some(Box::new(held));
        self
    }

    pub(crate) fn secrets(&self) -> &[String] {
        &self.secrets
    }
}

impl fmt::Debug for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawned").finish_non_exhaustive()
    }
}

/// A program that runs. Dropping it kills the program and what it has started.
#[async_trait]
pub trait Running: Send {
    /// Waits for its end, and says how it ended, such as `exit status: 1`.
    ///
    /// # Errors
    ///
    /// When it cannot be waited for.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; it can be waited for again.
    async fn wait(&mut self) -> io::Result<String>;

    /// Kills it and what it has started, without waiting for that.
    fn kill(&mut self);
}
