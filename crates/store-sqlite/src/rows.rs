//! Decoding of events' rows as records, and of numbers.

use std::borrow::Cow;

use backstop_event_log::{LogError, Payload, Record};
use layer0::Timestamp;
use layer0::event::{Actor, EVENT_TYPES, Hash, Salt};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::fault::Fault;

/// The events of the run `$1` from the event with seq `$2`, as table `chain`. Links lead backwards in the table, so
/// that a changed link cannot lead to a cycle.
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

/// Decodes an event from its row.
pub(crate) fn decode_record(row: &SqliteRow) -> Result<Record, LogError> {
    let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
    // A row with other column types than this crate writes was changed by another program.
    let changed = |_| LogError::tampered_event(seq, "a column has another type");
    let actor: &str = row.try_get("actor").map_err(changed)?;
    let caused_by: Option<i64> = row.try_get("caused_by").map_err(changed)?;
    let mut record = Record::new(
        seq,
        Timestamp::from_millis(row.try_get("at").map_err(changed)?),
        known_type(row.try_get("type").map_err(changed)?),
        Actor::parse(actor).ok_or(LogError::tampered_event(seq, "its actor is unknown"))?,
        decode_payload(row, seq)?,
    );
    record.caused_by = caused_by
        .map(|cause| {
            u64::try_from(cause).map_err(|_| LogError::tampered_event(seq, "its cause is negative"))
        })
        .transpose()?;
    record.schema =
        u32::try_from(row.try_get::<i64, _>("schema").map_err(changed)?).unwrap_or(u32::MAX);
    record.hash = decode_hash(row, "hash", seq)?;
    Ok(record)
}

/// Decodes the payload of an event's row.
pub(crate) fn decode_payload(row: &SqliteRow, seq: u64) -> Result<Payload, LogError> {
    let changed = |_| LogError::tampered_event(seq, "a column has another type");
    let bytes = |column| match row.try_get::<Option<&[u8]>, _>(column) {
        Err(sqlx::Error::ColumnNotFound(_)) => Ok(None),
        bytes => bytes.map_err(changed),
    };
    if bytes("erased")?.is_some() {
        return decode_hash(row, "erased", seq).map(Payload::Erased);
    }
    let text = row.try_get("data").map_err(changed)?;
    match bytes("salt")?.map(<[u8; 16]>::try_from) {
        None => Ok(Payload::Plain(text)),
        Some(Ok(salt)) => Ok(Payload::Salted(Salt(salt), text)),
        Some(Err(_)) => Err(LogError::tampered_event(seq, "its salt has another length")),
    }
}

fn known_type(text: String) -> Cow<'static, str> {
    match EVENT_TYPES.iter().find(|known| **known == text) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(text),
    }
}

/// Decodes a hash from a column.
pub(crate) fn decode_hash(row: &SqliteRow, column: &str, seq: u64) -> Result<Hash, LogError> {
    let bytes: &[u8] = row.try_get(column).map_err(Fault::from)?;
    bytes
        .try_into()
        .map(Hash)
        .map_err(|_| LogError::tampered_event(seq, "its hash has another length"))
}

/// Converts a number to SQLite's integer type; its maximum represents greater numbers.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number that is never negative.
pub(crate) fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
