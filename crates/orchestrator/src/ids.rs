//! Ids of runs and sessions.

use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

/// Returns a new run id: `run_` and a UUIDv7 of this moment, so that ids sort by start.
///
/// ```
/// use backstop_orchestrator::new_run_id;
/// use layer0::Timestamp;
///
/// let id = new_run_id(Timestamp::default());
/// assert!(id.as_str().starts_with("run_"));
/// assert_ne!(id, new_run_id(Timestamp::default()));
/// ```
#[must_use]
pub fn new_run_id(at: Timestamp) -> RunId {
    RunId::new(format!("run_{}", uuid_at(at)))
}

/// Returns a new session id: `ses_` and a UUIDv7 of this moment.
#[must_use]
pub fn new_session_id(at: Timestamp) -> SessionId {
    SessionId::new(format!("ses_{}", uuid_at(at)))
}

fn uuid_at(at: Timestamp) -> uuid::Uuid {
    let ms = u64::try_from(at.as_millis()).unwrap_or(0);
    let nanos = u32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, ms / 1_000, nanos))
}
