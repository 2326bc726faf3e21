use std::collections::HashSet;

use async_trait::async_trait;
use error_store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, NewError, Pruned, Retention, StoreError,
    Stored, error_id,
};
use layer0::id::{ErrorId, SessionId};
use layer0::{Code, Timestamp, code};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::database::Database;
use crate::fault::Fault;
use crate::log::chain;
use crate::many::{MAX_ROWS, Many, Values};
use crate::writer::{JobError, Kept};

/// How often an id that is taken is drawn again; with 2^24 ids a second, once is rare.
const ID_TRIES: usize = 16;

/// The error store in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteErrorStore(Database);

impl SqliteErrorStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }
}

/// Errors newest first; of a run, also those that it met and an earlier run of its session stored.
/// The rows are found without their texts, which are most of them.
const LIST: &str = chain!(
    "SELECT id, session, run, call_id, tool, reason, code, summary, raw, occurrences, at \
     FROM errors WHERE number IN (SELECT number FROM errors \
     WHERE ($1 IS NULL OR run = $1 OR id IN (SELECT json_extract(data, '$.error_id') FROM chain \
     WHERE type = 'error.stored')) AND ($3 IS NULL OR session = $3) AND ($4 IS NULL OR tool = $4) \
     AND ($5 IS NULL OR at >= $5) AND ($6 IS NULL OR at < $6) AND ($7 IS NULL OR id = $7) \
     ORDER BY at DESC, id DESC LIMIT $8) ORDER BY at DESC, id DESC"
);

#[async_trait]
impl ErrorStore for SqliteErrorStore {
    async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        match self.0.writer() {
            Some(writer) => writer.store(error).await,
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        match self.0.writer() {
            Some(writer) => writer.keep(Kept::Error(Box::new(error))).await,
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Option<ErrorRecord>, StoreError> {
        let row = sqlx::query(
            "SELECT id, session, run, call_id, tool, reason, code, summary, raw, occurrences, at \
             FROM errors WHERE id = $1 AND session = $2",
        )
        .bind(id.as_str())
        .bind(session.as_str())
        .fetch_optional(self.0.readers())
        .await
        .map_err(Fault::from)?;
        row.as_ref().map(record_of).transpose()
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let rows = sqlx::query(LIST)
            .bind(filter.run.as_ref().map(|run| run.as_str().to_owned()))
            .bind(1) // all events of the run
            .bind(filter.session.as_ref().map(|session| session.as_str().to_owned()))
            .bind(filter.tool)
            .bind(filter.from.map(Timestamp::as_millis))
            .bind(filter.to.map(Timestamp::as_millis))
            .bind(filter.id.as_ref().map(|id| id.as_str().to_owned()))
            .bind(filter.limit.map_or(-1, i64::from))
            .fetch_all(self.0.readers())
            .await
            .map_err(Fault::from)?;
        rows.iter().map(record_of).collect()
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        match self.0.writer() {
            Some(writer) => writer.prune(retention, now).await,
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }

    async fn stats(&self) -> Result<Vec<ErrorStats>, StoreError> {
        let rows = sqlx::query(
            "SELECT tool, reason, code, session, count(*) AS errors, \
             sum(occurrences) AS occurrences, \
             sum(max(0, length(raw) - length(summary)) * occurrences) AS chars_kept \
             FROM errors GROUP BY tool, reason, code, session ORDER BY chars_kept DESC, tool, session",
        )
        .fetch_all(self.0.readers())
        .await
        .map_err(Fault::from)?;
        rows.iter().map(stats_of).collect()
    }
}

fn stats_of(row: &SqliteRow) -> Result<ErrorStats, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let number = |column: &str| {
        let number = row.try_get::<i64, _>(column).map_err(Fault::from)?;
        Ok::<_, StoreError>(u64::try_from(number).unwrap_or(0))
    };
    Ok(ErrorStats {
        tool: text("tool")?,
        reason: known_code(&text("reason")?),
        code: row.try_get("code").map_err(Fault::from)?,
        session: text("session")?.into(),
        errors: number("errors")?,
        occurrences: number("occurrences")?,
        chars_kept: number("chars_kept")?,
    })
}

/// Takes away what is not kept, inside a transaction: what was not seen for too long, then of the
/// rest, the longest unseen first, what is too many or too large.
pub(crate) async fn prune(
    connection: &mut SqliteConnection,
    retention: Retention,
    now: Timestamp,
) -> Result<Pruned, JobError> {
    let oldest = retention.max_age.map(|age| {
        now.as_millis().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
    });
    let bound = |max: Option<u64>| max.map(|max| i64::try_from(max).unwrap_or(i64::MAX));
    let sizes: Vec<i64> = sqlx::query_scalar(
        "DELETE FROM errors WHERE id IN (SELECT id FROM (SELECT id, last_at, \
         row_number() OVER newest AS place, \
         sum(length(CAST(raw AS BLOB))) OVER (newest ROWS UNBOUNDED PRECEDING) AS bytes \
         FROM errors WINDOW newest AS (ORDER BY last_at DESC, id DESC)) \
         WHERE last_at < $1 OR place > $2 OR bytes > $3) RETURNING length(CAST(raw AS BLOB))",
    )
    .bind(oldest)
    .bind(bound(retention.max_rows))
    .bind(bound(retention.max_bytes))
    .fetch_all(connection)
    .await?;
    let unsigned = |size: &i64| u64::try_from(*size).unwrap_or(0);
    Ok(Pruned {
        rows: u64::try_from(sizes.len()).unwrap_or(u64::MAX),
        bytes: sizes.iter().map(unsigned).sum(),
    })
}

/// An error to store, with all that can be done before it is its turn.
pub(crate) struct Insert {
    error: NewError,
    fingerprint: String,
    id: ErrorId,
}

impl Insert {
    pub(crate) fn new(error: NewError) -> Result<Self, StoreError> {
        let (fingerprint, id) = (error.fingerprint(), error_id(error.at)?);
        Ok(Self { error, fingerprint, id })
    }

    fn bind(values: &mut Values, insert: &&Self) {
        let Self { error, fingerprint, id } = insert;
        values
            .put(id.as_str())
            .put(error.session.as_str())
            .put(error.run.as_str())
            .put(error.call_id.as_str())
            .put(&*error.tool)
            .put(error.reason.as_str())
            .put(error.code.as_deref())
            .put(fingerprint)
            .put(error.at.as_millis())
            .put(&error.summary)
            .put(&error.raw);
    }

    /// When it happened.
    pub(crate) const fn at(&self) -> Timestamp {
        self.error.at
    }
}

/// Puts errors at the end of the table, and leaves out those that were seen before or whose id is
/// taken.
static INSERT: Many = Many::new(
    "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, occurrences, \
     at, last_at, summary, raw) SELECT new.column1, new.column2, new.column3, new.column4, \
     new.column5, new.column6, new.column7, new.column8, 1, new.column9, new.column9, \
     new.column10, new.column11 FROM",
    11,
    "WHERE new.column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

/// Writes errors inside a transaction, and returns where each was stored.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    errors: &[&Insert],
) -> Result<Vec<Stored>, JobError> {
    let mut stored = Vec::with_capacity(errors.len());
    for errors in errors.chunks(MAX_ROWS) {
        let inserted = INSERT.execute(connection, errors, Insert::bind).await?;
        let rows = i64::try_from(inserted.rows_affected()).unwrap_or(i64::MAX);
        let mut new: HashSet<String> = HashSet::new();
        let all_are_new = usize::try_from(rows).is_ok_and(|rows| rows == errors.len());
        if !all_are_new && rows > 0 {
            let ids = sqlx::query_scalar("SELECT id FROM errors WHERE number > $1");
            let ids = ids.bind(inserted.last_insert_rowid() - rows);
            new.extend(ids.fetch_all(&mut *connection).await?);
        }
        for error in errors {
            let is_new = all_are_new || new.remove(error.id.as_str());
            stored.push(match is_new {
                true => Stored { id: error.id.clone(), occurrences: 1 },
                false => count(connection, error).await?,
            });
        }
    }
    Ok(stored)
}

/// Stores an error that was left out, under another id or that of an equal one.
async fn count(connection: &mut SqliteConnection, insert: &Insert) -> Result<Stored, JobError> {
    let Insert { error, fingerprint, id } = insert;
    let mut id = id.clone();
    for _ in 0..ID_TRIES {
        let row = sqlx::query(
            "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, \
             occurrences, at, last_at, summary, raw) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9, $10, $11) \
             ON CONFLICT (fingerprint, session) DO UPDATE SET \
             occurrences = occurrences + 1, last_at = excluded.last_at \
             ON CONFLICT (id) DO NOTHING RETURNING id, occurrences",
        )
        .bind(id.as_str())
        .bind(error.session.as_str())
        .bind(error.run.as_str())
        .bind(error.call_id.as_str())
        .bind(&*error.tool)
        .bind(error.reason.as_str())
        .bind(error.code.as_deref())
        .bind(fingerprint)
        .bind(error.at.as_millis())
        .bind(&error.summary)
        .bind(&error.raw)
        .fetch_optional(&mut *connection)
        .await?;
        if let Some(row) = row {
            let occurrences: i64 = row.try_get("occurrences")?;
            return Ok(Stored {
                id: row.try_get::<String, _>("id")?.into(),
                occurrences: u64::try_from(occurrences).unwrap_or(1),
            });
        }
        id = error_id(error.at).map_err(JobError::Store)?;
    }
    Err(JobError::Store(StoreError::Failed("no free error id".into())))
}

/// Writes an error of another store inside a transaction.
pub(crate) async fn keep(
    connection: &mut SqliteConnection,
    error: &ErrorRecord,
) -> Result<(), JobError> {
    sqlx::query(
        "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, \
         occurrences, at, last_at, summary, raw) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12) ON CONFLICT DO NOTHING",
    )
    .bind(error.id.as_str())
    .bind(error.session.as_str())
    .bind(error.run.as_str())
    .bind(error.call_id.as_str())
    .bind(&*error.tool)
    .bind(error.reason.as_str())
    .bind(error.code.as_deref())
    .bind(error.fingerprint())
    .bind(i64::try_from(error.occurrences).unwrap_or(i64::MAX))
    .bind(error.at.as_millis())
    .bind(&error.summary)
    .bind(&error.raw)
    .execute(connection)
    .await?;
    Ok(())
}

fn record_of(row: &SqliteRow) -> Result<ErrorRecord, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(Fault::from);
    let author: Option<String> = row.try_get("code").map_err(Fault::from)?;
    Ok(ErrorRecord {
        id: text("id")?.into(),
        tool: text("tool")?.into(),
        call_id: text("call_id")?.into(),
        reason: known_code(&text("reason")?),
        code: author.map(Into::into),
        summary: text("summary")?,
        raw: text("raw")?,
        occurrences: u64::try_from(number("occurrences")?).unwrap_or(0),
        run: text("run")?.into(),
        session: text("session")?.into(),
        at: Timestamp::from_millis(number("at")?),
    })
}

/// Only codes of the catalogue are stored; a row with another one was changed by hand.
fn known_code(text: &str) -> Code {
    Code::new(code::find(text).map_or(code::TOOL_OTHER, |entry| entry.code))
}
