//! A program within walls.

mod ended;
#[cfg(target_os = "linux")]
mod follow;
#[cfg(target_os = "linux")]
mod parent;
mod program;
#[cfg(target_os = "linux")]
pub(crate) mod spawn;

use std::sync::Arc;

use layer0::error::EnvError;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use ended::ProgramExit;
pub use program::{ProgramInput, WalledProgram};

use crate::Walls;
use crate::proxy::{Intervention, Interventions};

/// The end of a program, once it has ended.
type ExitReceiver = watch::Receiver<Option<Result<ProgramExit, String>>>;

/// A program that runs within walls.
///
/// It and all that it has started are killed when this is dropped, when the program itself ends, and when this
/// process ends, however that does.
///
/// ```no_run
/// # async fn run(walls: backstop_environment::Walls) -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_environment::WalledProgram;
/// use tokio::io::AsyncReadExt;
///
/// let program = WalledProgram::new("cat", ["/etc/shadow".to_owned()], "/", Default::default());
/// let mut walled = walls.command(program).spawn().await?;
/// let mut said = String::new();
/// if let Some(mut stderr) = walled.stderr.take() {
///     stderr.read_to_string(&mut said).await?;
/// }
/// if !walled.wait().await?.is_success() {
///     // A host that was denied, or a limit that was reached; else what is granted.
///     println!("{:?}, {:?}", walled.explain(&said), walled.describe_walls());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Walled {
    /// The rest of the program's input, unless it has been sent; dropping this closes the input.
    pub stdin: Option<ChildStdin>,
    /// The standard output. The reader has to limit it.
    pub stdout: Option<ChildStdout>,
    /// The standard error.
    pub stderr: Option<ChildStderr>,
    id: u32,
    walls: Walls,
    notes: Arc<Interventions>,
    end: ExitReceiver,
    /// Follows the program; when it is aborted, the helper ends everything.
    _tasks: JoinSet<()>,
}

impl Walled {
    /// Returns the id of the helper's process, which lives a moment longer than the program.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the program, and all that it has started, has ended. Later calls return the same end.
    ///
    /// # Errors
    ///
    /// [`EnvError::Other`], when the runtime that it was started on has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the program continues.
    pub async fn wait(&mut self) -> Result<ProgramExit, EnvError> {
        let gone = |why: String| EnvError::Other(why.into());
        let ended = self.end.wait_for(Option::is_some).await;
        let ended =
            ended.map_err(|_| gone("the walled program is not followed any more".into()))?;
        match &*ended {
            Some(ended) => ended.clone().map_err(gone),
            None => Err(gone("the walled program has not ended".into())),
        }
    }

    /// Returns the attempts that the walls have stopped so far, in order and each once: hosts as
    /// [`EnvError::NetworkDenied`], limits as [`EnvError::ResourceExceeded`]. Limits are known when the program has
    /// ended.
    #[must_use]
    pub fn broken(&self) -> Vec<EnvError> {
        self.blocked_operations().all()
    }

    /// Returns a handle with the same reports as [`Walled::broken`], for code that does not have the program.
    #[must_use]
    pub fn blocked_operations(&self) -> BlockedOperations {
        BlockedOperations(Arc::clone(&self.notes))
    }

    /// Returns the wall that a program ran into, as the kernel and the proxy counted it: a reached limit, or a denied
    /// host. Of several hosts it is the last one named in `stderr`, or else the last. Nothing else depends on the
    /// program's output, its exit status or the signal that ended it: `None` means that nothing outside of the program
    /// saw a wall, as with files; [`Walled::describe_walls`] lists the paths and hosts that it may reach.
    #[must_use]
    pub fn explain(&self, stderr: &str) -> Option<EnvError> {
        let notes = self.notes.all();
        let is_counted = |note: &&Intervention| matches!(note, Intervention::Limit(_));
        let counted = notes.iter().find(is_counted);
        let named = || notes.iter().rev().find(|note| note.is_named_in(stderr));
        let denied = || notes.iter().rfind(|note| matches!(note, Intervention::Denied { .. }));
        let found = counted.or_else(named).or_else(denied).or_else(|| notes.last());
        found.cloned().map(error)
    }

    /// Returns what its walls grant; see [`Walls::describe_grants`].
    #[must_use]
    pub fn describe_grants(&self) -> Option<String> {
        self.walls.describe_grants()
    }

    /// Returns a line for a failure that [`Walled::explain`] does not explain: the wall that may have ended the program,
    /// such as a limit whose signal ended it, and what the walls grant. Programs can send themselves each signal.
    #[must_use]
    pub fn describe_walls(&self) -> Option<String> {
        let possible = self.notes.possible();
        let may_be =
            (!possible.is_empty()).then(|| format!("may be the reason: {}", possible.join(", ")));
        let granted = self.describe_grants().map(|granted| format!("granted: {granted}"));
        let parts: Vec<String> = [may_be, granted].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Reports the attempts that the walls of a program have stopped. Clones report on the same program.
#[derive(Debug, Clone)]
pub struct BlockedOperations(Arc<Interventions>);

impl BlockedOperations {
    /// Returns the attempts stopped so far; see [`Walled::broken`].
    #[must_use]
    pub fn all(&self) -> Vec<EnvError> {
        self.0.all().into_iter().map(error).collect()
    }
}

fn error(note: Intervention) -> EnvError {
    match note {
        Intervention::Denied { what, .. } | Intervention::Unrouted(what) => {
            EnvError::NetworkDenied(what)
        }
        Intervention::Limit(what) => EnvError::ResourceExceeded(what),
    }
}
