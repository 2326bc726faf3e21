//! The methods of a log, which call its ports.

use std::collections::BTreeSet;
use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::{ApprovalId, RunId, SessionId};

#[expect(unused_imports, reason = "the docs link to them")]
use super::{Erasures, Inbox, Log, LostTails, Runs, Subscriptions, Transcripts};
use super::{EventFeed, EventLog, Seals};
use crate::attempts::Counter;
use crate::{
    AttemptFilter, Batch, Claim, Cursor, Decision, EventFilter, EventWatch, EventWatches,
    FailedAttempts, FeedPage, InboxMessage, InboxRequest, InboxWatch, InboxWatches, Lease,
    LogError, LogKey, LostRun, OpenApproval, Record, RunFilter, RunSeals, RunSummary, Subscription,
    TranscriptPart,
};

/// Returns a port, or the error of a log without it.
fn required<P>(port: Option<P>, cannot: &'static str) -> Result<P, LogError> {
    port.ok_or_else(|| LogError::Failed(cannot.into()))
}

const NO_RUNS: &str = "this log lists no runs";
const NO_INBOX: &str = "this log takes no requests to runs";
const NO_FEED: &str = "this log cannot be followed";
const NO_SUBSCRIPTIONS: &str = "this log keeps no subscriptions";

/// The methods of the ports. Each states what it does for a log without its port.
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
