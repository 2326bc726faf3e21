//! The dispatches in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::Timestamp;
use layer0::id::WorkflowId;
use layer0::operator::Signals;

#[derive(Default)]
pub(crate) struct ActiveDispatches(Mutex<BTreeMap<WorkflowId, ActiveDispatch>>);

/// A dispatch in flight.
#[derive(Clone)]
pub(crate) struct ActiveDispatch {
    pub(crate) operator: String,
    pub(crate) depth: u32,
    pub(crate) started: Timestamp,
    pub(crate) signals: Signals,
}

impl ActiveDispatches {
    /// Registers a dispatch until the returned guard is dropped.
    pub(crate) fn enter(this: &Arc<Self>, id: WorkflowId, flight: ActiveDispatch) -> Entered {
        this.flights().insert(id.clone(), flight);
        Entered { flights: Arc::clone(this), id }
    }

    pub(crate) fn find(&self, id: &WorkflowId) -> Option<ActiveDispatch> {
        self.flights().get(id).cloned()
    }

    pub(crate) fn ids(&self) -> Vec<WorkflowId> {
        self.flights().keys().cloned().collect()
    }

    fn flights(&self) -> MutexGuard<'_, BTreeMap<WorkflowId, ActiveDispatch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Entered {
    flights: Arc<ActiveDispatches>,
    id: WorkflowId,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.flights.flights().remove(&self.id);
    }
}
