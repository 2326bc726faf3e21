//! Stores of an agent for whole errors and large results.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_error_store::{ErrorStore, Hold, MemoryErrorStore, MemoryResultStore, ResultStore};
use layer0::id::SessionId;

use crate::effect::guard::GuardedStore;

/// The choice of a store in a builder.
pub(crate) enum StoreChoice<S: ?Sized> {
    /// No choice: a store in memory, if the agent has a tool that may need it.
    Default,
    Given(Arc<S>),
    /// No store.
    None,
}

impl<S: ?Sized> Clone for StoreChoice<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Default => Self::Default,
            Self::Given(store) => Self::Given(Arc::clone(store)),
            Self::None => Self::None,
        }
    }
}

/// The stores of an agent; given ones are guarded.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    pub(crate) errors: Option<Arc<dyn ErrorStore>>,
    pub(crate) results: Option<Arc<dyn ResultStore>>,
}

impl Stores {
    /// Opens the chosen stores of an agent with or without its own tools.
    pub(crate) fn open(
        errors: StoreChoice<dyn ErrorStore>,
        results: StoreChoice<dyn ResultStore>,
        has_tools: bool,
        limit: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut own = Self::default();
        let errors = match errors {
            StoreChoice::Default if has_tools => {
                own.errors = Some(Arc::new(MemoryErrorStore::new()));
                None
            }
            StoreChoice::Given(store) => Some(store),
            StoreChoice::Default | StoreChoice::None => None,
        };
        let results = match results {
            StoreChoice::Default if has_tools => {
                own.results = Some(Arc::new(MemoryResultStore::new()));
                None
            }
            StoreChoice::Given(store) => Some(store),
            StoreChoice::Default | StoreChoice::None => None,
        };
        // The default stores in memory answer at once, and need no guard.
        let given = Self { errors, results }.into_guarded(limit, clock);
        Self { errors: own.errors.or(given.errors), results: own.results.or(given.results) }
    }

    /// Guards stores that may hang or panic.
    pub(crate) fn into_guarded(self, limit: Duration, clock: &Arc<dyn Clock>) -> Self {
        let Self { errors, results } = self;
        Self {
            errors: errors.map(|store| Arc::new(GuardedStore::new(store, limit, clock)) as _),
            results: results.map(|store| Arc::new(GuardedStore::new(store, limit, clock)) as _),
        }
    }

    /// Keeps the stored values of these sessions from being pruned.
    pub(crate) fn hold(&self, sessions: &[SessionId]) -> Vec<Hold> {
        let errors = self.errors.iter().flat_map(|store| sessions.iter().map(|s| store.hold(s)));
        let results = self.results.iter().flat_map(|store| sessions.iter().map(|s| store.hold(s)));
        errors.chain(results).collect()
    }
}
