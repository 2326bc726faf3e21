//! The tools of a server.

use std::fmt;
use std::sync::Arc;

use backstop_tool::{LeftOut, Tool, ToolListing, ToolSource};
use tokio::sync::Notify;

use crate::McpError;
use crate::connection::Connection;
use crate::listing::{Made, ToolList};
use crate::server::Settings;
use crate::tool::McpTool;
use crate::upstream::McpServerState;

/// The tools of one server.
///
/// The tools and [`listing`](ToolSource::listing) remain as they were when the client connected;
/// [`current`](ToolSource::current) returns the tools that the server lists now. After the loss of a server, the next
/// call starts it again, or reconnects to it.
///
/// ```no_run
/// use backstop_mcp::McpServer;
/// use backstop_tool::{ToolSource, Toolset};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let files = McpServer::url("files", "http://127.0.0.1:3001/mcp").connect().await?;
/// let mut tools = Toolset::new();
/// for tool in files.tools() {
///     tools.add(tool)?;
/// }
/// // Later: what is different there now.
/// let changes = files.listing().changes(&files.current());
/// assert!(changes.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct McpClient {
    server: Arc<McpServerState>,
    tools: Vec<Arc<McpTool>>,
    left_out: Vec<LeftOut>,
    warnings: Vec<String>,
    listing: ToolListing,
}

impl McpClient {
    /// Connects, without retries, and lists the tools.
    pub(crate) async fn connect(settings: Settings) -> Result<Arc<Self>, McpError> {
        let changed = Arc::new(Notify::new());
        let connection = Connection::open(&settings, Arc::clone(&changed)).await?;
        let listed = ToolList::read(&connection, &settings).await?;
        settings.check_patterns(&listed.origins())?;
        let Made { tools, left_out, listing } = listed.make(&connection, &settings)?;
        for tool in &left_out {
            let LeftOut { origin, why, .. } = tool;
            tracing::warn!(server = settings.name, tool = origin, why, "a tool is left out");
        }
        for warning in listed.warnings() {
            tracing::warn!(
                server = settings.name,
                warning,
                "the list of tools is not as it should be"
            );
        }
        let warnings = listed.warnings().to_vec();
        let server = McpServerState::new(settings, connection, changed, &listing, &listed);
        let tool = |made| Arc::new(McpTool::new(made, Arc::clone(&server)));
        let tools = tools.into_iter().map(tool).collect();
        Ok(Arc::new(Self { server, tools, left_out, warnings, listing }))
    }

    /// Returns whether the server is connected, as far as is known. The next call starts a server again that is not.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.server.is_up()
    }

    /// Closes the connection for good. The program of a server is killed with all processes that it has started, and
    /// has ended when this returns. Later calls fail with `tool.unavailable`.
    ///
    /// Dropping the client and its tools also ends the connection, without waiting for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still ends the connection, without waiting for the end.
    pub async fn close(&self) {
        self.server.close().await;
    }
}

impl ToolSource for McpClient {
    fn name(&self) -> &str {
        &self.server.settings.name
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>).collect()
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn listing(&self) -> &ToolListing {
        &self.listing
    }

    fn current(&self) -> Arc<ToolListing> {
        self.server.listing()
    }
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient")
            .field("server", &self.server.settings.name)
            .field("tools", &self.listing.tools.keys())
            .finish_non_exhaustive()
    }
}
