//! A connected server and its current list of tools.

mod link;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_tool::ToolListing;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::link::{Down, ServerLink};
use crate::connection::Connection;
use crate::listing::ToolList;
use crate::server::Settings;

/// Time for which changes are collected before the tools are listed again.
const QUIET: Duration = Duration::from_secs(1);

/// State shared by the tools of a server.
pub(crate) struct McpServerState {
    pub(crate) settings: Arc<Settings>,
    link: Arc<ServerLink>,
    now: Arc<Mutex<Now>>,
    /// Ends the task that lists the tools again; that task must not keep the server alive while it waits for it.
    _refreshing: DropGuard,
}

/// The latest known list of a server.
struct Now {
    listing: Arc<ToolListing>,
    /// The names of its tools at the server, including unusable ones.
    origins: BTreeSet<String>,
}

impl McpServerState {
    /// Keeps a connection, and starts to follow changes of the server's list.
    pub(crate) fn new(
        settings: Settings,
        connection: Connection,
        changed: Arc<Notify>,
        listing: &ToolListing,
        listed: &ToolList,
    ) -> Arc<Self> {
        let now = Now { listing: Arc::new(listing.clone()), origins: listed.origins() };
        let settings = Arc::new(settings);
        let refreshing = Refreshing {
            settings: Arc::clone(&settings),
            link: Arc::new(ServerLink::new(
                Arc::clone(&settings),
                connection,
                Arc::clone(&changed),
            )),
            now: Arc::new(Mutex::new(now)),
        };
        let until = CancellationToken::new();
        let server = Self {
            settings,
            link: Arc::clone(&refreshing.link),
            now: Arc::clone(&refreshing.now),
            _refreshing: until.clone().drop_guard(),
        };
        tokio::spawn(async move {
            tokio::select! {
                () = refreshing.follow(&changed) => {}
                () = until.cancelled() => {}
            }
        });
        Arc::new(server)
    }

    /// Returns whether the server is connected, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Closes the connection for good, and waits for the end of a program.
    pub(crate) async fn close(&self) {
        self.link.close().await;
    }

    /// Returns the latest known list.
    pub(crate) fn listing(&self) -> Arc<ToolListing> {
        Arc::clone(&self.latest().listing)
    }

    /// Returns a connection that is usable, as far as is known.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, Down> {
        self.link.connection().await
    }

    /// Records that a call was answered.
    pub(crate) fn has_worked(&self, connection: &Connection) {
        connection.has_worked();
        self.link.has_worked();
    }

    /// Returns whether the server still lists a tool, as far as is known.
    pub(crate) fn lists(&self, origin: &str) -> bool {
        self.latest().origins.contains(origin)
    }

    fn latest(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Task state that lists the tools of a server again after possible changes.
struct Refreshing {
    settings: Arc<Settings>,
    link: Arc<ServerLink>,
    now: Arc<Mutex<Now>>,
}

impl Refreshing {
    async fn follow(&self, changed: &Notify) {
        loop {
            changed.notified().await;
            self.list().await;
            // A server that reports changes all the time is asked only at intervals.
            self.settings.clock.sleep(QUIET).await;
        }
    }

    async fn list(&self) {
        let connection = self.link.current();
        if !connection.is_up() {
            return;
        }
        let made = match ToolList::read(&connection, &self.settings).await {
            Ok(listed) => listed.make(&connection, &self.settings).map(|made| (listed, made)),
            Err(error) => Err(error),
        };
        match made {
            Ok((listed, made)) => {
                let now = Now { listing: Arc::new(made.listing), origins: listed.origins() };
                *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
            }
            Err(error) => tracing::warn!(%error, "what was listed before is taken to stand"),
        }
    }
}
