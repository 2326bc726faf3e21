//! Writes of the log; appends to several runs share statements.

use std::sync::Arc;

use backstop_event_log::{
    ApprovalChange, Batch, Incarnation, LogError, LogKey, Payload, Record, RunSummary, Terms,
    is_segment,
};
use layer0::JsonText;
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::SqliteConnection;

use crate::fault::Fault;
use crate::job_error::JobError;
use crate::many::{MAX_ROWS, Many, RowValues};
use crate::rows::to_i64;
use crate::{admission, approvals, inbox, lost_tails, seals, sessions, subscriptions};

/// An append with everything that can be prepared before the writer's turn.
pub(crate) struct Append {
    batch: Batch,
    /// The summary of the run, as JSON.
    summary: String,
    /// The incarnation of a new run.
    incarnation: Option<Incarnation>,
    /// The key that seals its row.
    key: Option<LogKey>,
    /// HMACs of the erased events in it, by seq.
    erasures: Vec<(u64, Hash)>,
}

impl Append {
    /// Prepares a batch. If the run names this key, its row is sealed with it.
    pub(crate) fn new(
        batch: Batch,
        incarnation: Option<Incarnation>,
        key: Option<&LogKey>,
    ) -> Result<Self, LogError> {
        let summary = serde_json::to_string(&without_columns(&batch.summary))
            .map_err(|error| LogError::Failed(error.into()))?;
        let is_named = |key: &&LogKey| batch.summary.key_id.as_deref() == Some(key.id());
        let key = key.filter(is_named).cloned();
        if let (true, Some(id), None) = (batch.is_import, &batch.summary.key_id, &key) {
            // The first event may require a sealed row.
            return Err(LogError::key_missing(id));
        }
        let erasures = key.as_ref().map_or_else(Vec::new, |key| batch.erasure_seals(key));
        Ok(Self { batch, summary, incarnation, key, erasures })
    }

    /// Returns the number of the run's last event before this append; 0 for a new run.
    fn before(&self) -> u64 {
        self.batch.first_seq().saturating_sub(1)
    }

    /// Returns whether it starts its run.
    pub(crate) fn begins(&self) -> bool {
        self.before() == 0 && !self.batch.records.is_empty()
    }

    /// Returns the run if the append ends it, which releases its claim.
    pub(crate) fn frees(&self) -> Option<&RunId> {
        (!self.batch.summary.is_open()).then_some(&self.batch.run)
    }

    /// Returns the number of events.
    pub(crate) fn rows(&self) -> usize {
        self.batch.records.len()
    }

    /// Returns whether it needs other statements than the one for its events.
    pub(crate) fn needs_more(&self) -> bool {
        let ends = |change: &Result<ApprovalChange, LogError>| {
            matches!(change, Ok(ApprovalChange::AllClosed))
        };
        self.begins()
            || self.key.is_some()
            || self.batch.reopens()
            || !self.batch.taken.is_empty()
            || self.batch.moves.is_some()
            || self.batch.adopts()
            || self.batch.accepts_loss()
            || self.batch.approval_changes().any(|change| !ends(&change))
    }

    fn conflict(&self) -> JobError {
        JobError::Log(LogError::conflict(self.batch.run.clone(), self.before() + 1))
    }
}

/// Returns the summary without the parts that have their own columns, since it is written at every append.
fn without_columns(summary: &RunSummary) -> RunSummary {
    let mut rest = summary.clone();
    (rest.terms, rest.labels) = (Terms::default(), Arc::default());
    (rest.parent, rest.branch_of) = (None, None);
    (rest.last_seq, rest.head) = (0, Hash::default());
    rest
}

/// Appends events to the table, each linked to the previous one of its run, and updates the heads of their runs. See
/// migration 9.
static APPEND: Many = Many::new("INSERT INTO appends SELECT * FROM", 18, "");

/// Writes appends to different runs in a transaction. Fails if a run does not end just before its append; among several
/// appends, the error does not name the run.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    appends: &[&Append],
    owner: &str,
) -> Result<(), JobError> {
    for append in appends.iter().filter(|append| append.begins()) {
        begin(connection, append, owner).await?;
    }
    for append in appends.iter().filter(|append| append.batch.reopens()) {
        admission::admit_reopening(connection, &append.batch).await?;
        sessions::reopen(connection, &append.batch.summary).await?;
    }
    write_rows(connection, appends).await?;
    for append in appends.iter().filter(|append| append.rows() == 0) {
        check_claim(connection, append).await?;
    }
    for append in appends {
        inbox::take(connection, &append.batch.run, &append.batch.taken).await?;
        approvals::keep(connection, &append.batch).await?;
        if append.batch.adopts() {
            sqlx::query("UPDATE runs SET terms = $2 WHERE run = $1")
                .bind(append.batch.run.as_str())
                .bind(append.batch.summary.terms.alone().get())
                .execute(&mut *connection)
                .await?;
        }
        if append.batch.accepts_loss() {
            lost_tails::unmark(connection, &append.batch.run).await?;
        }
        if let Some(moves) = &append.batch.moves {
            subscriptions::take(connection, moves).await?;
        }
        seals::keep_erasures(connection, &append.batch.run, &append.erasures).await?;
        if let Some(key) = &append.key {
            seals::seal_row(connection, &append.batch.run, key).await?;
        }
    }
    Ok(())
}

/// Checks the claim of an append without events. Other appends check it as their events are written.
async fn check_claim(connection: &mut SqliteConnection, append: &Append) -> Result<(), JobError> {
    let held: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM runs WHERE run = $1 AND last_seq = $2 AND epoch = $3")
            .bind(append.batch.run.as_str())
            .bind(to_i64(append.before()))
            .bind(to_i64(append.batch.epoch))
            .fetch_optional(connection)
            .await?;
    held.map(drop).ok_or_else(|| append.conflict())
}

/// Writes the events of appends to different runs, with one statement per [`MAX_ROWS`] events.
pub(crate) async fn write_rows(
    connection: &mut SqliteConnection,
    appends: &[&Append],
) -> Result<(), JobError> {
    let records: Vec<(&Append, &Record)> = appends
        .iter()
        .flat_map(|append| append.batch.records.iter().map(move |record| (*append, record)))
        .collect();
    let refused = |error: sqlx::Error| match (appends, Fault::is_refused(&error)) {
        ([append], true) => append.conflict(),
        _ => JobError::Database(error),
    };
    for records in records.chunks(MAX_ROWS) {
        APPEND.execute(connection, records, bind).await.map_err(refused)?;
    }
    Ok(())
}

fn bind(values: &mut RowValues, (append, record): &(&Append, &Record)) {
    let Batch { run, epoch, records, summary, .. } = &append.batch;
    let is_last = records.last().is_some_and(|last| last.seq == record.seq);
    let erased = match &record.payload {
        Payload::Erased(digest) => Some(digest.0.to_vec()),
        _ => None,
    };
    values
        .put(run.as_str())
        .put(to_i64(append.before()))
        .put(to_i64(*epoch))
        .put(to_i64(record.seq))
        .put(record.at.as_millis())
        .put(&*record.event_type)
        .put(record.actor.as_str())
        .put(record.caused_by.map(to_i64))
        .put(i64::from(record.schema))
        .put(&record.hash.0[..])
        .put(record.payload.text().unwrap_or_default())
        .put(record.payload.salt().map(|salt| salt.0.to_vec()))
        .put(erased)
        .put(is_last.then_some(&append.summary))
        .put(is_last.then_some(summary.session.as_str()))
        .put(is_last.then_some(summary.state.as_str()))
        .put(is_last.then_some(summary.started_at.as_millis()))
        .put(is_last.then_some(append.frees().is_some()));
}

/// Inserts the row of a new run, before its first event.
async fn begin(
    connection: &mut SqliteConnection,
    append: &Append,
    owner: &str,
) -> Result<(), JobError> {
    let Batch { run, summary, .. } = &append.batch;
    admission::admit_begin(connection, &append.batch).await?;
    let terms = summary.terms.alone();
    let labels = (!summary.labels.is_empty()).then(|| JsonText::from_value(&*summary.labels));
    let labels = labels.transpose().map_err(|error| LogError::Failed(error.into()));
    let labels = labels.map_err(JobError::Log)?;
    let made = sqlx::query(
        "INSERT INTO runs (run, session, started_at, last_seq, head, summary, state, parent, terms, \
         owner, epoch, labels, agent, reason, branch_of, incarnation) \
         VALUES ($1, $2, $3, 0, x'', '', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
         ON CONFLICT (run) DO NOTHING",
    )
    .bind(run.as_str())
    .bind(summary.session.as_str())
    .bind(summary.started_at.as_millis())
    .bind(summary.state.as_str())
    .bind(summary.parent.as_ref().map(|parent| parent.as_str().to_owned()))
    .bind(terms.get())
    .bind(owner)
    .bind(to_i64(append.batch.epoch))
    .bind(labels.map(|labels| labels.get().to_owned()))
    .bind(&*summary.agent)
    .bind(summary.reason.as_ref().map(|reason| reason.as_str().to_owned()))
    .bind(summary.branch_of.as_ref().map(|first| first.as_str().to_owned()))
    .bind(append.incarnation.map(|incarnation| incarnation.0.to_vec()))
    .execute(&mut *connection)
    .await?;
    if made.rows_affected() == 0 {
        return Err(append.conflict());
    }
    for (key, value) in &*summary.labels {
        let file = "INSERT INTO labels SELECT $2, $3, started_at, id FROM runs WHERE run = $1";
        let file = sqlx::query(file).bind(run.as_str()).bind(key).bind(value);
        file.execute(&mut *connection).await?;
    }
    if summary.parent.is_none() && !is_segment(run) {
        sessions::begin(connection, &append.batch.summary).await?;
    }
    admission::admit_follower(connection, &append.batch).await
}
