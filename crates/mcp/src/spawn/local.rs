//! Programs on this machine.

use std::io;

use async_trait::async_trait;
use backstop_process::Processes;

use super::{RunningProgram, ServerCommand, Spawn, SpawnedProgram};

/// Starts programs with the rights of this process, each in its own process group.
///
/// When the server is dropped, or this process dies (even by SIGKILL), the group is killed; on Linux also the processes
/// that the program has started in other groups and sessions: its descendants, and the processes with the variable
/// `BACKSTOP_CALL` that it was started with. On Linux a program cannot gain privileges that this process does not have.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is a name, and holds nothing")]
pub struct LocalSpawner;

#[async_trait]
impl Spawn for LocalSpawner {
    async fn spawn(&self, command: &ServerCommand) -> io::Result<SpawnedProgram> {
        let mut processes = Processes::start(&command.program, |started| {
            started.args(&command.arguments).env_clear().envs(&command.variables);
            if let Some(folder) = &command.folder {
                started.current_dir(folder);
            }
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) = processes.streams() else {
            return Err(io::Error::other("the program has no pipes"));
        };
        let program = Box::new(LocalProgram { processes, ended: None });
        Ok(SpawnedProgram::new(Box::new(stdin), Box::new(stdout), Box::new(stderr), program))
    }
}

struct LocalProgram {
    processes: Processes,
    /// The status of its end.
    ended: Option<String>,
}

#[async_trait]
impl RunningProgram for LocalProgram {
    async fn wait(&mut self) -> io::Result<String> {
        if let Some(ended) = &self.ended {
            return Ok(ended.clone());
        }
        let status = self.processes.wait().await?;
        // While its remaining processes still hold the number of its group.
        self.processes.kill();
        Ok(self.ended.insert(status.to_string()).clone())
    }

    fn kill(&mut self) {
        self.processes.kill();
    }
}
