use std::collections::{HashMap, VecDeque};

use async_trait::async_trait;
use error_store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, NewError, Pruned, Retention, StoreError,
    Stored, error_id,
};
use layer0::id::{ErrorId, SessionId};
use layer0::{Code, Timestamp, code};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};

use crate::database::Database;
use crate::fault::Fault;
use crate::writer::JobError;

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

#[async_trait]
impl ErrorStore for SqliteErrorStore {
    async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        match self.0.writer() {
            Some(writer) => writer.store(error).await,
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
        let rows = sqlx::query(
            "SELECT id, session, run, call_id, tool, reason, code, summary, raw, occurrences, at \
             FROM errors WHERE ($1 IS NULL OR session = $1) AND ($2 IS NULL OR run = $2 \
             OR id IN (SELECT json_extract(data, '$.error_id') FROM events \
             WHERE type = 'error.stored' AND run_id = (SELECT id FROM runs WHERE run = $2))) \
             AND ($3 IS NULL OR tool = $3) AND ($4 IS NULL OR at >= $4) AND ($5 IS NULL OR at < $5) \
             AND ($6 IS NULL OR id = $6) ORDER BY at DESC, id DESC LIMIT $7",
        )
        .bind(filter.session.as_ref().map(|session| session.as_str().to_owned()))
        .bind(filter.run.as_ref().map(|run| run.as_str().to_owned()))
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

/// Writes errors inside a transaction, and returns where each was stored.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    errors: &[&NewError],
) -> Result<Vec<Stored>, JobError> {
    let errors: Vec<(&NewError, String)> =
        errors.iter().map(|error| (*error, error.fingerprint())).collect();
    let mut stored: Vec<Option<Stored>> = vec![None; errors.len()];
    for _ in 0..ID_TRIES {
        let missing: Vec<usize> =
            (0..errors.len()).filter(|place| stored[*place].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        let again: Vec<_> = missing.iter().map(|place| &errors[*place]).collect();
        let mut rows = insert(connection, &again).await?;
        for place in missing {
            let (error, fingerprint) = &errors[place];
            let same = (error.session.as_str().to_owned(), fingerprint.clone());
            // The same error twice: the first one counts first.
            stored[place] = rows.get_mut(&same).and_then(VecDeque::pop_front);
        }
    }
    let stored: Option<Vec<Stored>> = stored.into_iter().collect();
    stored.ok_or_else(|| JobError::Store(StoreError::Failed("no free error id".into())))
}

/// Inserts or counts errors with new ids. Returns those whose id was free, by session and
/// fingerprint.
async fn insert(
    connection: &mut SqliteConnection,
    errors: &[&(&NewError, String)],
) -> Result<HashMap<(String, String), VecDeque<Stored>>, JobError> {
    let mut rows = Vec::with_capacity(errors.len());
    for (error, fingerprint) in errors {
        rows.push((error_id(error.at).map_err(JobError::Store)?, error, fingerprint));
    }
    let mut insert = QueryBuilder::<Sqlite>::new(
        "INSERT INTO errors (id, session, run, call_id, tool, reason, code, summary, raw, \
         fingerprint, occurrences, at, last_at) ",
    );
    insert.push_values(&rows, |mut row, (id, error, fingerprint)| {
        row.push_bind(id.as_str())
            .push_bind(error.session.as_str())
            .push_bind(error.run.as_str())
            .push_bind(error.call_id.as_str())
            .push_bind(&*error.tool)
            .push_bind(error.reason.as_str())
            .push_bind(error.code.as_deref())
            .push_bind(&error.summary)
            .push_bind(&error.raw)
            .push_bind(fingerprint)
            .push("1")
            .push_bind(error.at.as_millis())
            .push_bind(error.at.as_millis());
    });
    insert.push(
        " ON CONFLICT (session, fingerprint) DO UPDATE SET occurrences = occurrences + 1, \
         last_at = excluded.last_at ON CONFLICT (id) DO NOTHING \
         RETURNING session, fingerprint, id, occurrences",
    );
    // Every number of rows is a statement of its own; only the common one is kept.
    let returned = insert.build().persistent(rows.len() == 1).fetch_all(connection).await?;
    let mut stored: HashMap<_, VecDeque<Stored>> = HashMap::with_capacity(returned.len());
    for row in &returned {
        let id: String = row.try_get("id")?;
        let occurrences: i64 = row.try_get("occurrences")?;
        let same = stored.entry((row.try_get("session")?, row.try_get("fingerprint")?));
        same.or_default().push_back(Stored {
            id: id.into(),
            occurrences: u64::try_from(occurrences).unwrap_or(1),
        });
    }
    Ok(stored)
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
