//! Programs of this machine.

use std::io;

use async_trait::async_trait;
use backstop_process::Processes;

use super::{Running, ServerCommand, Spawn, Spawned};

/// Starts programs as this process may: each in a process group of its own.
///
/// When the server is let go, or this process dies (even by SIGKILL), the group is killed, and on Linux what the
/// program has started in other groups and sessions too: its descendants, and the processes that bear the variable
/// `BACKSTOP_CALL` it was started with. On Linux a program gains no privileges that this process has not.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is a name, and holds nothing")]
pub struct LocalSpawner;

#[async_trait]
impl Spawn for LocalSpawner {
    async fn spawn(&self, command: &ServerCommand) -> io::Result<Spawned> {
        let mut processes = Processes::start(&command.program, |started| {
            started.args(&command.arguments).env_clear().envs(&command.variables);
            if let Some(folder) = &command.folder {
                started.current_dir(folder);
            }
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) = processes.streams() else {
            return Err(io::Error::other("the program has no pipes"));
        };
        let program = Box::new(Program { processes, ended: None });
        Ok(Spawned::new(Box::new(stdin), Box::new(stdout), Box::new(stderr), program))
    }
}

struct Program {
    processes: Processes,
    /// How it ended.
    ended: Option<String>,
}

#[async_trait]
impl Running for Program {
    async fn wait(&mut self) -> io::Result<String> {
        if let Some(ended) = &self.ended {
            return Ok(ended.clone());
        }
        let status = self.processes.wait().await?;
        // Now, while what it has left behind still holds the number of its group.
        self.processes.kill();
        Ok(self.ended.insert(status.to_string()).clone())
    }

    fn kill(&mut self) {
        self.processes.kill();
    }
}
