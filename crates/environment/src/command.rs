//! Start of a program within walls.

use layer0::error::EnvError;

use crate::{Walled, WalledProgram, Walls};

impl Walls {
    /// Describes a start of a program within the walls. A relative folder is relative to the current one of this
    /// process.
    pub fn command(&self, mut program: WalledProgram) -> WalledCommand {
        // The helper runs in another folder.
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
    /// Puts up the walls and starts the program within. The program is running when this returns.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`] if a wall cannot be put up, or the program does not exist;
    /// [`EnvError::IsolationViolation`] if the rules do not grant the program's own file, or it is a 32-bit program;
    /// [`EnvError::ResourceExceeded`] if there is not enough memory to start; [`EnvError::Other`] if the helper was
    /// killed, perhaps by the program. After an error nothing is left running.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all started processes.
    #[cfg(target_os = "linux")]
    pub async fn spawn(self) -> Result<Walled, EnvError> {
        crate::walled::spawn::spawn(self.walls, self.program).await
    }

    /// Starts nothing: walls need Linux.
    ///
    /// # Errors
    ///
    /// Always [`EnvError::ProvisionFailed`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is started.
    #[cfg(not(target_os = "linux"))]
    pub async fn spawn(self) -> Result<Walled, EnvError> {
        Err(EnvError::ProvisionFailed(crate::not_enforced::NOT_HERE.to_owned()))
    }
}
