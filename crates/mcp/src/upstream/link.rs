//! Starting a server again that died.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_retry::{BreakerConfig, Jitter, RetryConfig};
use layer0::failure::{Chain, Failure, Retry, Seconds};
use tokio::sync::{Mutex, Notify};

use crate::connection::Connection;
use crate::server::Settings;

/// The way to a server: the connection, and how often it was lost since a call worked.
///
/// A breaker of `backstop_retry` counts calls; here what counts are connections, so that calls that failed
/// together count once. Its bounds are the same.
pub(super) struct Link {
    /// Held while a connection is made: those who lost one together wait for one.
    making: Mutex<()>,
    state: StdMutex<LinkState>,
    breaker: BreakerConfig,
    backoff: RetryConfig,
    changed: Arc<Notify>,
}

struct LinkState {
    connection: Arc<Connection>,
    /// Was its end counted?
    is_counted: bool,
    /// How many connections were lost, or not made, since a call worked.
    failures: u32,
    /// When the last of them failed, in monotonic time.
    failed_at: Duration,
    last: String,
    /// Is it never to be connected to again?
    is_closed: bool,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct Down {
    /// What to tell of it.
    pub(crate) why: String,
    pub(crate) retry: Retry,
}

impl Link {
    pub(super) fn new(connection: Connection, changed: Arc<Notify>) -> Self {
        let state = LinkState {
            connection: Arc::new(connection),
            is_counted: false,
            failures: 0,
            failed_at: Duration::ZERO,
            last: String::new(),
            is_closed: false,
        };
        Self {
            making: Mutex::new(()),
            state: StdMutex::new(state),
            breaker: BreakerConfig::new(),
            backoff: RetryConfig::new(),
            changed,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state().connection.is_up()
    }

    pub(super) fn current(&self) -> Arc<Connection> {
        Arc::clone(&self.state().connection)
    }

    /// Counts the server as up.
    pub(super) fn has_worked(&self) {
        self.state().failures = 0;
    }

    /// Ends the connection, for good, and waits for the end of a program.
    pub(super) async fn close(&self) {
        self.state().is_closed = true;
        // One that is being made is ended too.
        let _making = self.making.lock().await;
        self.current().end().await;
    }

    /// Returns a connection, which is made where there is none.
    pub(super) async fn connection(&self, settings: &Settings) -> Result<Arc<Connection>, Down> {
        let _making = self.making.lock().await;
        if self.state().is_closed {
            let why = format!("MCP server `{}` was closed", settings.name);
            return Err(Down { why, retry: Retry::Never });
        }
        let connection = self.current();
        if connection.is_up() {
            connection.probe(settings).await;
        }
        if connection.is_up() {
            return Ok(connection);
        }
        let now = settings.clock.monotonic();
        let wait = self.lost(&connection, now);
        if let Some(open_for) = self.open_for(now) {
            let after = Seconds(open_for);
            let last = self.state().last.clone();
            let name = &settings.name;
            let why = format!(
                "MCP server `{name}` is left alone for {after}, as it fails again and again; \
                 the last time it {last}"
            );
            return Err(Down { why, retry: Retry::After(open_for) });
        }
        settings.clock.sleep(wait).await;
        match Connection::open(settings, Arc::clone(&self.changed)).await {
            Ok(made) => {
                let made = Arc::new(made);
                let mut state = self.state();
                (state.connection, state.is_counted) = (Arc::clone(&made), false);
                drop(state);
                // It may list other tools than the one before.
                self.changed.notify_one();
                Ok(made)
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                // The name stands before it already.
                let server = format!("MCP server `{}` ", settings.name);
                let short = why.strip_prefix(&server).unwrap_or(&why);
                self.count(settings.clock.monotonic(), short);
                Err(Down { why, retry: error.retry() })
            }
        }
    }

    /// Counts the end of a connection, once, and returns how long to wait before the next is made: nothing after
    /// the first failure, then up to a bound that doubles.
    fn lost(&self, connection: &Connection, now: Duration) -> Duration {
        if !std::mem::replace(&mut self.state().is_counted, true) {
            self.count(now, &connection.ended());
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

    /// Returns how long the server is still left alone, if it is.
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
