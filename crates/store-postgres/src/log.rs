use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{
    AttemptFilter, Batch, Claim, Cursor, Erasures, EventFeed, EventFilter, EventLog, EventWatch,
    FailedAttempts, FeedPage, Inbox, InboxMessage, InboxRequest, InboxWatch, Incarnation,
    KeyBinding, KnownEnd, Lease, Log, LogError, LogKey, LostRun, LostTails, OpenApproval, Ports,
    Record, RunFilter, RunSeals, RunState, RunSummary, Runs, Seals, StartKey, StartKeys,
    Subscription, Subscriptions, TranscriptPart, Transcripts, verify,
};
use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::{RunId, SessionId};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::claim_lease::ClaimLease;
use crate::claims::{Claiming, Take};
use crate::database::Database;
use crate::fault::Fault;
use crate::lost_tails::{BegunComparison, TailComparison};
use crate::rows::{
    agreeing, decode_record, decode_sound_summary, decode_state, decode_summary, disagrees,
    salvage_summary, to_i64, unreadable,
};
use crate::sent::SubmittedRequest;
use crate::start_keys::Bind;
use crate::text::encode_text;
use crate::transact::transact;
use crate::transcripts::KeepTranscript;
use crate::{
    approvals, background, erasure, feed, inbox, limits, lost_tails, runs, seals, subscriptions,
    transcripts,
};

/// The event log in a [`Database`].
#[derive(Debug, Clone)]
pub struct PostgresLog(Database);

impl PostgresLog {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }

    async fn row(&self, run: &RunId) -> Result<Option<PgRow>, LogError> {
        let row = sqlx::query("SELECT * FROM backstop.runs WHERE run = $1");
        let row = row
            .bind(&*encode_text(run.as_str()))
            .fetch_optional(&mut *self.0.pool().lend().await?)
            .await;
        Ok(row.map_err(Fault::from)?)
    }

    /// Returns the summary from the record of a run whose row cannot be read.
    async fn recorded_summary(&self, row: &PgRow) -> Result<RunSummary, LogError> {
        let left = salvage_summary(row);
        let run = left.run.clone();
        let mut records = self.records(&run, 1).await?;
        records.retain(|record| record.seq <= left.last_seq);
        let unreadable = |error: LogError| LogError::unreadable_run(run.clone(), error);
        verify(&records, &left, self.key()).map_err(unreadable)?;
        let mut summary = RunSummary::new(run.clone());
        let mut is_erased = false;
        for record in &records {
            match record.decode(&run) {
                Err(LogError::Erased { .. }) => {
                    is_erased = true;
                    summary.apply_erased(record);
                }
                event => summary.apply(&event.map_err(unreadable)?),
            }
        }
        if is_erased {
            // The columns of the row replace the erased events.
            (summary.session, summary.started_at) = (left.session, left.started_at);
            summary.state = decode_state(row)?;
        }
        tracing::warn!(%run, "the row of a run cannot be read; what its record says counts");
        agreeing(row, summary)
    }

    /// Returns the last run of a session. An unreadable run does not block the session; the rest of an open one can be
    /// closed.
    async fn last_summary(&self, row: &PgRow) -> Result<RunSummary, LogError> {
        let error = match decode_summary(row) {
            Err(error @ LogError::UnreadableRun { .. }) => error,
            summary => return summary,
        };
        match self.recorded_summary(row).await {
            Err(error) if error.is_retryable() => Err(error),
            Err(_) => {
                let mut left = salvage_summary(row);
                match decode_state(row) {
                    Ok(RunState::Finished | RunState::Failed) => {}
                    Ok(_) => left.state = RunState::Running,
                    Err(_) => return Err(error),
                }
                Ok(left)
            }
            summary => summary,
        }
    }

    /// Requests a claim, even if dead owners have the run or a run of its tree.
    async fn ask(
        &self,
        run: &RunId,
        dead: &[Arc<str>],
        accepts_loss: bool,
    ) -> Result<(Claiming, ClaimLease), LogError> {
        let (owner, lease) = self.0.owner().get_asking(run).await?;
        let ends = self.0.known_ends();
        let take = Take { run, owner: &owner, dead, ends, accepts_loss };
        let claiming = transact(self.0.pool(), self.0.options().patience, &take).await?;
        Ok((claiming, ClaimLease::for_given(Arc::clone(self.0.owner()), run.clone(), lease)))
    }

    /// Claims a run, also one that has lost its tail if `accepts_loss`; returns the newest lost event.
    async fn claim_run(
        &self,
        run: &RunId,
        accepts_loss: bool,
    ) -> Result<(Claim, Option<LostTail>), LogError> {
        let writer = self.0.writer().ok_or_else(read_only)?;
        let release = writer.release(run.clone()).ok_or(LogError::Closed)?;
        let claimed = || LogError::Claimed(run.clone());
        let mut reserved = self.0.claims().reserve(run, 0, release).ok_or_else(claimed)?;
        let mut dead: Vec<Arc<str>> = Vec::new();
        loop {
            reserved.asking();
            let given = match self.ask(run, &dead, accepts_loss).await {
                Ok((Claiming::Given(epoch, lost), lease)) => {
                    let claim = reserved.claim(epoch).under(Arc::new(lease));
                    return Ok((if dead.is_empty() { claim } else { claim.takeover() }, lost));
                }
                other => other.map(|(claiming, _)| claiming),
            };
            reserved.mark_refused();
            match given? {
                Claiming::Held(owner) if !dead.contains(&owner) => {
                    if !self.0.liveness().is_dead(self.0.pool(), &owner).await? {
                        return Err(claimed());
                    }
                    dead.push(owner);
                }
                Claiming::NoRun => return Err(LogError::NotFound(run.clone())),
                Claiming::LostTail(tail) => return Err(LogError::lost_tail(run.clone(), tail.seq)),
                Claiming::Given(..) | Claiming::Held(_) => return Err(claimed()),
            }
        }
    }

    /// Returns the error of a refused append: the run may have lost its tail.
    async fn refusal(&self, run: &RunId, error: LogError) -> LogError {
        let is_refused = matches!(error, LogError::Conflict { .. } | LogError::Lost(_));
        let ends = self.0.known_ends();
        if !is_refused || ends.find(run).is_none() {
            return error;
        }
        let compare = TailComparison { run, ends, begins: false };
        match transact(self.0.pool(), self.0.options().patience, &compare).await {
            Ok(Some(tail)) => LogError::lost_tail(run.clone(), tail.seq),
            Ok(None) | Err(_) => error,
        }
    }

    /// Refuses to start a run that this process already knows: its record was lost.
    async fn check_begun(&self, batch: &Batch) -> Result<(), LogError> {
        let ends = self.0.known_ends();
        if !batch.begins() || ends.find(&batch.run).is_none() {
            return Ok(());
        }
        let compare = BegunComparison(TailComparison { run: &batch.run, ends, begins: true });
        match transact(self.0.pool(), self.0.options().patience, &compare).await? {
            Some(_) => Err(LogError::Lost(batch.run.clone())),
            None => Ok(()),
        }
    }
}

/// Draws the incarnation of a new run.
fn new_incarnation() -> Result<Incarnation, LogError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(Fault::from_other)?;
    Ok(Incarnation(random))
}

fn incarnation_in(row: &PgRow) -> Result<Option<Incarnation>, LogError> {
    let bytes: Option<Vec<u8>> = row.try_get("incarnation").map_err(Fault::from)?;
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Incarnation))
}

fn read_only() -> LogError {
    LogError::Failed("the database was opened for reading".into())
}

impl EventLog for PostgresLog {
    fn ports(&self) -> Ports<'_> {
        Ports::new(self)
            .lost_tails(self)
            .seals(self)
            .feed(self)
            .subscriptions(self)
            .runs(self)
            .inbox(self)
            .erasures(self)
            .transcripts(self)
    }
}

#[async_trait]
impl Log for PostgresLog {
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        Some(Arc::new(ClaimLease::without_run(Arc::clone(self.0.owner()))))
    }

    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        Ok(self.claim_run(run, false).await?.0)
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        let release = self.0.writer().and_then(|writer| writer.release(run.clone()));
        let epoch = self.0.claims().new_epoch();
        match release.and_then(|release| self.0.claims().reserve(run, epoch, release)) {
            Some(reserved) => {
                let lease = ClaimLease::for_new(Arc::clone(self.0.owner()), run.clone());
                reserved.claim(epoch).under(Arc::new(lease))
            }
            // Its first append is refused.
            None => Claim::new(epoch, ()),
        }
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let Some(writer) = self.0.writer() else { return Err(read_only()) };
        limits::batch(&batch)?;
        self.check_begun(&batch).await?;
        let at = batch.records.last().map(|record| record.at);
        let begins = batch.records.first().is_some_and(|first| first.seq == 1);
        let incarnation = begins.then(new_incarnation).transpose()?;
        let (run, end) = (batch.run.clone(), KnownEnd::new(&batch.summary));
        if let Err(error) = writer.append(batch, incarnation, self.key()).await {
            return Err(self.refusal(&run, error).await);
        }
        if begins {
            // An earlier run with this id was removed.
            self.0.known_ends().forget(&run);
        }
        self.0.known_ends().note(&run, end.in_incarnation(incarnation));
        if let Some(at) = at {
            background::after_append(&self.0, at);
        }
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let Some(row) = self.row(run).await? else { return Ok(None) };
        match decode_sound_summary(&row) {
            Err(LogError::UnreadableRun { .. }) => self.recorded_summary(&row).await.map(Some),
            Ok(summary) => {
                let end = KnownEnd::new(&summary).in_incarnation(incarnation_in(&row)?);
                lost_tails::note(self.0.pool(), self.0.known_ends(), run, end).await?;
                Ok(Some(summary))
            }
            Err(error) => Err(error),
        }
    }

    async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let Some(row) = self.row(run).await? else { return Ok(None) };
        let summary = decode_sound_summary(&row)?;
        // Only the columns that runs are listed by.
        let started_at: i64 = row.try_get("started_at").map_err(Fault::from)?;
        match summary.started_at.as_millis() == started_at {
            true => Ok(Some(summary)),
            false => Err(disagrees(&summary)),
        }
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let rows = sqlx::query(
            "SELECT * FROM backstop.events WHERE run_id = (SELECT id FROM backstop.runs WHERE run = $1) \
             AND seq >= $2 ORDER BY seq",
        )
        .bind(&*encode_text(run.as_str()))
        .bind(to_i64(from_seq))
        .fetch_all(&mut *self.0.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        rows.iter().map(decode_record).collect()
    }
}

#[async_trait]
impl LostTails for PostgresLog {
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        self.claim_run(run, true).await
    }

    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        lost_tails::all(self.0.pool()).await
    }
}

#[async_trait]
impl Seals for PostgresLog {
    fn key(&self) -> Option<&LogKey> {
        self.0.log_key()
    }

    fn seals_rows(&self) -> bool {
        self.0.log_key().is_some()
    }

    async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        match self.key() {
            Some(key) => seals::read(self.0.pool(), run, key).await.map(Some),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl EventFeed for PostgresLog {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        feed::read(self.0.pool(), filter, cursor).await
    }

    fn watch_events(&self) -> EventWatch {
        let watch = self.0.lookout().watches.events.watch();
        self.0.lookout().look(self.0.pool());
        watch
    }
}

#[async_trait]
impl Subscriptions for PostgresLog {
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        subscriptions::find(self.0.pool(), name).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        subscriptions::all(self.0.pool()).await
    }
}

#[async_trait]
impl Runs for PostgresLog {
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        let row = sqlx::query(
            "SELECT * FROM backstop.runs \
             WHERE session = $1 AND parent IS NULL AND branch_of IS NULL ORDER BY id DESC LIMIT 1",
        )
        .bind(&*encode_text(session.as_str()))
        .fetch_optional(&mut *self.0.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        match row {
            Some(row) => self.last_summary(&row).await.map(Some),
            None => Ok(None),
        }
    }

    async fn failed_attempts(
        &self,
        filter: &AttemptFilter,
    ) -> Result<Option<Vec<FailedAttempts>>, LogError> {
        runs::failed_attempts(self.0.pool(), filter).await.map(Some)
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let rows = runs::list(self.0.pool(), &filter).await?;
        // A changed row does not hide the others, and is listed itself.
        Ok(rows.iter().map(|row| decode_summary(row).unwrap_or_else(|_| unreadable(row))).collect())
    }
}

#[async_trait]
impl Inbox for PostgresLog {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        approvals::open(self.0.pool()).await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        if self.0.writer().is_none() {
            return Err(read_only());
        }
        let sent = SubmittedRequest { request, by: by.to_owned(), at };
        let run = transact(self.0.pool(), self.0.options().patience, &sent).await?;
        if let Some(run) = &run {
            self.0.lookout().watches.inboxes.ring(run);
            self.0.lookout().wrote.notify_one();
        }
        Ok(run.is_some())
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        inbox::rows(self.0.pool(), run, self.0.lookout()).await
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        let watch = self.0.lookout().watches.inboxes.watch(run);
        self.0.lookout().look(self.0.pool());
        watch
    }
}

#[async_trait]
impl Erasures for PostgresLog {
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let _claim = self.claim(run).await?;
        erasure::erase(&self.0, run, seq).await
    }

    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        erasure::count(self.0.pool()).await.map(Some)
    }
}

#[async_trait]
impl Transcripts for PostgresLog {
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        transcripts::read(self.0.pool(), until).await
    }

    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        let (pool, patience) = (self.0.for_writing()?, self.0.options().patience);
        transact(pool, patience, &KeepTranscript { parts: &parts, erasures }).await
    }
}

#[async_trait]
impl StartKeys for PostgresLog {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        let (pool, patience) = (self.0.for_writing()?, self.0.options().patience);
        let bound = transact(pool, patience, &Bind { key, run, now }).await;
        background::after(&self.0, now);
        bound
    }
}
