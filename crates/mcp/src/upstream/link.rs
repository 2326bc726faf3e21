//! Restart of a lost server.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_retry::{BreakerConfig, Jitter, RetryConfig};
use layer0::failure::{Chain, Failure, Retry, Seconds};
use tokio::sync::{Mutex, Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connection::Connection;
use crate::server::Settings;

/// The connection to a server, with the number of losses since the last successful call.
///
/// A breaker of `backstop_retry` counts calls; this one counts connections, so that calls that failed together count
/// once. Its limits are the same.
pub(super) struct ServerLink {
    shared: Arc<SharedLink>,
    /// Held while the connection is probed.
    probing: Mutex<()>,
    /// Ends a running start.
    _over: DropGuard,
}

/// State of a start, which continues when the calls that wait for it are dropped.
struct SharedLink {
    settings: Arc<Settings>,
    state: StdMutex<LinkState>,
    breaker: BreakerConfig,
    backoff: RetryConfig,
    changed: Arc<Notify>,
    over: CancellationToken,
}

/// A running start. It is removed with its task, even if the task panics, or if its runtime ends before the task is
/// polled; the next call begins another one.
struct RunningStart {
    shared: Arc<SharedLink>,
    /// Sends the result to the calls that wait for the start.
    ended: watch::Sender<Option<Result<Arc<Connection>, Down>>>,
}

impl Drop for RunningStart {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.start = None;
        if std::thread::panicking() {
            state.failures = state.failures.saturating_add(1);
            "panicked while it was started".clone_into(&mut state.last);
        }
    }
}

/// Receiver of a start's result; `None` while it is running.
type ConnectionReceiver = watch::Receiver<Option<Result<Arc<Connection>, Down>>>;

struct LinkState {
    connection: Arc<Connection>,
    /// Whether the end of the connection was counted.
    is_counted: bool,
    /// Number of connections that were lost or not made since the last successful call.
    failures: u32,
    /// Time of the last failure, in monotonic time.
    failed_at: Duration,
    last: String,
    /// The running start, shared by calls that lost a connection together.
    start: Option<ConnectionReceiver>,
    /// Whether the connection is closed for good.
    is_closed: bool,
}

/// The reason that there is no connection.
#[derive(Debug, Clone)]
pub(crate) struct Down {
    /// Text for the failure of a call.
    pub(crate) why: String,
    pub(crate) retry: Retry,
    /// HTTP status with which the server refused access.
    pub(crate) status: Option<u16>,
}

impl ServerLink {
    pub(super) fn new(
        settings: Arc<Settings>,
        connection: Connection,
        changed: Arc<Notify>,
    ) -> Self {
        let state = LinkState {
            connection: Arc::new(connection),
            is_counted: false,
            failures: 0,
            failed_at: Duration::ZERO,
            last: String::new(),
            start: None,
            is_closed: false,
        };
        let over = CancellationToken::new();
        let shared = SharedLink {
            settings,
            state: StdMutex::new(state),
            breaker: BreakerConfig::new(),
            backoff: RetryConfig::new(),
            changed,
            over: over.clone(),
        };
        Self { shared: Arc::new(shared), probing: Mutex::new(()), _over: over.drop_guard() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.shared.state().connection.is_up()
    }

    pub(super) fn current(&self) -> Arc<Connection> {
        Arc::clone(&self.shared.state().connection)
    }

    /// Counts the server as up.
    pub(super) fn has_worked(&self) {
        self.shared.state().failures = 0;
    }

    /// Closes the connection and a running start for good, and waits for the end of their programs.
    pub(super) async fn close(&self) {
        self.shared.state().is_closed = true;
        self.shared.over.cancel();
        self.current().end();
        let programs = &self.shared.settings.programs;
        programs.close();
        programs.wait().await;
    }

    /// Returns the connection, or makes a new one if it was lost.
    ///
    /// Dropping the future leaves a start running, which the next call finds.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Down> {
        let probing = self.probing.lock().await;
        let (started, connection) = {
            let state = self.shared.state();
            (state.start.clone(), Arc::clone(&state.connection))
        };
        let mut started = match started {
            Some(started) => started,
            None => {
                if connection.is_up() {
                    connection.probe(&self.shared.settings).await;
                }
                if connection.is_up() {
                    return Ok(connection);
                }
                self.shared.start(&connection)?
            }
        };
        drop(probing);
        let ended = started.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .unwrap_or_else(|| Err(self.shared.explain_no_connection()))
    }
}

impl SharedLink {
    /// Begins a start.
    fn start(self: &Arc<Self>, lost: &Connection) -> Result<ConnectionReceiver, Down> {
        if self.state().is_closed {
            return Err(self.closed_error());
        }
        let now = self.settings.clock.monotonic();
        let wait = self.record_loss(lost, now);
        if let Some(open_for) = self.open_for(now) {
            let after = Seconds(open_for);
            let last = self.state().last.clone();
            let name = &self.settings.name;
            let why = format!(
                "MCP server `{name}` is left alone for {after}, as it fails again and again; \
                 the last time it {last}"
            );
            return Err(Down { why, retry: Retry::After(open_for), status: None });
        }
        let (ended, started) = watch::channel(None);
        self.state().start = Some(started.clone());
        let start = RunningStart { shared: Arc::clone(self), ended };
        tokio::spawn(async move {
            let made = tokio::select! {
                biased;
                () = start.shared.over.cancelled() => return,
                made = start.shared.make(wait) => made,
            };
            let ended = start.ended.clone();
            drop(start);
            ended.send_replace(Some(made));
        });
        Ok(started)
    }

    /// Connects, after a wait.
    async fn make(&self, wait: Duration) -> Result<Arc<Connection>, Down> {
        self.settings.clock.sleep(wait).await;
        match Connection::open(&self.settings, Arc::clone(&self.changed)).await {
            Ok(made) => {
                let made = Arc::new(made);
                let mut state = self.state();
                if state.is_closed {
                    made.end();
                    return Err(self.closed_error());
                }
                (state.connection, state.is_counted) = (Arc::clone(&made), false);
                drop(state);
                // The server may list other tools than before.
                self.changed.notify_one();
                Ok(made)
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                // The message already begins with the name.
                let server = format!("MCP server `{}` ", self.settings.name);
                let short = why.strip_prefix(&server).unwrap_or(&why);
                // A server that refuses access is reachable, and needs no rest.
                let refusal = error.refusal();
                if refusal.is_some() {
                    return Err(Down { why, retry: Retry::Never, status: refusal });
                }
                self.count(self.settings.clock.monotonic(), short);
                Err(Down { why, retry: error.retry(), status: None })
            }
        }
    }

    /// Returns why a start ended without a connection: the client was closed, or the task of the start was dropped.
    fn explain_no_connection(&self) -> Down {
        if self.state().is_closed || self.over.is_cancelled() {
            return self.closed_error();
        }
        let why = format!("the start of MCP server `{}` was cut short", self.settings.name);
        Down { why, retry: Retry::Backoff, status: None }
    }

    fn closed_error(&self) -> Down {
        let why = format!("MCP server `{}` was closed", self.settings.name);
        Down { why, retry: Retry::Never, status: None }
    }

    /// Counts the end of a connection, once, and returns the wait before the next one: none after the first failure,
    /// then a random time up to a bound that doubles.
    fn record_loss(&self, connection: &Connection, now: Duration) -> Duration {
        if !std::mem::replace(&mut self.state().is_counted, true) {
            self.count(now, &connection.close_reason());
        }
        let state = self.state();
        let Some(doubled) = state.failures.checked_sub(2) else { return Duration::ZERO };
        let bound = self.backoff.base_ms.saturating_mul(1 << doubled.min(16));
        let wait = Jitter::Random.up_to(bound.min(self.backoff.cap_ms));
        Duration::from_millis(wait).saturating_sub(now.saturating_sub(state.failed_at))
    }

    fn count(&self, now: Duration, why: &str) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.failed_at = now;
        why.clone_into(&mut state.last);
    }

    /// Returns the remaining time without attempts to connect, if the breaker is open.
    fn open_for(&self, now: Duration) -> Option<Duration> {
        let state = self.state();
        if state.failures < self.breaker.failures {
            return None;
        }
        let until = state.failed_at.saturating_add(self.breaker.open_for);
        Some(until.saturating_sub(now)).filter(|wait| !wait.is_zero())
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
