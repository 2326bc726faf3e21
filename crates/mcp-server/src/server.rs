//! A server of operators.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{MemoryLog, StartKeys};
use backstop_orchestrator::LocalOrchestrator;
use backstop_redact::Redactor;
use rmcp::RoleServer;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::ServeError;
use crate::handler::McpServerHandler;
use crate::http_door::{self, Entrance, MAX_CONNECTIONS};
use crate::lines::LineTransport;
use crate::offer::Offer;
use crate::origin;
use crate::runs::LocalRuns;

/// Default time limit of a call, after which it is answered with the id of its run: clients give up after 60 seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(50);

/// Time limit of pending answers after the connection has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Server that offers operators of an orchestrator as tools to MCP clients.
pub struct Server {
    orchestrator: LocalOrchestrator,
    offers: Vec<Offer>,
    answer_within: Duration,
    max_connections: usize,
    origins: Vec<String>,
    keys: Arc<dyn StartKeys>,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

impl Server {
    /// Returns a server without operators.
    #[must_use]
    pub fn new(orchestrator: LocalOrchestrator) -> Self {
        Self {
            orchestrator,
            offers: Vec::new(),
            answer_within: ANSWER_WITHIN,
            max_connections: MAX_CONNECTIONS,
            origins: Vec::new(),
            keys: Arc::new(MemoryLog::new()),
            redactor: Redactor::new(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Offers an operator. It is looked up in the orchestrator at each call.
    #[must_use]
    pub fn offer(mut self, offer: Offer) -> Self {
        self.offers.push(offer);
        self
    }

    /// Sets the time after which a call is answered with the id of its run if the run has not ended; 50 seconds by
    /// default.
    #[must_use]
    pub const fn answer_within(mut self, time: Duration) -> Self {
        self.answer_within = time;
        self
    }

    /// Limits the number of concurrent connections over HTTP, 256 by default and at least one; further ones wait until
    /// one is closed. A connection without a request for 30 seconds is closed.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Allows pages of these origins, such as `https://app.example`, to reach the server over HTTP. Pages of this
    /// machine are allowed by default if the listener is on a loopback address, no others are. A text that is not
    /// an origin allows nothing.
    #[must_use]
    pub fn allow_origins(mut self, origins: impl IntoIterator<Item = String>) -> Self {
        self.origins.extend(origins);
        self
    }

    /// Returns whether a text is an origin of pages: `http` or `https`, a host, and no path.
    #[must_use]
    pub fn check_origin(origin: &str) -> bool {
        origin::with_port(origin).is_some()
    }

    /// Sets the store for the keys of calls (`_meta` `backstop/idempotency-key`), such as the log of the runs, so that
    /// a call repeated after a restart is answered with the first call's run. Keys are in memory by default, at most
    /// 100,000 of them. A key is kept as long as its run, and at least a day.
    #[must_use]
    pub fn start_keys(mut self, keys: Arc<dyn StartKeys>) -> Self {
        self.keys = keys;
        self
    }

    /// Sets the redactor that removes secrets from answers to clients.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks before anything is started whether [`Server::serve_http`] would serve at this address.
    ///
    /// # Errors
    ///
    /// [`ServeError::NoToken`].
    pub const fn check_address(address: SocketAddr, has_token: bool) -> Result<(), ServeError> {
        http_door::check_reach(address, has_token)
    }

    /// Serves one client on a pair of streams, such as standard input and output, until it closes its end or `stop` is
    /// cancelled. Answers that the client has not read five seconds later are dropped.
    ///
    /// # Errors
    ///
    /// [`ServeError::Handshake`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection and stops the runs that it started; those that keep a record
    /// can be resumed.
    pub async fn serve_streams(
        self,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let (ended, clock) = (stop.child_token(), Arc::clone(&self.clock));
        let transport = LineTransport::new(read, write, ended.clone());
        let serving = self.serve_transport(transport, stop);
        let given_up = async {
            ended.cancelled().await;
            clock.sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            served = serving => served,
            // A client that reads nothing does not delay the end.
            () = given_up => Ok(()),
        }
    }

    async fn serve_transport(
        self,
        transport: impl Transport<RoleServer, Error = io::Error> + 'static,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let served =
            rmcp::service::serve_server_with_ct(self.handler(), transport, stop.clone()).await;
        match served {
            Ok(served) => {
                let _ = served.waiting().await;
                Ok(())
            }
            Err(_) if stop.is_cancelled() => Ok(()),
            // The client disconnected before the handshake.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(ServeError::Handshake(error.into())),
        }
    }

    /// Serves clients over HTTP (streamable HTTP, at `/mcp`) until `stop` is cancelled. With a token, each request
    /// needs it (`Authorization: Bearer …`).
    ///
    /// # Errors
    ///
    /// [`ServeError::NoToken`] if the listener can be reached from other machines and there is no token,
    /// [`ServeError::Socket`].
    ///
    /// # Cancel safety
    ///
    /// As [`Server::serve_streams`].
    pub async fn serve_http(
        self,
        listener: TcpListener,
        token: Option<String>,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let (max_connections, clock) = (self.max_connections, Arc::clone(&self.clock));
        let origins = self.origins.clone();
        let entrance = Entrance { listener, token, max_connections, origins, clock };
        http_door::serve(self.handler(), entrance, stop).await
    }

    fn handler(self) -> McpServerHandler {
        McpServerHandler::new(
            self.offers,
            LocalRuns::new(self.orchestrator),
            self.keys,
            self.answer_within,
            self.redactor,
            self.clock,
        )
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("offers", &self.offers).finish_non_exhaustive()
    }
}
