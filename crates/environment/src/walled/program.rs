use std::collections::BTreeMap;
use std::path::PathBuf;

use layer0::error::EnvError;

use crate::{Walled, Walls};

/// A program with its arguments, where it runs, and all that it sees of the environment.
///
/// With a network rule, the variables that name a proxy are set beside `variables`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalledProgram {
    /// Its file, or a name that is looked for in `PATH` of the variables.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs. The folder need not be among what it reads.
    pub folder: PathBuf,
    /// All that it sees of the environment.
    pub variables: BTreeMap<String, String>,
}

impl WalledProgram {
    /// Describes a program.
    pub fn new(
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = String>,
        folder: impl Into<PathBuf>,
        variables: BTreeMap<String, String>,
    ) -> Self {
        let (name, folder) = (name.into(), folder.into());
        Self { name, arguments: arguments.into_iter().collect(), folder, variables }
    }
}

/// A start of a program within walls.
#[derive(Debug)]
#[must_use = "nothing runs until it is spawned"]
pub struct WalledCommand {
    pub(super) walls: Walls,
    pub(super) program: WalledProgram,
}

impl WalledCommand {
    pub(crate) const fn new(walls: Walls, program: WalledProgram) -> Self {
        Self { walls, program }
    }

    /// Puts up the walls and starts the program within. It runs when this returns.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when a wall cannot be put up, or the program is not there;
    /// [`EnvError::IsolationViolation`], when the rules do not grant the program's own file, or it has killed the
    /// helper; [`EnvError::ResourceExceeded`], when the memory does not suffice for a start. Nothing is left behind
    /// then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends what was started.
    #[cfg(target_os = "linux")]
    pub async fn spawn(self) -> Result<Walled, EnvError> {
        super::spawn::spawn(self.walls, self.program).await
    }

    /// Starts nothing: walls are of Linux.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], always.
    ///
    /// # Cancel safety
    ///
    /// There is nothing to drop.
    #[cfg(not(target_os = "linux"))]
    pub async fn spawn(self) -> Result<Walled, EnvError> {
        Err(EnvError::ProvisionFailed(super::NOT_HERE.to_owned()))
    }
}
