//! Programs within walls.

use std::io;

use async_trait::async_trait;
use backstop_environment::{Walled, WalledProgram, Walls};
use backstop_process::Credential;
use layer0::error::EnvError;
use layer0::failure::Chain;

use super::{RunningProgram, ServerCommand, Spawn, SpawnedProgram};

/// Starts programs within walls, each in its own.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_environment::Walls;
/// use backstop_mcp::{McpServer, WalledSpawner};
///
/// fn walled(walls: Walls) -> McpServer {
///     McpServer::command("files", ["mcp-files", "./data"]).spawner(Arc::new(WalledSpawner::new(walls)))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct WalledSpawner {
    walls: Walls,
    credentials: Vec<(String, Credential)>,
}

impl WalledSpawner {
    /// Creates a spawner that uses these walls.
    #[must_use]
    pub const fn new(walls: Walls) -> Self {
        Self { walls, credentials: Vec::new() }
    }

    /// Adds a credential in a variable. It is fetched at each start, and redacted from texts of the server.
    #[must_use]
    pub fn credential(mut self, variable: impl Into<String>, credential: Credential) -> Self {
        self.credentials.push((variable.into(), credential));
        self
    }
}

#[async_trait]
impl Spawn for WalledSpawner {
    async fn spawn(&self, command: &ServerCommand) -> io::Result<SpawnedProgram> {
        let failed = |error: EnvError| io::Error::other(error);
        let folder = command.folder.clone().unwrap_or_else(|| ".".into());
        let mut variables = command.variables.clone();
        let mut secrets = Vec::new();
        for (variable, credential) in &self.credentials {
            let secret = credential.clone().below(&*folder).fetch().await.map_err(failed)?;
            variables.insert(variable.clone(), secret.expose().to_owned());
            secrets.push(secret);
        }
        let arguments = command.arguments.iter().cloned();
        let program = WalledProgram::new(&*command.program, arguments, folder, variables);
        let mut walled = self.walls.command(program).spawn().await.map_err(failed)?;
        let pipes = (walled.stdin.take(), walled.stdout.take(), walled.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("the program has no pipes"));
        };
        let held = walled.blocked_operations();
        let running = Box::new(WalledRunning(Some(walled)));
        let spawned =
            SpawnedProgram::new(Box::new(stdin), Box::new(stdout), Box::new(stderr), running);
        let spawned = spawned.with_blocked_operations(move || held.all());
        Ok(secrets.iter().fold(spawned, |spawned, secret| spawned.secret(secret.expose())))
    }
}

/// A program, which is killed when dropped, together with the processes that it has started.
struct WalledRunning(Option<Walled>);

#[async_trait]
impl RunningProgram for WalledRunning {
    async fn wait(&mut self) -> io::Result<String> {
        let Some(walled) = &mut self.0 else { return Ok("killed".to_owned()) };
        let ended = walled.wait().await.map_err(io::Error::other)?;
        let held = walled.broken();
        Ok(match held.first() {
            Some(error) => format!("{ended} ({})", Chain(error)),
            None => ended.to_string(),
        })
    }

    fn kill(&mut self) {
        self.0 = None;
    }
}
