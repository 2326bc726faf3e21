//! A server that is kept: its connection, and what it lists.

mod link;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use backstop_tool::ToolListing;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::link::{Down, Link};
use crate::connection::Connection;
use crate::listing::Listed;
use crate::server::Settings;

/// How long changes are gathered before the tools are listed again.
const QUIET: Duration = Duration::from_secs(1);

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

impl Server {
    /// Keeps a connection, and begins to follow what the server lists.
    pub(crate) fn new(
        settings: Settings,
        connection: Connection,
        changed: Arc<Notify>,
        listing: &ToolListing,
        listed: &Listed,
    ) -> Arc<Self> {
        let now = Now { listing: Arc::new(listing.clone()), origins: listed.origins() };
        let refreshing = CancellationToken::new();
        let server = Arc::new(Self {
            link: Link::new(connection, Arc::clone(&changed)),
            now: Mutex::new(now),
            _refreshing: refreshing.clone().drop_guard(),
            settings,
        });
        refresh(Arc::downgrade(&server), changed, refreshing);
        server
    }

    /// Is it there, as far as is known?
    pub(crate) fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// Returns what it lists, as far as is known.
    pub(crate) fn listing(&self) -> Arc<ToolListing> {
        Arc::clone(&self.now().listing)
    }

    /// Returns a connection that can be used, as far as is known.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, Down> {
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
        let connection = self.link.current();
        if !connection.is_up() {
            return;
        }
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
