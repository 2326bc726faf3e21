//! A server's tools, and the connection behind them.

mod link;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use backstop_tool::{LeftOut, Tool, ToolListing, ToolSource};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::link::Link;
use crate::McpError;
use crate::connection::Connection;
use crate::listing::{Listed, Made};
use crate::server::Settings;
use crate::tool::McpTool;

/// How long changes are gathered before the tools are listed again.
const QUIET: Duration = Duration::from_secs(1);

/// The tools of one server.
///
/// The tools and [`listing`](ToolSource::listing) stay as they were when the client connected;
/// [`current`](ToolSource::current) says what the server lists now. A server that died is started, or connected to,
/// again by the next call.
pub struct McpClient {
    server: Arc<Server>,
    tools: Vec<Arc<McpTool>>,
    left_out: Vec<LeftOut>,
    listing: ToolListing,
}

/// What the tools of a server share.
pub(crate) struct Server {
    pub(crate) settings: Settings,
    link: Link,
    now: Mutex<Now>,
    _refreshing: DropGuard,
}

/// What a server lists, as far as is known.
struct Now {
    listing: Arc<ToolListing>,
    /// The names of its tools at the server, those that cannot be used among them.
    origins: BTreeSet<String>,
}

impl McpClient {
    /// Connects, once, and lists the tools.
    pub(crate) async fn connect(settings: Settings) -> Result<Arc<Self>, McpError> {
        let changed = Arc::new(Notify::new());
        let connection = Connection::open(&settings, Arc::clone(&changed)).await?;
        let listed = Listed::read(&connection, &settings).await?;
        let Made { tools, left_out, listing } = listed.make(&connection, &settings)?;
        for tool in &left_out {
            let LeftOut { origin, why, .. } = tool;
            tracing::warn!(server = settings.name, tool = origin, why, "a tool is left out");
        }
        let now = Now { listing: Arc::new(listing.clone()), origins: listed.origins() };
        let refreshing = CancellationToken::new();
        let server = Arc::new(Server {
            link: Link::new(connection, Arc::clone(&changed)),
            now: Mutex::new(now),
            _refreshing: refreshing.clone().drop_guard(),
            settings,
        });
        refresh(Arc::downgrade(&server), changed, refreshing);
        let tool = |made| Arc::new(McpTool::new(made, Arc::clone(&server)));
        let tools = tools.into_iter().map(tool).collect();
        Ok(Arc::new(Self { server, tools, left_out, listing }))
    }

    /// Is the server there, as far as is known? One that is not is started again by the next call.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.server.link.is_up()
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

    fn listing(&self) -> &ToolListing {
        &self.listing
    }

    fn current(&self) -> Arc<ToolListing> {
        Arc::clone(&self.server.now().listing)
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

impl Server {
    /// Returns a connection that can be used, as far as is known.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, link::Down> {
        self.link.connection(&self.settings).await
    }

    /// Notes that a call was answered.
    pub(crate) fn has_worked(&self, connection: &Connection) {
        connection.has_worked();
        self.link.has_worked();
    }

    /// Does the server still list a tool, as far as is known?
    pub(crate) fn lists(&self, origin: &str) -> bool {
        self.now().origins.contains(origin)
    }

    /// Lists the tools again.
    async fn list(&self) {
        let Some(connection) = self.link.current().filter(|connection| connection.is_up()) else {
            return;
        };
        let made = match Listed::read(&connection, &self.settings).await {
            Ok(listed) => listed.make(&connection, &self.settings).map(|made| (listed, made)),
            Err(error) => Err(error),
        };
        match made {
            Ok((listed, made)) => {
                let listing = Arc::new(made.listing);
                *self.now() = Now { listing, origins: listed.origins() };
            }
            Err(error) => tracing::warn!(%error, "what was listed before is taken to stand"),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the tools again whenever they may have changed, as long as a tool is there.
fn refresh(server: Weak<Server>, changed: Arc<Notify>, until: CancellationToken) {
    let refreshing = async move {
        loop {
            changed.notified().await;
            let Some(server) = server.upgrade() else { return };
            server.list().await;
            let clock = Arc::clone(&server.settings.clock);
            drop(server);
            // A server that says so all the time is asked now and then.
            clock.sleep(QUIET).await;
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = refreshing => {}
            () = until.cancelled() => {}
        }
    });
}
