//! The store of runs' events, and its ports.

mod erasures;
mod event_feed;
mod inbox;
mod log;
mod lost_tails;
mod runs;
mod seals;
mod subscriptions;
mod transcripts;

use std::collections::BTreeSet;
use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::{ApprovalId, RunId, SessionId};

pub use self::erasures::Erasures;
pub use self::event_feed::EventFeed;
pub use self::inbox::Inbox;
pub use self::log::Log;
pub use self::lost_tails::LostTails;
pub use self::runs::Runs;
pub use self::seals::Seals;
pub use self::subscriptions::Subscriptions;
pub use self::transcripts::Transcripts;
use crate::attempts::Counter;
use crate::{
    AttemptFilter, Batch, Claim, Cursor, Decision, EventFilter, EventWatch, EventWatches,
    FailedAttempts, FeedPage, InboxMessage, InboxRequest, InboxWatch, InboxWatches, Lease,
    LogError, LogKey, LostRun, OpenApproval, Record, RunFilter, RunSeals, RunSummary, Subscription,
    TranscriptPart,
};

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

/// Returns a port, or the error of a log without it.
fn required<P>(port: Option<P>, cannot: &'static str) -> Result<P, LogError> {
    port.ok_or_else(|| LogError::Failed(cannot.into()))
}

const NO_RUNS: &str = "this log lists no runs";
const NO_INBOX: &str = "this log takes no requests to runs";
const NO_FEED: &str = "this log cannot be followed";
const NO_SUBSCRIPTIONS: &str = "this log keeps no subscriptions";

/// The methods of the ports. Where a log lacks the port, they do what is said here.
///
/// Errors and cancel safety are those of the ports' methods.
impl dyn EventLog + '_ {
    /// As [`Seals::key`]; `None` without the port.
    #[must_use]
    pub fn key(&self) -> Option<&LogKey> {
        self.ports().seals.and_then(Seals::key)
    }

    /// As [`Seals::seals_rows`]; `false` without the port.
    #[must_use]
    pub fn seals_rows(&self) -> bool {
        self.ports().seals.is_some_and(Seals::seals_rows)
    }

    /// As [`Seals::seals`]; `None` without the port.
    ///
    /// # Errors
    ///
    /// As [`Seals::seals`].
    pub async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        match self.ports().seals {
            Some(seals) => seals.seals(run).await,
            None => Ok(None),
        }
    }

    /// As [`Log::lease`].
    #[must_use]
    pub fn lease(&self) -> Option<Arc<dyn Lease>> {
        self.ports().log.lease()
    }

    /// As [`Log::claim`].
    ///
    /// # Errors
    ///
    /// As [`Log::claim`].
    pub async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.ports().log.claim(run).await
    }

    /// As [`LostTails::claim_with_loss`]; as [`Log::claim`] without the port.
    ///
    /// # Errors
    ///
    /// As [`LostTails::claim_with_loss`].
    pub async fn claim_with_loss(
        &self,
        run: &RunId,
    ) -> Result<(Claim, Option<LostTail>), LogError> {
        match self.ports().lost_tails {
            Some(tails) => tails.claim_with_loss(run).await,
            None => Ok((self.claim(run).await?, None)),
        }
    }

    /// As [`LostTails::lost_tails`]; none without the port.
    ///
    /// # Errors
    ///
    /// As [`LostTails::lost_tails`].
    pub async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        match self.ports().lost_tails {
            Some(tails) => tails.lost_tails().await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`Log::claim_new`].
    pub fn claim_new(&self, run: &RunId) -> Claim {
        self.ports().log.claim_new(run)
    }

    /// As [`Log::append_now`].
    pub fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        self.ports().log.append_now(batch)
    }

    /// As [`Log::append`].
    ///
    /// # Errors
    ///
    /// As [`Log::append`].
    pub async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.ports().log.append(batch).await
    }

    /// As [`Log::summary`].
    ///
    /// # Errors
    ///
    /// As [`Log::summary`].
    pub async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.ports().log.summary(run).await
    }

    /// As [`Log::kept_summary`].
    ///
    /// # Errors
    ///
    /// As [`Log::kept_summary`].
    pub async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.ports().log.kept_summary(run).await
    }

    /// As [`Log::records`].
    ///
    /// # Errors
    ///
    /// As [`Log::records`].
    pub async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.ports().log.records(run, from_seq).await
    }

    /// As [`EventFeed::read_feed`].
    ///
    /// # Errors
    ///
    /// As [`EventFeed::read_feed`]; [`LogError::Failed`] without the port.
    pub async fn read_feed(
        &self,
        filter: &EventFilter,
        cursor: &Cursor,
    ) -> Result<FeedPage, LogError> {
        required(self.ports().feed, NO_FEED)?.read_feed(filter, cursor).await
    }

    /// As [`EventFeed::watch_events`]; ready once without the port.
    #[must_use]
    pub fn watch_events(&self) -> EventWatch {
        let feed = self.ports().feed;
        feed.map_or_else(|| EventWatches::default().watch(), EventFeed::watch_events)
    }

    /// As [`Subscriptions::subscription`].
    ///
    /// # Errors
    ///
    /// As [`Subscriptions::subscription`]; [`LogError::Failed`] without the port.
    pub async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        required(self.ports().subscriptions, NO_SUBSCRIPTIONS)?.subscription(name).await
    }

    /// As [`Subscriptions::subscriptions`].
    ///
    /// # Errors
    ///
    /// As [`Subscriptions::subscriptions`]; [`LogError::Failed`] without the port.
    pub async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        required(self.ports().subscriptions, NO_SUBSCRIPTIONS)?.subscriptions().await
    }

    /// As [`Runs::runs`].
    ///
    /// # Errors
    ///
    /// As [`Runs::runs`]; [`LogError::Failed`] without the port.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        required(self.ports().runs, NO_RUNS)?.runs(filter).await
    }

    /// As [`Runs::last_root`].
    ///
    /// # Errors
    ///
    /// As [`Runs::last_root`]; [`LogError::Failed`] without the port.
    pub async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        required(self.ports().runs, NO_RUNS)?.last_root(session).await
    }

    /// Counts the failed model attempts by day, provider and code, in this order. Reads every record of the log or of
    /// the filter's runs, unless the log has a [faster way](Runs::failed_attempts).
    ///
    /// # Errors
    ///
    /// As [`Runs::failed_attempts`]; [`LogError::Failed`] without the port.
    pub async fn failed_attempts(
        &self,
        filter: AttemptFilter,
    ) -> Result<Vec<FailedAttempts>, LogError> {
        if let Some(counts) = required(self.ports().runs, NO_RUNS)?.failed_attempts(&filter).await?
        {
            return Ok(counts);
        }
        let runs: BTreeSet<RunId> = match &filter.runs {
            Some(runs) => runs.iter().cloned().collect(),
            None => self.runs(RunFilter::new()).await?.into_iter().map(|run| run.run).collect(),
        };
        let mut counter = Counter::default();
        for run in runs {
            for record in self.records(&run, 1).await? {
                counter.take(&record, &filter);
            }
        }
        Ok(counter.counts())
    }

    /// As [`Inbox::open_approvals`]; none without the port.
    ///
    /// # Errors
    ///
    /// As [`Inbox::open_approvals`].
    pub async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        match self.ports().inbox {
            Some(inbox) => inbox.open_approvals().await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`Inbox::send`].
    ///
    /// # Errors
    ///
    /// As [`Inbox::send`]; [`LogError::Failed`] without the port.
    pub async fn send(
        &self,
        request: InboxRequest,
        by: &str,
        at: Timestamp,
    ) -> Result<bool, LogError> {
        required(self.ports().inbox, NO_INBOX)?.send(request, by, at).await
    }

    /// As [`Inbox::decide`].
    ///
    /// # Errors
    ///
    /// As [`Inbox::decide`]; [`LogError::Failed`] without the port.
    pub async fn decide(
        &self,
        id: &ApprovalId,
        decision: Decision,
        at: Timestamp,
    ) -> Result<bool, LogError> {
        required(self.ports().inbox, NO_INBOX)?.decide(id, decision, at).await
    }

    /// As [`Inbox::inbox`]; empty without the port.
    ///
    /// # Errors
    ///
    /// As [`Inbox::inbox`].
    pub async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        match self.ports().inbox {
            Some(inbox) => inbox.inbox(run).await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`Inbox::watch_inbox`]; ready once without the port.
    #[must_use]
    pub fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        match self.ports().inbox {
            Some(inbox) => inbox.watch_inbox(run),
            None => InboxWatches::default().watch(run),
        }
    }

    /// As [`Erasures::erase`].
    ///
    /// # Errors
    ///
    /// As [`Erasures::erase`]; [`LogError::NotErasable`] without the port.
    pub async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        match self.ports().erasures {
            Some(erasures) => erasures.erase(run, seq).await,
            None => Err(LogError::not_erasable(seq, "this log cannot erase")),
        }
    }

    /// As [`Erasures::erasures`]; `None` without the port.
    ///
    /// # Errors
    ///
    /// As [`Erasures::erasures`].
    pub async fn erasures(&self) -> Result<Option<u64>, LogError> {
        match self.ports().erasures {
            Some(erasures) => erasures.erasures().await,
            None => Ok(None),
        }
    }

    /// As [`Transcripts::transcript`]; none without the port.
    ///
    /// # Errors
    ///
    /// As [`Transcripts::transcript`].
    pub async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        match self.ports().transcripts {
            Some(transcripts) => transcripts.transcript(until).await,
            None => Ok(Vec::new()),
        }
    }

    /// As [`Transcripts::keep_transcript`]; does nothing without the port.
    ///
    /// # Errors
    ///
    /// As [`Transcripts::keep_transcript`].
    pub async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        match self.ports().transcripts {
            Some(transcripts) => transcripts.keep_transcript(parts, erasures).await,
            None => Ok(()),
        }
    }
}
