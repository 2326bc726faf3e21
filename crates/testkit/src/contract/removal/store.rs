//! The store of a check.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_error_store::ErrorStore;
use backstop_event_log::EventLog;
use layer0::id::{RunId, SessionId};

/// A store from which runs are removed, and the handles of another process that acts on it.
#[expect(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "a test fills every field, and prints none"
)]
pub struct RemovalStore<S> {
    /// The removals to check.
    pub shelf: S,
    /// The log of another process.
    pub log: Arc<dyn EventLog>,
    /// The errors of another process.
    pub errors: Arc<dyn ErrorStore>,
    /// The queue from which workers take runs, if the store has one.
    pub queue: Option<Arc<dyn RunQueue>>,
}

/// A queue from which a worker takes runs.
#[async_trait]
pub trait RunQueue: fmt::Debug + Send + Sync {
    /// Puts a run of an agent `demo` into the queue, in this session, and returns its id.
    async fn put(&self, session: &SessionId) -> RunId;

    /// Takes the next run that is due, as a worker does.
    async fn take(&self) -> Option<RunId>;
}
