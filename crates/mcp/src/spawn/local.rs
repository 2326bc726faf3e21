//! Programs of this machine.

use std::io;
use std::process::Stdio;

use async_trait::async_trait;
use backstop_process::spawn_without_new_privileges;
use process_wrap::tokio::{ChildWrapper, CommandWrap};

use super::{Running, ServerCommand, Spawn, Spawned};

/// Starts programs as this process may: each in a process group of its own, which is killed as one.
///
/// On Linux a program gains no privileges that this process has not.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is a name, and holds nothing")]
pub struct LocalSpawner;

#[async_trait]
impl Spawn for LocalSpawner {
    async fn spawn(&self, command: &ServerCommand) -> io::Result<Spawned> {
        let mut wrapped = CommandWrap::with_new(&command.program, |inner| {
            inner
                .args(&command.arguments)
                .env_clear()
                .envs(&command.variables)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true);
            if let Some(folder) = &command.folder {
                inner.current_dir(folder);
            }
        });
        #[cfg(unix)]
        wrapped.wrap(process_wrap::tokio::ProcessGroup::leader());
        let mut program = Program { child: spawn_without_new_privileges(wrapped)?, ended: None };
        let child = &mut program.child;
        let pipes = (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("the program has no pipes"));
        };
        Ok(Spawned::new(Box::new(stdin), Box::new(stdout), Box::new(stderr), Box::new(program)))
    }
}

struct Program {
    child: Box<dyn ChildWrapper>,
    /// How it ended.
    ended: Option<String>,
}

#[async_trait]
impl Running for Program {
    async fn wait(&mut self) -> io::Result<String> {
        if let Some(ended) = &self.ended {
            return Ok(ended.clone());
        }
        // Of the group, the wait would be for what the program has started too.
        let status = self.child.inner_mut().wait().await?;
        // Now, while what it has left behind still holds the number of its group.
        self.kill();
        Ok(self.ended.insert(status.to_string()).clone())
    }

    fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.start_kill();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
