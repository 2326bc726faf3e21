//! How the log is written: appends to several runs share their statements.

use event_log::{Batch, LogError, Payload, Record, RunSummary, Terms};
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::SqliteConnection;

use crate::log::signed;
use crate::many::{MAX_ROWS, Many, Values};
use crate::writer::JobError;
use crate::{approvals, inbox};

/// What is to be appended, with all that can be done before it is its turn.
pub(crate) struct Append {
    batch: Batch,
    /// The run at a glance, as JSON.
    summary: String,
}

impl Append {
    pub(crate) fn new(batch: Batch) -> Result<Self, LogError> {
        let summary = serde_json::to_string(&without_columns(&batch.summary))
            .map_err(|error| LogError::Failed(error.into()))?;
        Ok(Self { batch, summary })
    }

    /// The last event of the run before this; 0 of a run that begins.
    fn before(&self) -> u64 {
        self.batch.records.first().map_or(0, |record| record.seq.saturating_sub(1))
    }

    /// Does it begin its run?
    pub(crate) fn begins(&self) -> bool {
        self.before() == 0 && !self.batch.records.is_empty()
    }

    /// Returns the run that is free after it, because it is over.
    pub(crate) fn frees(&self) -> Option<&RunId> {
        (!self.batch.summary.is_open()).then_some(&self.batch.run)
    }

    fn conflict(&self) -> JobError {
        JobError::Log(LogError::conflict(self.batch.run.clone(), self.before() + 1))
    }
}

/// Returns the summary without what columns of their own have: it is written at every append.
fn without_columns(summary: &RunSummary) -> RunSummary {
    let (terms, head) = (Terms::default(), Hash::default());
    RunSummary { terms, parent: None, last_seq: 0, head, ..summary.clone() }
}

/// Puts events at the end of the table, each linked to the one before it in its run.
static INSERT: Many = Many::new(
    "INSERT INTO events (id, prev, run_id, seq, at, type, actor, caused_by, schema, hash, data, salt, erased) \
     SELECT (SELECT coalesce(max(id), 0) FROM events) + new.column1, \
     CASE WHEN new.column2 THEN runs.last_event \
     ELSE (SELECT coalesce(max(id), 0) FROM events) + new.column1 - 1 END, \
     runs.id, new.column4, new.column5, new.column6, new.column7, new.column8, new.column9, \
     new.column10, new.column11, new.column12, new.column13 FROM",
    13,
    "CROSS JOIN runs ON runs.run = new.column3",
);

/// Moves the heads of runs that end just before what was appended and do what they did: an index
/// knows which runs are open, and is left alone.
static ADVANCE: Many = Many::new(
    "UPDATE runs SET last_seq = new.column3, head = new.column4, summary = new.column5, \
     last_event = (SELECT max(id) FROM events) - new.column6, \
     owner = CASE WHEN new.column11 THEN NULL ELSE runs.owner END FROM",
    11,
    "WHERE runs.run = new.column1 AND runs.last_seq = new.column2 AND runs.epoch = new.column10 \
     AND runs.session = new.column7 AND runs.state = new.column8",
);

/// As [`ADVANCE`], for runs that do something else now.
static CHANGE: Many = Many::new(
    "UPDATE runs SET last_seq = new.column3, head = new.column4, summary = new.column5, \
     last_event = (SELECT max(id) FROM events) - new.column6, session = new.column7, \
     state = new.column8, started_at = new.column9, \
     owner = CASE WHEN new.column11 THEN NULL ELSE runs.owner END FROM",
    11,
    "WHERE runs.run = new.column1 AND runs.last_seq = new.column2 AND runs.epoch = new.column10",
);

/// Writes appends to different runs inside a transaction. Fails if a run does not end just before its
/// append; of several, it does not say which.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    appends: &[&Append],
    owner: &str,
) -> Result<(), JobError> {
    let appends: Vec<&Append> =
        appends.iter().copied().filter(|append| !append.batch.records.is_empty()).collect();
    for append in appends.iter().filter(|append| append.begins()) {
        begin(connection, append, owner).await?;
    }
    insert(connection, &appends).await?;
    advance(connection, &appends).await?;
    for append in appends {
        inbox::take(connection, &append.batch.run, &append.batch.taken).await?;
        approvals::keep(connection, &append.batch).await?;
    }
    Ok(())
}

async fn insert(connection: &mut SqliteConnection, appends: &[&Append]) -> Result<(), JobError> {
    let records: Vec<(&Batch, &Record)> = appends
        .iter()
        .flat_map(|append| append.batch.records.iter().map(|record| (&append.batch, record)))
        .collect();
    for records in records.chunks(MAX_ROWS) {
        let numbered: Vec<_> = (1_i64..).zip(records).collect();
        let bind = |values: &mut Values, (place, (batch, record)): &(i64, &(&Batch, &Record))| {
            let erased = match &record.payload {
                Payload::Erased(digest) => Some(digest.0.to_vec()),
                _ => None,
            };
            let is_first = batch.records.first().is_some_and(|first| first.seq == record.seq);
            values
                .put(place)
                .put(is_first)
                .put(batch.run.as_str())
                .put(signed(record.seq))
                .put(record.at.as_millis())
                .put(&*record.event_type)
                .put(record.actor.as_str())
                .put(record.caused_by.map(signed))
                .put(i64::from(record.schema))
                .put(&record.hash.0[..])
                .put(record.payload.text().unwrap_or_default())
                .put(record.payload.salt().map(|salt| salt.0.to_vec()))
                .put(erased);
        };
        INSERT.execute(connection, &numbered, bind).await?;
    }
    Ok(())
}

/// Moves the heads of the runs over what was inserted last.
async fn advance(connection: &mut SqliteConnection, appends: &[&Append]) -> Result<(), JobError> {
    let mut behind: usize = appends.iter().map(|append| append.batch.records.len()).sum();
    let mut rows = Vec::with_capacity(appends.len());
    for append in appends {
        behind -= append.batch.records.len();
        rows.push((*append, i64::try_from(behind).unwrap_or(i64::MAX)));
    }
    let bind = |values: &mut Values, (append, behind): &(&Append, i64)| {
        let summary = &append.batch.summary;
        values
            .put(append.batch.run.as_str())
            .put(signed(append.before()))
            .put(signed(summary.last_seq))
            .put(&summary.head.0[..])
            .put(&append.summary)
            .put(behind)
            .put(summary.session.as_str())
            .put(summary.state.as_str())
            .put(summary.started_at.as_millis())
            .put(signed(append.batch.epoch))
            .put(append.frees().is_some());
    };
    for rows in rows.chunks(MAX_ROWS) {
        let wanted = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let mut moved = ADVANCE.execute(connection, rows, bind).await?.rows_affected();
        if moved < wanted {
            moved += CHANGE.execute(connection, rows, bind).await?.rows_affected();
        }
        if moved != wanted {
            return Err(rows
                .first()
                .map_or(JobError::Database(sqlx::Error::RowNotFound), |row| row.0.conflict()));
        }
    }
    Ok(())
}

/// Makes the row of a run that begins, before its first event.
async fn begin(
    connection: &mut SqliteConnection,
    append: &Append,
    owner: &str,
) -> Result<(), JobError> {
    let Batch { run, summary, .. } = &append.batch;
    let terms = summary.terms.alone();
    let made = sqlx::query(
        "INSERT INTO runs (run, session, started_at, last_seq, head, summary, state, parent, terms, \
         owner, epoch) VALUES ($1, $2, $3, 0, x'', '', $4, $5, $6, $7, $8) \
         ON CONFLICT (run) DO NOTHING",
    )
    .bind(run.as_str())
    .bind(summary.session.as_str())
    .bind(summary.started_at.as_millis())
    .bind(summary.state.as_str())
    .bind(summary.parent.as_ref().map(|parent| parent.as_str().to_owned()))
    .bind(terms.get())
    .bind(owner)
    .bind(signed(append.batch.epoch))
    .execute(&mut *connection)
    .await?;
    if made.rows_affected() == 0 {
        return Err(append.conflict());
    }
    if summary.parent.is_none() {
        refuse_busy_session(connection, &append.batch).await?;
    }
    Ok(())
}

/// A session has one open run that nobody dispatched, and each follows the last one.
async fn refuse_busy_session(
    connection: &mut SqliteConnection,
    batch: &Batch,
) -> Result<(), JobError> {
    let session = &batch.summary.session;
    let open: Option<String> = sqlx::query_scalar(
        "SELECT run FROM (SELECT run, state FROM runs WHERE session = $1 AND parent IS NULL \
         AND run <> $3 ORDER BY id DESC LIMIT 1) \
         WHERE state IN ('running', 'waiting_approval') OR run IS NOT $2",
    )
    .bind(session.as_str())
    .bind(batch.summary.follows.as_ref().map(|run| run.as_str().to_owned()))
    .bind(batch.run.as_str())
    .fetch_optional(connection)
    .await?;
    match open {
        Some(run) => Err(JobError::Log(LogError::session_busy(session.clone(), run.into()))),
        None => Ok(()),
    }
}
