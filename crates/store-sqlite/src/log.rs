use std::borrow::Cow;
use std::collections::HashMap;

use async_trait::async_trait;
use event_log::{
    Batch, Claim, Decision, EventLog, LogError, OpenApproval, Record, RunFilter, RunSummary,
};
use layer0::Timestamp;
use layer0::event::{Actor, EVENT_TYPES, Hash};
use layer0::id::{ApprovalId, RunId};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};

use crate::approvals;
use crate::database::Database;
use crate::fault::Fault;
use crate::writer::JobError;

/// How many rows one statement inserts; SQLite allows 32,766 parameters, a row takes 9.
const ROWS_PER_INSERT: usize = 1_000;

/// The event log in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteLog(Database);

impl SqliteLog {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }
}

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
        let row = sqlx::query("SELECT last_seq, head, summary, parent FROM runs WHERE run = $1")
            .bind(run.as_str())
            .fetch_optional(self.0.readers())
            .await
            .map_err(Fault::from)?;
        row.as_ref().map(summary_of).transpose()
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let rows = sqlx::query(
            "SELECT seq, at, type, actor, caused_by, schema, data, hash FROM events \
             WHERE run_id = (SELECT id FROM runs WHERE run = $1) AND seq >= $2 ORDER BY seq",
        )
        .bind(run.as_str())
        .bind(signed(from_seq))
        .fetch_all(self.0.readers())
        .await
        .map_err(Fault::from)?;
        rows.iter().map(record_of).collect()
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let rows = sqlx::query(
            "SELECT last_seq, head, summary, parent FROM runs WHERE ($1 IS NULL OR session = $1) \
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

/// Writes batches of different runs inside a transaction, in as few statements as can be.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    batches: &[&Batch],
) -> Result<(), JobError> {
    let batches: Vec<&Batch> =
        batches.iter().copied().filter(|batch| !batch.records.is_empty()).collect();
    let (begun, open): (Vec<&Batch>, Vec<&Batch>) =
        batches.iter().partition(|batch| first_seq(batch) == 1);
    let mut ids = match open.as_slice() {
        [] => HashMap::new(),
        [batch] => HashMap::from([(batch.run.as_str(), advance(connection, batch).await?)]),
        batches => advance_all(connection, batches).await?,
    };
    for batch in begun {
        if batch.summary.parent.is_none() {
            refuse_busy_session(connection, batch).await?;
        }
        ids.insert(batch.run.as_str(), advance(connection, batch).await?);
    }
    let mut rows = Vec::new();
    for batch in &batches {
        let id = *ids.get(batch.run.as_str()).ok_or_else(|| conflict(batch))?;
        rows.extend(batch.records.iter().map(|record| (id, record)));
    }
    insert(connection, &rows).await?;
    for batch in batches {
        approvals::keep(connection, batch).await?;
    }
    Ok(())
}

async fn insert(
    connection: &mut SqliteConnection,
    rows: &[(i64, &Record)],
) -> Result<(), JobError> {
    for rows in rows.chunks(ROWS_PER_INSERT) {
        let mut insert = QueryBuilder::<Sqlite>::new(
            "INSERT INTO events (run_id, seq, at, type, actor, caused_by, schema, data, hash) ",
        );
        insert.push_values(rows, |mut row, (run_id, record)| {
            row.push_bind(run_id)
                .push_bind(signed(record.seq))
                .push_bind(record.at.as_millis())
                .push_bind(&*record.event_type)
                .push_bind(record.actor.as_str())
                .push_bind(record.caused_by.map(signed))
                .push_bind(i64::from(record.schema))
                .push_bind(&record.data)
                .push_bind(&record.hash.0[..]);
        });
        // Every number of rows is a statement of its own; only the common one is kept.
        insert.build().persistent(rows.len() == 1).execute(&mut *connection).await?;
    }
    Ok(())
}

fn first_seq(batch: &Batch) -> u64 {
    batch.records.first().map_or(1, |record| record.seq)
}

fn conflict(batch: &Batch) -> JobError {
    JobError::Log(LogError::conflict(batch.run.clone(), first_seq(batch)))
}

/// A session has one open run that nobody dispatched.
async fn refuse_busy_session(
    connection: &mut SqliteConnection,
    batch: &Batch,
) -> Result<(), JobError> {
    let session = &batch.summary.session;
    let open: Option<String> = sqlx::query_scalar(
        "SELECT run FROM runs WHERE session = $1 AND state IN ('running', 'waiting_approval') \
         AND parent IS NULL AND run <> $2 LIMIT 1",
    )
    .bind(session.as_str())
    .bind(batch.run.as_str())
    .fetch_optional(connection)
    .await?;
    match open {
        Some(run) => Err(JobError::Log(LogError::session_busy(session.clone(), run.into()))),
        None => Ok(()),
    }
}

/// Moves the run's head over the batch, if the run ends just before it, and returns the row's id.
async fn advance(connection: &mut SqliteConnection, batch: &Batch) -> Result<i64, JobError> {
    let first = first_seq(batch);
    let statement = if first == 1 {
        "INSERT INTO runs (run, session, started_at, last_seq, head, summary, state, parent) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (run) DO NOTHING RETURNING id"
    } else {
        "UPDATE runs SET session = $2, started_at = $3, last_seq = $4, head = $5, summary = $6, \
         state = $7 WHERE run = $1 AND last_seq = $8 RETURNING id"
    };
    let mut query = sqlx::query_scalar(statement)
        .bind(batch.run.as_str())
        .bind(batch.summary.session.as_str())
        .bind(batch.summary.started_at.as_millis())
        .bind(signed(batch.summary.last_seq))
        .bind(&batch.summary.head.0[..])
        .bind(text_of(batch)?)
        .bind(batch.summary.state.as_str());
    query = if first > 1 {
        query.bind(signed(first - 1))
    } else {
        query.bind(batch.summary.parent.as_ref().map(|parent| parent.as_str().to_owned()))
    };
    query.fetch_optional(connection).await?.ok_or_else(|| conflict(batch))
}

/// Moves the heads of several runs as [`advance`] does. Fails if one of them does not end just
/// before its batch, without saying which; written one by one, each says so itself.
async fn advance_all<'a>(
    connection: &mut SqliteConnection,
    batches: &[&'a Batch],
) -> Result<HashMap<&'a str, i64>, JobError> {
    let texts = batches.iter().map(|batch| text_of(batch)).collect::<Result<Vec<_>, _>>()?;
    let mut update = QueryBuilder::<Sqlite>::new(
        "UPDATE runs SET session = new.column2, started_at = new.column3, \
         last_seq = new.column4, head = new.column5, summary = new.column6, \
         state = new.column7 FROM (",
    );
    update.push_values(batches.iter().zip(&texts), |mut row, (batch, text)| {
        row.push_bind(batch.run.as_str())
            .push_bind(batch.summary.session.as_str())
            .push_bind(batch.summary.started_at.as_millis())
            .push_bind(signed(batch.summary.last_seq))
            .push_bind(&batch.summary.head.0[..])
            .push_bind(text)
            .push_bind(batch.summary.state.as_str())
            .push_bind(signed(first_seq(batch) - 1));
    });
    update.push(
        ") AS new WHERE runs.run = new.column1 AND runs.last_seq = new.column8 RETURNING run, id",
    );
    let rows = update.build().persistent(false).fetch_all(connection).await?;
    // Two batches of one run would move it once, and the log would not know of the second.
    if rows.len() != batches.len() {
        return Err(batches
            .first()
            .map_or(JobError::Database(sqlx::Error::RowNotFound), |batch| conflict(batch)));
    }
    let mut moved: HashMap<String, i64> = HashMap::with_capacity(rows.len());
    for row in &rows {
        moved.insert(row.try_get("run")?, row.try_get("id")?);
    }
    let ids = batches.iter().map(|batch| {
        let id = moved.get(batch.run.as_str()).ok_or_else(|| conflict(batch))?;
        Ok((batch.run.as_str(), *id))
    });
    ids.collect()
}

fn text_of(batch: &Batch) -> Result<String, JobError> {
    serde_json::to_string(&batch.summary)
        .map_err(|error| JobError::Log(LogError::Failed(error.into())))
}

fn summary_of(row: &SqliteRow) -> Result<RunSummary, LogError> {
    let text: String = row.try_get("summary").map_err(Fault::from)?;
    let mut summary: RunSummary =
        serde_json::from_str(&text).map_err(|error| LogError::Failed(error.into()))?;
    summary.last_seq = unsigned(row.try_get("last_seq").map_err(Fault::from)?);
    summary.head = hash_of(row, "head", summary.last_seq)?;
    let parent: Option<String> = row.try_get("parent").map_err(Fault::from)?;
    summary.parent = parent.map(Into::into);
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
