//! Starting a program within walls.

use layer0::error::EnvError;

use crate::{Walled, WalledProgram, Walls};

impl Walls {
    /// Describes a start of a program within the walls. A relative folder is below that of this process.
    pub fn command(&self, mut program: WalledProgram) -> WalledCommand {
        // The helper is elsewhere.
        if program.folder.is_relative() {
            program.folder = std::env::current_dir().unwrap_or_default().join(&program.folder);
        }
        WalledCommand { walls: self.clone(), program }
    }
}

/// A start of a program within walls.
#[derive(Debug)]
#[must_use = "nothing runs until it is spawned"]
pub struct WalledCommand {
    walls: Walls,
    program: WalledProgram,
}

impl WalledCommand {
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
        crate::walled::spawn::spawn(self.walls, self.program).await
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
        Err(EnvError::ProvisionFailed(crate::not_enforced::NOT_HERE.to_owned()))
    }
}
