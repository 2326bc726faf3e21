//! Writes of the error store.

use std::collections::HashSet;

use backstop_error_store::{NewError, StoreError, StoredError, error_id};
use layer0::id::ErrorId;
use sqlx::{Row, SqliteConnection};

use crate::job_error::JobError;
use crate::many::{MAX_ROWS, Many, RowValues};

/// Maximum number of draws for a free id; with 2^24 ids a second, even a second draw is rare.
const ID_TRIES: usize = 16;

/// An error to store, with everything that can be prepared before the writer's turn.
pub(crate) struct Insert {
    error: NewError,
    fingerprint: String,
    id: ErrorId,
}

impl Insert {
    pub(crate) fn new(error: NewError) -> Result<Self, StoreError> {
        let (fingerprint, id) = (error.fingerprint(), error_id(error.origin().at)?);
        Ok(Self { error, fingerprint, id })
    }

    fn bind(values: &mut RowValues, insert: &&Self) {
        let Self { error, fingerprint, id } = insert;
        let origin = error.origin();
        values
            .put(id.as_str())
            .put(origin.session.as_str())
            .put(origin.run.as_str())
            .put(origin.call_id.as_str())
            .put(&*origin.tool)
            .put(error.reason().as_str())
            .put(error.code().map(|code| &**code))
            .put(fingerprint)
            .put(origin.at.as_millis())
            .put(len_to_i64(error.raw().len()))
            .put(i64::try_from(error.chars_kept()).unwrap_or(i64::MAX))
            .put(&error.summary().text)
            .put(&**error.raw());
    }
}

/// Appends errors to the table, except those that were seen before or whose id is taken.
static INSERT: Many = Many::new(
    "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, occurrences, \
     at, last_at, bytes, chars_kept, summary, raw) SELECT new.column1, new.column2, new.column3, \
     new.column4, new.column5, new.column6, new.column7, new.column8, 1, new.column9, new.column9, \
     new.column10, new.column11, new.column12, new.column13 FROM",
    13,
    "WHERE new.column1 IS NOT NULL ON CONFLICT DO NOTHING",
);

/// Writes errors in a transaction, and returns the id and count of each.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    errors: &[&Insert],
) -> Result<Vec<StoredError>, JobError> {
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
                true => StoredError::new(error.id.clone(), 1),
                false => count(connection, error).await?,
            });
        }
    }
    Ok(stored)
}

/// Stores an error that was left out, under another id or as another occurrence of an equal error.
async fn count(
    connection: &mut SqliteConnection,
    insert: &Insert,
) -> Result<StoredError, JobError> {
    let Insert { error, fingerprint, id } = insert;
    let origin = error.origin();
    let mut id = id.clone();
    for _ in 0..ID_TRIES {
        let row = sqlx::query(
            "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, \
             occurrences, at, last_at, bytes, chars_kept, summary, raw) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9, $10, $11, $12, $13) \
             ON CONFLICT (fingerprint, session) DO UPDATE SET \
             occurrences = occurrences + 1, last_at = max(last_at, excluded.last_at) \
             ON CONFLICT (id) DO NOTHING RETURNING id, occurrences",
        )
        .bind(id.as_str())
        .bind(origin.session.as_str())
        .bind(origin.run.as_str())
        .bind(origin.call_id.as_str())
        .bind(&*origin.tool)
        .bind(error.reason().as_str())
        .bind(error.code().map(|code| &**code))
        .bind(fingerprint)
        .bind(origin.at.as_millis())
        .bind(len_to_i64(error.raw().len()))
        .bind(i64::try_from(error.chars_kept()).unwrap_or(i64::MAX))
        .bind(&error.summary().text)
        .bind(&**error.raw())
        .fetch_optional(&mut *connection)
        .await?;
        if let Some(row) = row {
            let occurrences: i64 = row.try_get("occurrences")?;
            let id: String = row.try_get("id")?;
            if occurrences > 1 {
                refer(connection, origin.run.as_str(), &id).await?;
            }
            let occurrences = u64::try_from(occurrences).unwrap_or(1);
            return Ok(StoredError::new(id.into(), occurrences));
        }
        id = error_id(origin.at).map_err(JobError::Store)?;
    }
    Err(JobError::Store(StoreError::Failed("no free error id".into())))
}

/// Records that a run met an error that an earlier run had stored.
async fn refer(connection: &mut SqliteConnection, run: &str, id: &str) -> Result<(), JobError> {
    let sql = "INSERT INTO refers (run, id, number, at, session, tool) \
               SELECT $1, id, number, at, session, tool FROM errors WHERE id = $2 \
               ON CONFLICT DO NOTHING";
    sqlx::query(sql).bind(run).bind(id).execute(connection).await?;
    Ok(())
}

pub(crate) fn len_to_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
