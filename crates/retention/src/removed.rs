//! What was taken away, and what is left of it.

use layer0::Timestamp;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use serde::Serialize;

/// What was taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Removed {
    /// The runs, the last started first; where [`prune_runs`](crate::prune_runs) removed them, within each page.
    pub runs: Vec<RunId>,
    /// How many errors.
    pub errors: u64,
    /// How many results.
    pub results: u64,
    /// How many values of the session's state.
    #[serde(skip_serializing_if = "is_zero")]
    pub state: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What was forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Forgotten {
    /// What was taken away.
    #[serde(flatten)]
    pub removed: Removed,
    /// Runs that were copied from the session and still hold what was copied.
    pub forks: Vec<Fork>,
}

impl Forgotten {
    /// Says what was taken away, and which copies are left.
    #[must_use]
    pub const fn new(removed: Removed, forks: Vec<Fork>) -> Self {
        Self { removed, forks }
    }
}

/// A run that was copied from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fork {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
}

impl Fork {
    /// Names a run and its session.
    #[must_use]
    pub const fn new(run: RunId, session: SessionId) -> Self {
        Self { run, session }
    }
}

/// What is left of a run that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tombstone {
    /// The run.
    pub run: RunId,
    /// The hash of its last event.
    pub head: Hash,
    /// When it was forgotten.
    pub at: Timestamp,
    /// Who wanted it.
    pub by: String,
}

impl Tombstone {
    /// Makes the tombstone of a run.
    pub fn new(run: RunId, head: Hash, at: Timestamp, by: impl Into<String>) -> Self {
        Self { run, head, at, by: by.into() }
    }
}
