use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{
    AttemptFilter, Batch, Claim, Cursor, Erasures, EventFeed, EventFilter, EventLog, EventWatch,
    FailedAttempts, FeedPage, Inbox, InboxMessage, InboxRequest, InboxWatch, Incarnation,
    KeyBinding, KnownEnd, Log, LogError, LogKey, LostRun, LostTails, OpenApproval, Ports, Record,
    RunFilter, RunSeals, RunState, RunSummary, Runs, Seals, StartKey, StartKeys, Subscription,
    Subscriptions, Terms, TranscriptPart, Transcripts, verify,
};
use layer0::event::LostTail;
use layer0::id::{RunId, SessionId};
use layer0::{Code, Timestamp, code};
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::claims::claim_error;
use crate::database::Database;
use crate::fault::Fault;
use crate::job::{ClaimRequest, Claiming};
use crate::lease::FileLease;
use crate::lost_tails::{CompareBegun, CompareTail};
use crate::owner::{OtherOwner, TAKEN_AFTER};
use crate::rows::{chain, decode_hash, decode_record, to_i64, to_u64};
use crate::sent::SubmittedRequest;
use crate::start_keys::Bind;
use crate::transcripts::KeepTranscript;
use crate::{
    approvals, background, erasure, feed, inbox, lost_tails, runs, seals, store_row, subscriptions,
    transcripts,
};

/// The columns of a run's row. All columns: a file of an older version, which is not migrated for reading, has no
/// labels.
macro_rules! runs {
    () => {
        "SELECT runs.* FROM runs "
    };
}

/// The event log in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteLog(Database);

impl SqliteLog {
    /// Makes a claim valid only while the files that exclude other processes are in place.
    fn under(&self, run: &RunId, claim: Claim) -> Claim {
        if self.0.is_in_memory() {
            return claim;
        }
        let (owner, claims) = (Arc::clone(self.0.owner()), self.0.claims().clone());
        claim.under(Arc::new(FileLease::new(owner, claims, run.clone())))
    }

    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }

    async fn select(
        &self,
        statement: &'static str,
        run: &RunId,
        from_seq: u64,
    ) -> Result<Vec<Record>, LogError> {
        let rows = sqlx::query(statement)
            .bind(run.as_str())
            .bind(to_i64(from_seq))
            .fetch_all(self.0.readers())
            .await
            .map_err(Fault::from)?;
        rows.iter().map(decode_record).collect()
    }

    /// Polls for writes of other processes while there is a watch.
    fn look_out(&self) {
        if !self.0.is_in_memory() {
            self.0.lookout().look(self.0.readers());
        }
    }

    async fn row(&self, run: &RunId) -> Result<Option<SqliteRow>, LogError> {
        let row = sqlx::query(concat!(runs!(), "WHERE run = $1")).bind(run.as_str());
        Ok(row.fetch_optional(self.0.readers()).await.map_err(Fault::from)?)
    }

    /// Returns the summary from the record of a run whose row cannot be read.
    async fn recorded_summary(&self, row: &SqliteRow) -> Result<RunSummary, LogError> {
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
    async fn last_summary(&self, row: &SqliteRow) -> Result<RunSummary, LogError> {
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

    /// Claims a run, also one that has lost its tail if `accepts_loss`; returns the newest lost event.
    async fn claim_run(
        &self,
        run: &RunId,
        accepts_loss: bool,
    ) -> Result<(Claim, Option<LostTail>), LogError> {
        let writer = self.0.writer().ok_or_else(read_only)?;
        let release = writer.release(run.clone()).ok_or(LogError::Closed)?;
        let claims = self.0.claims();
        let claimed = || LogError::Claimed(run.clone());
        let mut reserved = claims.reserve(run, 0, release).ok_or_else(claimed)?;
        let mut dead: Vec<Arc<str>> = Vec::new();
        loop {
            reserved.asking();
            let (run_id, dead_owners) = (run.clone(), dead.clone());
            let ends = self.0.known_ends().clone();
            let request = ClaimRequest { run: run_id, dead: dead_owners, ends, accepts_loss };
            let claiming = writer.claim(request).await;
            let given = match claiming {
                Ok(Claiming::Given(epoch, lost)) => {
                    let claim = self.under(run, reserved.claim(epoch));
                    return Ok((if dead.is_empty() { claim } else { claim.takeover() }, lost));
                }
                other => other,
            };
            reserved.mark_refused();
            match given? {
                Claiming::Held(owner) if !dead.contains(&owner) => {
                    let (own, id) = (Arc::clone(self.0.owner()), Arc::clone(&owner));
                    let look = tokio::task::spawn_blocking(move || own.look(&id)).await;
                    let look = look.map_err(|error| LogError::Failed(error.into()))?;
                    match look.map_err(|error| LogError::Failed(error.into()))? {
                        OtherOwner::Alive => return Err(claimed()),
                        OtherOwner::Missing => SystemClock.sleep(TAKEN_AFTER).await,
                        OtherOwner::Dead => {}
                    }
                    dead.push(owner);
                }
                other => return Err(claim_error(run, &other)),
            }
        }
    }

    /// Returns the error of a refused append: the run may have lost its tail.
    async fn refusal(&self, run: &RunId, error: LogError) -> LogError {
        let is_refused = matches!(error, LogError::Conflict { .. });
        let ends = self.0.known_ends();
        let known = ends.find(run).filter(|_| is_refused);
        let (Some(_), Ok(writer)) = (known, self.0.for_writing()) else { return error };
        let compare = CompareTail { run: run.clone(), ends: ends.clone(), begins: false };
        match writer.perform(compare).await {
            Ok(0) | Err(_) => error,
            Ok(seq) => LogError::lost_tail(run.clone(), seq),
        }
    }

    /// Refuses to start a run that this process already knows: its record was lost.
    async fn check_begun(&self, batch: &Batch) -> Result<(), LogError> {
        let ends = self.0.known_ends();
        if !batch.begins() || ends.find(&batch.run).is_none() {
            return Ok(());
        }
        let (run, ends) = (batch.run.clone(), ends.clone());
        let compare = CompareBegun(CompareTail { run, ends, begins: true });
        match self.0.for_writing()?.perform(compare).await? {
            0 => Ok(()),
            _ => Err(LogError::Lost(batch.run.clone())),
        }
    }
}

/// The events of a run from a given one, along their links. All columns: a file of an older version, which is not
/// migrated for reading, has no salts.
const LINKED: &str = chain!("SELECT * FROM chain ORDER BY id");
/// The events of a run from a given one, linked or not. Reads the events of all runs.
const ALL: &str = "SELECT * FROM events \
    WHERE run_id = (SELECT id FROM runs WHERE run = $1) AND seq >= $2 ORDER BY seq";

impl EventLog for SqliteLog {
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
impl Log for SqliteLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        Ok(self.claim_run(run, false).await?.0)
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        let release = self.0.writer().and_then(|writer| writer.release(run.clone()));
        let epoch = self.0.claims().new_epoch();
        match release.and_then(|release| self.0.claims().reserve(run, epoch, release)) {
            Some(reserved) => self.under(run, reserved.claim(epoch)),
            // Its first append is refused.
            None => Claim::new(epoch, ()),
        }
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let Some(writer) = self.0.writer() else { return Err(read_only()) };
        let at = batch.records.last().map(|record| record.at);
        self.check_begun(&batch).await?;
        let begins = batch.records.first().is_some_and(|first| first.seq == 1);
        let incarnation = begins.then(new_incarnation).transpose()?;
        let (run, end) = (batch.run.clone(), KnownEnd::new(&batch.summary));
        if let Err(error) = writer.append(batch, incarnation, self.key()).await {
            return Err(self.refusal(&run, error).await);
        }
        if begins {
            // An earlier run with this id was removed.
            self.0.known_ends().forget(&run);
            self.0.remember_own(&run);
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
                lost_tails::note(self.0.readers(), self.0.known_ends(), run, end).await?;
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
        let wanted: Option<i64> = sqlx::query_scalar("SELECT last_seq FROM runs WHERE run = $1")
            .bind(run.as_str())
            .fetch_optional(self.0.readers())
            .await
            .map_err(Fault::from)?;
        let Some(last_seq) = wanted.map(to_u64) else { return Ok(Vec::new()) };
        let linked = self.select(LINKED, run, from_seq).await?;
        // Other processes may have appended in between.
        if linked
            .iter()
            .map(|record| record.seq)
            .take_while(|seq| *seq <= last_seq)
            .eq(from_seq.max(1)..=last_seq)
        {
            return Ok(linked);
        }
        // The rows were changed; the remaining rows show which one.
        self.select(ALL, run, from_seq).await
    }
}

#[async_trait]
impl LostTails for SqliteLog {
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        self.claim_run(run, true).await
    }

    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        lost_tails::all(self.0.readers()).await
    }
}

#[async_trait]
impl Seals for SqliteLog {
    fn key(&self) -> Option<&LogKey> {
        self.0.log_key()
    }

    fn seals_rows(&self) -> bool {
        self.0.log_key().is_some()
    }

    async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        match self.key() {
            Some(key) => seals::read(self.0.readers(), run, key).await.map(Some),
            None => Ok(None),
        }
    }
}

#[async_trait]
impl EventFeed for SqliteLog {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        feed::read(&self.0, filter, cursor).await
    }

    fn watch_events(&self) -> EventWatch {
        let watch = self.0.lookout().watches.events.watch();
        self.look_out();
        watch
    }
}

#[async_trait]
impl Subscriptions for SqliteLog {
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        subscriptions::find(self.0.readers(), name).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        subscriptions::all(self.0.readers()).await
    }
}

#[async_trait]
impl Runs for SqliteLog {
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        let row = sqlx::query(concat!(
            runs!(),
            "WHERE session = $1 AND parent IS NULL AND branch_of IS NULL ORDER BY id DESC LIMIT 1"
        ))
        .bind(session.as_str())
        .fetch_optional(self.0.readers())
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
        runs::failed_attempts(self.0.readers(), filter).await.map(Some)
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let rows = runs::list(self.0.readers(), &filter).await?;
        // A changed row does not hide the others, and is listed itself.
        Ok(rows.iter().map(|row| decode_summary(row).unwrap_or_else(|_| unreadable(row))).collect())
    }
}

#[async_trait]
impl Inbox for SqliteLog {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        approvals::open(self.0.readers()).await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let writer = self.0.writer().ok_or_else(read_only)?;
        let run = writer.send(SubmittedRequest { request, by: by.to_owned(), at }).await?;
        Ok(run.is_some())
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        inbox::read(self.0.readers(), run, self.0.lookout()).await
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        let watch = self.0.lookout().watches.inboxes.watch(run);
        self.look_out();
        watch
    }
}

#[async_trait]
impl Erasures for SqliteLog {
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let _claim = self.claim(run).await?;
        erasure::erase(&self.0, run, seq).await
    }

    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        store_row::count_erasures(self.0.readers()).await
    }
}

#[async_trait]
impl Transcripts for SqliteLog {
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        transcripts::read(self.0.readers(), until).await
    }

    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        let writer = self.0.writer().ok_or_else(read_only)?;
        writer.perform(KeepTranscript { parts, erasures }).await?;
        Ok(())
    }
}

/// Returns the readable rest of a run whose row cannot be read.
fn unreadable(row: &SqliteRow) -> RunSummary {
    let run: String = row.try_get("run").unwrap_or_default();
    let mut summary = RunSummary::new(run.into());
    summary.state = RunState::Unreadable;
    summary.reason = Some(Code::new(code::LOG_UNREADABLE));
    summary.session = row.try_get::<String, _>("session").unwrap_or_default().into();
    summary.started_at = Timestamp::from_millis(row.try_get("started_at").unwrap_or(0));
    summary
}

fn decode_state(row: &SqliteRow) -> Result<RunState, LogError> {
    let state: String = row.try_get("state").map_err(Fault::from)?;
    [
        RunState::Running,
        RunState::WaitingApproval,
        RunState::Parked,
        RunState::Finished,
        RunState::Failed,
    ]
    .into_iter()
    .find(|known| known.as_str() == state)
    .ok_or_else(|| LogError::Failed(format!("unknown state `{state}`").into()))
}

/// Returns the parts of an unreadable row that a writer needs to follow or end the run.
fn salvage_summary(row: &SqliteRow) -> RunSummary {
    let mut summary = unreadable(row);
    summary.last_seq = row.try_get("last_seq").map_or(0, to_u64);
    summary.head = decode_hash(row, "head", summary.last_seq).unwrap_or_default();
    summary
}

/// Draws the incarnation of a new run.
fn new_incarnation() -> Result<Incarnation, LogError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| LogError::Failed(error.into()))?;
    Ok(Incarnation(random))
}

/// Reads the incarnation of a run; a file of an older version has none.
fn incarnation_in(row: &SqliteRow) -> Result<Option<Incarnation>, LogError> {
    let bytes: Option<Vec<u8>> = match row.try_get("incarnation") {
        Err(sqlx::Error::ColumnNotFound(_)) => None,
        bytes => bytes.map_err(Fault::from)?,
    };
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Incarnation))
}

fn read_only() -> LogError {
    LogError::Failed("the database was opened for reading".into())
}

/// Decodes a row, and checks that its columns agree with its summary.
fn decode_sound_summary(row: &SqliteRow) -> Result<RunSummary, LogError> {
    agreeing(row, decode_summary(row)?)
}

/// Checks that a summary agrees with the columns of its row.
fn agreeing(row: &SqliteRow, summary: RunSummary) -> Result<RunSummary, LogError> {
    let text = |column| row.try_get::<String, _>(column).map_err(Fault::from);
    let is_sound = summary.run.as_str() == text("run")?
        && summary.session.as_str() == text("session")?
        && decode_state(row).is_ok_and(|state| state == summary.state);
    match is_sound {
        true => Ok(summary),
        false => Err(disagrees(&summary)),
    }
}

const fn disagrees(summary: &RunSummary) -> LogError {
    LogError::tampered_event(summary.last_seq, "its row does not say what its summary says")
}

fn decode_summary(row: &SqliteRow) -> Result<RunSummary, LogError> {
    let run: String = row.try_get("run").map_err(Fault::from)?;
    let columns = Columns { row, run: run.into() };
    let mut summary: RunSummary = columns
        .json("summary")?
        .ok_or_else(|| LogError::unreadable_run(columns.run.clone(), "its row has no summary"))?;
    summary.last_seq = to_u64(row.try_get("last_seq").map_err(Fault::from)?);
    summary.head = decode_hash(row, "head", summary.last_seq)?;
    summary.parent = columns.text("parent")?.map(Into::into);
    summary.branch_of = columns.text("branch_of")?.map(Into::into);
    summary.terms = columns.json("terms")?.map(Terms::new).unwrap_or_default();
    summary.labels = columns.json("labels")?.unwrap_or_default();
    Ok(summary)
}

/// The columns of a row apart from its summary. A file of an older version, which is not migrated for reading, lacks
/// some of them.
struct Columns<'r> {
    row: &'r SqliteRow,
    run: RunId,
}

impl Columns<'_> {
    fn text(&self, column: &str) -> Result<Option<String>, LogError> {
        match self.row.try_get(column) {
            Err(sqlx::Error::ColumnNotFound(_)) => Ok(None),
            text => text.map_err(|error| LogError::unreadable_run(self.run.clone(), error)),
        }
    }

    fn json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, LogError> {
        let read = |text: String| serde_json::from_str(&text);
        let value = self.text(column)?.map(read).transpose();
        value.map_err(|error| LogError::unreadable_run(self.run.clone(), error))
    }
}

#[async_trait]
impl StartKeys for SqliteLog {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        let bind = Arc::new(Bind::new(key, run, now));
        self.0.for_writing()?.perform_shared(bind.clone()).await?;
        background::after(&self.0, now);
        Ok(bind.bound())
    }
}
