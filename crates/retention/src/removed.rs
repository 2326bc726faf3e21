//! Results of removals, and tombstones.

use layer0::Timestamp;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use serde::Serialize;

/// The result of a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Removed {
    /// The runs, the last started first; for [`prune_runs`](crate::prune_runs), within each page.
    pub runs: Vec<RunId>,
    /// Number of errors.
    pub errors: u64,
    /// Number of results.
    pub results: u64,
    /// Number of values in the session's state.
    #[serde(skip_serializing_if = "is_zero")]
    pub state: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The result of forgetting a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Forgotten {
    /// The removed data.
    #[serde(flatten)]
    pub removed: Removed,
    /// Runs that were copied from the session and still contain copied data.
    pub forks: Vec<Fork>,
}

impl Forgotten {
    /// Creates the result from the removed data and the remaining copies.
    #[must_use]
    pub const fn new(removed: Removed, forks: Vec<Fork>) -> Self {
        Self { removed, forks }
    }
}

/// A run that was copied from another run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fork {
    /// The run.
    pub run: RunId,
    /// Session of the run.
    pub session: SessionId,
}

impl Fork {
    /// Creates a fork from a run and its session.
    #[must_use]
    pub const fn new(run: RunId, session: SessionId) -> Self {
        Self { run, session }
    }
}

/// The remains of a forgotten run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tombstone {
    /// The run.
    pub run: RunId,
    /// Hash of its last event.
    pub head: Hash,
    /// Time at which it was forgotten.
    pub at: Timestamp,
    /// The person who requested it.
    pub by: String,
}

impl Tombstone {
    /// Creates the tombstone of a run.
    pub fn new(run: RunId, head: Hash, at: Timestamp, by: impl Into<String>) -> Self {
        Self { run, head, at, by: by.into() }
    }
}
