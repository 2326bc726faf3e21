//! How a server is described.

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

use self::described::{Described, Reached};
pub(crate) use self::settings::{Place, Settings, shown};
use crate::oauth::ClientCredentials;
use crate::progress::Progress;
use crate::spawn::Spawn;
use crate::{McpClient, McpError};

/// Describes an MCP server: how it is reached, and what the operator says of its tools.
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
pub struct McpServer(Described);

impl McpServer {
    /// Describes a server that is a program: its path or name, and its arguments. It is spoken to over its
    /// standard input and output, and sees of the environment only what [`McpServer::variables`] says.
    pub fn command<S: Into<String>>(
        name: impl Into<String>,
        command: impl IntoIterator<Item = S>,
    ) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        Self::new(name.into(), Reached::Command(command))
    }

    /// Describes a server that is spoken to over streamable HTTP.
    pub fn url(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), Reached::Url(url.into()))
    }

    fn new(name: String, reached: Reached) -> Self {
        Self(Described::new(name, reached))
    }

    /// Sets all that a program sees of the environment. Values of variables whose names say that they are
    /// secret are kept out of messages.
    #[must_use]
    pub fn variables(mut self, variables: BTreeMap<String, String>) -> Self {
        self.0.variables = variables;
        self
    }

    /// Sets the folder that a program runs in; that of this process where nothing is said.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.0.folder = Some(folder.into());
        self
    }

    /// Adds a header to each request. The value is taken for a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    /// Logs in with the credentials of a client, where the server asks for it.
    #[must_use]
    pub fn oauth(mut self, credentials: ClientCredentials) -> Self {
        self.0.oauth = Some(credentials);
        self
    }

    /// Sets what is granted to a login beside the server's own addresses: `network:private:ADDRESS` for an
    /// authorization server that the server names and whose address is not public. Tools are granted nothing.
    #[must_use]
    pub fn grants(mut self, grants: Grants) -> Self {
        self.0.grants = grants;
        self
    }

    /// Leaves out all tools but those whose names at the server match a pattern, such as `read_*`. A pattern that
    /// matches none of its tools is refused.
    #[must_use]
    pub fn only<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.only = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// States that a call of these tools may be repeated after it may have acted. What the server itself says
    /// of that counts for nothing.
    #[must_use]
    pub fn idempotent<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.idempotent = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// States that these tools only look around. What the server itself says of that counts for nothing.
    #[must_use]
    pub fn read_only<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.read_only = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// States that a person must agree to each call of these tools. A pattern that matches none of the server's tools is
    /// refused: a typing mistake would take an approval away.
    #[must_use]
    pub fn approval<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.0.approval = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a call may take without a sign of progress; 30 s where nothing is said.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Sets how long the server may take to start and to answer its initialisation; 30 seconds where nothing is said.
    #[must_use]
    pub const fn start_timeout(mut self, timeout: Duration) -> Self {
        self.0.start_timeout = timeout;
        self
    }

    /// Sets how long a call may take however much progress it makes; ten times the timeout where nothing is
    /// said.
    #[must_use]
    pub fn max_timeout(mut self, timeout: Duration) -> Self {
        self.0.max_timeout = Some(timeout);
        self
    }

    /// Sets the folders that the server is told it may work in, where it asks.
    #[must_use]
    pub fn roots<P: Into<PathBuf>>(mut self, folders: impl IntoIterator<Item = P>) -> Self {
        self.0.roots = folders.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what takes secrets out of what the server writes on standard error and fails with.
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

    /// Sets what starts the program.
    #[must_use]
    pub fn spawner(mut self, spawner: Arc<dyn Spawn>) -> Self {
        self.0.spawner = spawner;
        self
    }

    /// Sets what is told how far a call has come. It must not block.
    #[must_use]
    pub fn on_progress(mut self, on_progress: Arc<dyn Fn(Progress) + Send + Sync>) -> Self {
        self.0.on_progress = Some(on_progress);
        self
    }

    /// Checks the description, and connects to nothing.
    ///
    /// # Errors
    ///
    /// [`McpError::Misconfigured`].
    pub fn check(&self) -> Result<(), McpError> {
        Settings::new(self.0.clone()).map(drop)
    }

    /// Connects to the server, once, and lists its tools.
    ///
    /// # Errors
    ///
    /// Each variant of [`McpError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection, and kills a program that was started.
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
