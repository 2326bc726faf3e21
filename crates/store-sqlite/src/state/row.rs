//! Values as they are stored.

use backstop_error_store::StoreError;
use layer0::error::StateError;
use layer0::state::Versioned;
use layer0::{JsonText, Timestamp};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::fault::Fault;

/// Reads a value from its row.
pub(super) fn decode_versioned(row: &SqliteRow) -> Result<Versioned, StateError> {
    let number: i64 = row.try_get("number").map_err(unreadable)?;
    let at = Timestamp::from_millis(row.try_get("at").map_err(unreadable)?);
    let expires_at: Option<i64> = row.try_get("expires_at").map_err(unreadable)?;
    let text: &str = row.try_get("value").map_err(unreadable)?;
    let value: JsonText =
        serde_json::from_str(text).map_err(|error| StateError::Serialization(error.to_string()))?;
    let version = Versioned::new(value, u64::try_from(number).unwrap_or_default(), at);
    Ok(version.expires_at(expires_at.map(Timestamp::from_millis)))
}

/// Makes the error for a row that cannot be read.
pub(super) fn unreadable(error: sqlx::Error) -> StateError {
    StateError::Other(StoreError::from(Fault::from(error)).into())
}
