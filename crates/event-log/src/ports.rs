//! The store of runs' events, and its ports.

mod erasures;
mod event_feed;
mod inbox;
mod log;
mod lost_tails;
mod methods;
mod runs;
mod seals;
mod subscriptions;
mod transcripts;

pub use self::erasures::Erasures;
pub use self::event_feed::EventFeed;
pub use self::inbox::Inbox;
pub use self::log::Log;
pub use self::lost_tails::LostTails;
pub use self::runs::Runs;
pub use self::seals::Seals;
pub use self::subscriptions::Subscriptions;
pub use self::transcripts::Transcripts;

/// A store of runs' events, as a set of ports.
///
/// Each port is a trait with one role. A log has the port [`Log`], and any others that it implements. Callers use the
/// methods of `dyn EventLog`, which call the ports.
///
/// # Implementing a log
///
/// Implement [`Log`], then the further ports that the log can serve, and name them in [`EventLog::ports`]. The promises
/// of a port are those of its methods, and suites of `backstop_testkit::contract` check them: `event_log`, `approvals`,
/// `feed`, `subscriptions` and `transcripts` on one handle, `reopened_event_log` on several, `erasable_event_log` for a
/// log that can erase. `MemoryLog` is the shortest example.
///
/// All that the methods return outlasts the process if the log is durable: also the ids of pending requests, expired
/// approvals, settlements, epochs, subscriptions, and cursors of the feed that others have kept.
///
/// A log that wraps another replaces the ports that it changes:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use async_trait::async_trait;
/// use backstop_event_log::{EventLog, InboxMessage, Inbox, InboxRequest, InboxWatch, LogError, OpenApproval, Ports};
/// use layer0::Timestamp;
/// use layer0::id::RunId;
///
/// /// Counts the requests to runs.
/// struct Counted {
///     log: Arc<dyn EventLog>,
///     requests: AtomicU64,
/// }
///
/// impl EventLog for Counted {
///     fn ports(&self) -> Ports<'_> {
///         self.log.ports().inbox(self)
///     }
/// }
///
/// #[async_trait]
/// impl Inbox for Counted {
///     async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
///         self.requests.fetch_add(1, Ordering::Relaxed);
///         self.log.send(request, by, at).await
///     }
///     async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
///         self.log.inbox(run).await
///     }
///     fn watch_inbox(&self, run: &RunId) -> InboxWatch {
///         self.log.watch_inbox(run)
///     }
///     async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
///         self.log.open_approvals().await
///     }
/// }
/// ```
pub trait EventLog: Send + Sync {
    /// Returns the ports of the log.
    fn ports(&self) -> Ports<'_>;
}

/// The ports of a log.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    log: &'a dyn Log,
    runs: Option<&'a dyn Runs>,
    inbox: Option<&'a dyn Inbox>,
    feed: Option<&'a dyn EventFeed>,
    subscriptions: Option<&'a dyn Subscriptions>,
    transcripts: Option<&'a dyn Transcripts>,
    erasures: Option<&'a dyn Erasures>,
    seals: Option<&'a dyn Seals>,
    lost_tails: Option<&'a dyn LostTails>,
}

/// Methods that set a port.
macro_rules! setters {
    ($($(#[$doc:meta])+ $port:ident: $role:ident;)+) => {
        $($(#[$doc])+
        #[must_use]
        pub fn $port(self, $port: &'a dyn $role) -> Self {
            Self { $port: Some($port), ..self }
        })+
    };
}

impl<'a> Ports<'a> {
    /// Returns the ports of a log that only stores records.
    ///
    /// It lists no runs, so that it has no sessions, and no request reaches its runs: no signal and no decision.
    #[must_use]
    pub fn new(log: &'a dyn Log) -> Self {
        Self {
            log,
            runs: None,
            inbox: None,
            feed: None,
            subscriptions: None,
            transcripts: None,
            erasures: None,
            seals: None,
            lost_tails: None,
        }
    }

    /// Replaces the port that stores records.
    #[must_use]
    pub fn log(self, log: &'a dyn Log) -> Self {
        Self { log, ..self }
    }

    setters! {
        /// Sets the port that lists runs.
        runs: Runs;
        /// Sets the port that keeps requests to runs.
        inbox: Inbox;
        /// Sets the port that returns the events of all runs.
        feed: EventFeed;
        /// Sets the port that keeps the state of subscriptions.
        subscriptions: Subscriptions;
        /// Sets the port that keeps parts of transcripts. It needs [`Erasures`].
        transcripts: Transcripts;
        /// Sets the port that erases payloads.
        erasures: Erasures;
        /// Sets the port that seals runs with a key.
        seals: Seals;
        /// Sets the port that notices lost events.
        lost_tails: LostTails;
    }
}
