//! Decoding of the rows of events and runs, and of numbers.

use std::borrow::Cow;

use backstop_event_log::{LogError, Payload, Record, RunState, RunSummary, Terms};
use layer0::error::BoxError;
use layer0::event::{Actor, EVENT_TYPES, Hash, Salt};
use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::text;

/// Decodes an event from its row.
pub(crate) fn decode_record(row: &PgRow) -> Result<Record, LogError> {
    let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
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
    let negative = |_| LogError::tampered_event(seq, "its cause is negative");
    record.caused_by = caused_by.map(|cause| u64::try_from(cause).map_err(negative)).transpose()?;
    record.schema =
        u32::try_from(row.try_get::<i64, _>("schema").map_err(changed)?).unwrap_or(u32::MAX);
    record.hash = decode_hash(row, "hash", seq)?;
    Ok(record)
}

/// Decodes the payload of an event's row.
pub(crate) fn decode_payload(row: &PgRow, seq: u64) -> Result<Payload, LogError> {
    let changed = |_| LogError::tampered_event(seq, "a column has another type");
    let bytes = |column| row.try_get::<Option<&[u8]>, _>(column).map_err(changed);
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
pub(crate) fn decode_hash(row: &PgRow, column: &str, seq: u64) -> Result<Hash, LogError> {
    let bytes: &[u8] = row.try_get(column).map_err(Fault::from)?;
    bytes
        .try_into()
        .map(Hash)
        .map_err(|_| LogError::tampered_event(seq, "its hash has another length"))
}

/// Returns the run of a row.
pub(crate) fn decode_run_id(row: &PgRow) -> Result<RunId, LogError> {
    Ok(text::column(row, "run").map_err(Fault::from)?.into())
}

/// Decodes the summary of a run from its row.
pub(crate) fn decode_summary(row: &PgRow) -> Result<RunSummary, LogError> {
    let run = decode_run_id(row)?;
    let unreadable = |error: sqlx::Error| LogError::unreadable_run(run.clone(), error);
    let name = |column| -> Result<Option<RunId>, LogError> {
        let name = text::optional(row, column).map_err(unreadable)?;
        Ok(name.map(Into::into))
    };
    let mut summary: RunSummary = json(row, "summary", &run)?
        .ok_or_else(|| LogError::unreadable_run(run.clone(), "its row has no summary"))?;
    summary.last_seq = to_u64(row.try_get("last_seq").map_err(Fault::from)?);
    summary.head = decode_hash(row, "head", summary.last_seq)?;
    (summary.parent, summary.branch_of) = (name("parent")?, name("branch_of")?);
    summary.terms = json(row, "terms", &run)?.map(Terms::new).unwrap_or_default();
    summary.labels = json(row, "labels", &run)?.unwrap_or_default();
    Ok(summary)
}

/// Decodes a row, and checks that its columns agree with its summary.
pub(crate) fn decode_sound_summary(row: &PgRow) -> Result<RunSummary, LogError> {
    agreeing(row, decode_summary(row)?)
}

/// Checks that a summary agrees with the columns of its row.
pub(crate) fn agreeing(row: &PgRow, summary: RunSummary) -> Result<RunSummary, LogError> {
    let session = text::column(row, "session").map_err(Fault::from)?;
    let is_sound = summary.run == decode_run_id(row)?
        && summary.session.as_str() == session
        && decode_state(row).is_ok_and(|state| state == summary.state);
    match is_sound {
        true => Ok(summary),
        false => Err(disagrees(&summary)),
    }
}

/// Returns the error of a row whose columns disagree with its summary.
pub(crate) const fn disagrees(summary: &RunSummary) -> LogError {
    LogError::tampered_event(summary.last_seq, "its row does not say what its summary says")
}

fn json<T: DeserializeOwned>(
    row: &PgRow,
    column: &str,
    run: &RunId,
) -> Result<Option<T>, LogError> {
    let unreadable = |error: BoxError| LogError::unreadable_run(run.clone(), error);
    let text: Option<String> = row.try_get(column).map_err(|error| unreadable(error.into()))?;
    let value = text.map(|text| serde_json::from_str(&text)).transpose();
    value.map_err(|error| unreadable(error.into()))
}

pub(crate) fn decode_state(row: &PgRow) -> Result<RunState, LogError> {
    let state: &str = row.try_get("state").map_err(Fault::from)?;
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

/// Returns the readable rest of a run whose row cannot be read.
pub(crate) fn unreadable(row: &PgRow) -> RunSummary {
    let mut summary = RunSummary::new(decode_run_id(row).unwrap_or_else(|_| "".into()));
    summary.state = RunState::Unreadable;
    summary.reason = Some(Code::new(code::LOG_UNREADABLE));
    summary.session = text::column(row, "session").unwrap_or_default().into();
    summary.started_at = Timestamp::from_millis(row.try_get("started_at").unwrap_or(0));
    summary
}

/// Returns the parts of an unreadable row that a writer needs to follow or end the run.
pub(crate) fn salvage_summary(row: &PgRow) -> RunSummary {
    let mut summary = unreadable(row);
    summary.last_seq = row.try_get("last_seq").map_or(0, to_u64);
    summary.head = decode_hash(row, "head", summary.last_seq).unwrap_or_default();
    summary
}

/// Converts a number to PostgreSQL's integer type; its maximum represents greater numbers.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number that is never negative.
pub(crate) fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
