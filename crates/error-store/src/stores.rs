use std::sync::Arc;

use backstop_event_log::EventLog;
use layer0::StateStore;

use crate::{ErrorStore, ResultStore};

/// A database with all data of an agent.
///
/// `AgentBuilder::store` sets all of its stores at once.
pub trait Store: Send + Sync {
    /// Returns its event log.
    fn log(&self) -> Arc<dyn EventLog>;

    /// Returns its error store.
    fn errors(&self) -> Arc<dyn ErrorStore>;

    /// Returns its store of large results.
    fn results(&self) -> Arc<dyn ResultStore>;

    /// Returns its state store, if it has one.
    fn state(&self) -> Option<Arc<dyn StateStore>> {
        None
    }
}
