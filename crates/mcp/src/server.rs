//! Description of a server.

mod described;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_redact::Redactor;
use backstop_tool::Grants;

use self::described::{Reached, ServerDescription};
pub(crate) use self::settings::{ServerLocation, Settings, sanitize_name};
use crate::oauth::ClientCredentials;
use crate::progress::CallProgress;
use crate::spawn::Spawn;
use crate::{McpClient, McpError};

/// Description of an MCP server: how to connect to it, and the operator's declarations about its tools.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::Duration;
///
/// use backstop_mcp::McpServer;
///
/// let files = McpServer::command("files", ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."])
///     .variables(BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]))
///     .only(["read_*", "list_*"])
///     .read_only(["*"])
///     .timeout(Duration::from_secs(10));
/// let issues = McpServer::url("issues", "https://mcp.example.com/mcp")
///     .header("authorization", "Bearer s3cret-s3cret")
///     .approval(["create_*"]);
/// assert!(!format!("{issues:?}").contains("s3cret"));
/// ```
#[derive(Clone)]
pub struct McpServer(ServerDescription);

impl McpServer {
    /// Describes a server that is a program, given by its path or name and its arguments. It communicates over standard
    /// input and output, and its environment holds only [`McpServer::variables`].
    pub fn command<S: Into<String>>(
        name: impl Into<String>,
        command: impl IntoIterator<Item = S>,
    ) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::new(name.into(), Reached::Command(command))
    }

    /// Describes a server that is reached over streamable HTTP.
    pub fn url(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), Reached::Url(url.into()))
    }

    fn new(name: String, reached: Reached) -> Self {
        Self(ServerDescription::new(name, reached))
    }

    /// Sets the whole environment of a program. Values of variables whose names indicate a secret are redacted from
    /// messages.
    #[must_use]
    pub fn variables(mut self, variables: BTreeMap<String, String>) -> Self {
        self.0.variables = variables;
        self
    }

    /// Sets the folder that a program runs in; by default the folder of this process.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.0.folder = Some(folder.into());
        self
    }

    /// Adds a header to each request. The value is treated as a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Logs in with the credentials of a client if the server requires it.
    #[must_use]
    pub fn oauth(mut self, credentials: ClientCredentials) -> Self {
        self.0.oauth = Some(credentials);
        self
    }

    /// Sets the grants of a login beyond the server's own addresses: `network:private:ADDRESS` for an authorization
    /// server that the server names and whose address is not public. Tools are granted nothing.
    #[must_use]
    pub fn grants(mut self, grants: Grants) -> Self {
        self.0.grants = grants;
        self
    }

    /// Omits all tools whose names at the server match none of these patterns, such as `read_*`. A pattern that matches
    /// none of its tools is refused.
    #[must_use]
    pub fn only<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.only = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Declares that a call of these tools may be repeated after it may have acted. The server's own statement about
    /// this is ignored.
    #[must_use]
    pub fn idempotent<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.idempotent = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Declares that these tools only read. The server's own statement about this is ignored.
    #[must_use]
    pub fn read_only<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.read_only = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Declares that each call of these tools needs an approval. A pattern that matches none of the server's tools is
    /// refused: a typing mistake would remove an approval.
    #[must_use]
    pub fn approval<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.approval = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the time limit of a call without progress; 30 s by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Sets the time limit for the server's start and its answer to the initialisation, and for the listing of its tools;
    /// 30 s by default each.
    #[must_use]
    pub const fn start_timeout(mut self, timeout: Duration) -> Self {
        self.0.start_timeout = timeout;
        self
    }

    /// Sets the total time limit of a call, independent of its progress; ten times the timeout by default.
    #[must_use]
    pub fn max_timeout(mut self, timeout: Duration) -> Self {
        self.0.max_timeout = Some(timeout);
        self
    }

    /// Sets the folders that the server may work in, which it can request as roots.
    #[must_use]
    pub fn roots<P: Into<PathBuf>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        self.0.roots = folders.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the redactor for the server's standard error and failures.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.0.redactor = redactor;
        self
    }

    /// Sets the clock of timeouts and backoff.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.0.clock = clock;
        self
    }

    /// Sets the spawner of the program.
    #[must_use]
    pub fn spawner(mut self, spawner: Arc<dyn Spawn>) -> Self {
        self.0.spawner = spawner;
        self
    }

    /// Sets a callback for the progress of calls. It must not block.
    #[must_use]
    pub fn on_progress(mut self, on_progress: Arc<dyn Fn(CallProgress) + Send + Sync>) -> Self {
        self.0.on_progress = Some(on_progress);
        self
    }

    /// Checks the description without connecting.
    ///
    /// # Errors
    ///
    /// [`McpError::Misconfigured`].
    pub fn check(&self) -> Result<(), McpError> {
        Settings::new(self.0.clone()).map(drop)
    }

    /// Connects to the server, without retries, and lists its tools.
    ///
    /// # Errors
    ///
    /// Each variant of [`McpError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection, and kills a started program.
    pub async fn connect(self) -> Result<Arc<McpClient>, McpError> {
        McpClient::connect(Settings::new(self.0)?).await
    }
}

/// Shows no value of a variable or a header.
impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", &self.0.name);
        match &self.0.reached {
            Reached::Command(command) => shown.field("command", command),
            Reached::Url(url) => shown.field("url", &self.0.redactor.redact(url)),
        };
        shown.finish_non_exhaustive()
    }
}
