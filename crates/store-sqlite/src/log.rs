use std::borrow::Cow;

use async_trait::async_trait;
use event_log::{
    Batch, Claim, Decision, EventLog, LogError, OpenApproval, Record, RunFilter, RunSummary, Terms,
};
use layer0::Timestamp;
use layer0::event::{Actor, EVENT_TYPES, Hash};
use layer0::id::{ApprovalId, RunId};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::approvals;
use crate::database::Database;
use crate::fault::Fault;

/// The events of a run from one of them on, as table `chain`: `$1` is the run, `$2` the seq of that
/// one. Links lead back in the table, so that a changed one does not lead in circles.
macro_rules! chain {
    ($query:literal) => {
        concat!(
            "WITH RECURSIVE chain AS (SELECT events.* FROM runs JOIN events \
             ON events.id = runs.last_event WHERE runs.run = $1 AND events.seq >= $2 \
             UNION ALL SELECT events.* FROM chain JOIN events ON events.id = chain.prev \
             AND events.id < chain.id AND events.run_id = chain.run_id WHERE events.seq >= $2) ",
            $query
        )
    };
}
pub(crate) use chain;

/// The event log in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteLog(Database);

impl SqliteLog {
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
            .bind(signed(from_seq))
            .fetch_all(self.0.readers())
            .await
            .map_err(Fault::from)?;
        rows.iter().map(record_of).collect()
    }
}

/// The events of a run from one of them on, along their links.
const LINKED: &str =
    chain!("SELECT seq, at, type, actor, caused_by, schema, data, hash FROM chain ORDER BY id");
/// The events of a run from one of them on, linked or not. Reads the events of all runs.
const ALL: &str = "SELECT seq, at, type, actor, caused_by, schema, data, hash FROM events \
    WHERE run_id = (SELECT id FROM runs WHERE run = $1) AND seq >= $2 ORDER BY seq";

#[async_trait]
impl EventLog for SqliteLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.0.claims().claim(run)
    }

    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        approvals::open(self.0.readers()).await
    }

    async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<bool, LogError> {
        match self.0.writer() {
            Some(writer) => writer.decide(id.clone(), decision).await,
            None => Err(LogError::Failed("the database was opened for reading".into())),
        }
    }

    async fn decision(&self, id: &ApprovalId) -> Result<Option<Decision>, LogError> {
        approvals::decision(self.0.readers(), id).await
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        match self.0.writer() {
            Some(writer) => writer.append(batch).await,
            None => Err(LogError::Failed("the database was opened for reading".into())),
        }
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let row =
            sqlx::query("SELECT last_seq, head, summary, parent, terms FROM runs WHERE run = $1")
                .bind(run.as_str())
                .fetch_optional(self.0.readers())
                .await
                .map_err(Fault::from)?;
        row.as_ref().map(summary_of).transpose()
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let wanted: Option<i64> = sqlx::query_scalar("SELECT last_seq FROM runs WHERE run = $1")
            .bind(run.as_str())
            .fetch_optional(self.0.readers())
            .await
            .map_err(Fault::from)?;
        let Some(last_seq) = wanted.map(unsigned) else { return Ok(Vec::new()) };
        let linked = self.select(LINKED, run, from_seq).await?;
        // Others may have appended in between.
        if linked
            .iter()
            .map(|record| record.seq)
            .take_while(|seq| *seq <= last_seq)
            .eq(from_seq.max(1)..=last_seq)
        {
            return Ok(linked);
        }
        // Somebody changed the rows; all that are left show which one.
        self.select(ALL, run, from_seq).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let rows = sqlx::query(
            "SELECT last_seq, head, summary, parent, terms FROM runs WHERE ($1 IS NULL OR session = $1) \
             ORDER BY started_at DESC, id DESC LIMIT $2",
        )
        .bind(filter.session.as_ref().map(|session| session.as_str().to_owned()))
        .bind(filter.limit.map_or(-1, i64::from))
        .fetch_all(self.0.readers())
        .await
        .map_err(Fault::from)?;
        // One row that somebody else changed does not hide the others.
        let readable = |row| {
            summary_of(row).inspect_err(|_| tracing::warn!("a row of `runs` cannot be read")).ok()
        };
        Ok(rows.iter().filter_map(readable).collect())
    }
}

fn summary_of(row: &SqliteRow) -> Result<RunSummary, LogError> {
    let text: String = row.try_get("summary").map_err(Fault::from)?;
    let mut summary: RunSummary =
        serde_json::from_str(&text).map_err(|error| LogError::Failed(error.into()))?;
    summary.last_seq = unsigned(row.try_get("last_seq").map_err(Fault::from)?);
    summary.head = hash_of(row, "head", summary.last_seq)?;
    let parent: Option<String> = row.try_get("parent").map_err(Fault::from)?;
    summary.parent = parent.map(Into::into);
    let terms: Option<String> = row.try_get("terms").map_err(Fault::from)?;
    let terms = terms.and_then(|text| serde_json::from_str(&text).ok());
    summary.terms = terms.map(Terms::of).unwrap_or_default();
    Ok(summary)
}

fn record_of(row: &SqliteRow) -> Result<Record, LogError> {
    let seq = unsigned(row.try_get("seq").map_err(Fault::from)?);
    // A row whose columns have other types than we wrote was changed by somebody else.
    let changed = |_| LogError::tampered(seq, "a column has another type");
    let actor: &str = row.try_get("actor").map_err(changed)?;
    let caused_by: Option<i64> = row.try_get("caused_by").map_err(changed)?;
    Ok(Record {
        seq,
        at: Timestamp::from_millis(row.try_get("at").map_err(changed)?),
        event_type: known_type(row.try_get("type").map_err(changed)?),
        actor: Actor::parse(actor).ok_or(LogError::tampered(seq, "its actor is unknown"))?,
        caused_by: caused_by
            .map(|cause| {
                u64::try_from(cause).map_err(|_| LogError::tampered(seq, "its cause is negative"))
            })
            .transpose()?,
        schema: u32::try_from(row.try_get::<i64, _>("schema").map_err(changed)?)
            .unwrap_or(u32::MAX),
        data: row.try_get("data").map_err(changed)?,
        hash: hash_of(row, "hash", seq)?,
    })
}

fn known_type(text: String) -> Cow<'static, str> {
    match EVENT_TYPES.iter().find(|known| **known == text) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(text),
    }
}

fn hash_of(row: &SqliteRow, column: &str, seq: u64) -> Result<Hash, LogError> {
    let bytes: &[u8] = row.try_get(column).map_err(Fault::from)?;
    bytes.try_into().map(Hash).map_err(|_| LogError::tampered(seq, "its hash has another length"))
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
