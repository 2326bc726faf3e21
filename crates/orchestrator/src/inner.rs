//! State of an orchestrator, shared by its clones and its dispatches.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_retry::RetryPolicy;
use layer0::Operator;
use tokio::sync::Semaphore;

use crate::checked::CheckedOperator;
use crate::in_flight::ActiveDispatches;

pub(crate) struct OrchestratorInner {
    pub(crate) operators: BTreeMap<String, Arc<CheckedOperator>>,
    pub(crate) retry: Retrying,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    /// Permits of first-level dispatches. Child runs use their caller's permit, so that callers that wait for each
    /// other never wait for a permit.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) max_depth: u32,
    /// Default limit of the time for which roots may be parked.
    pub(crate) max_park: Option<Duration>,
    /// Whether a parked root is answered at once rather than waited for.
    pub(crate) leaves_parked: bool,
    pub(crate) in_flight: Arc<ActiveDispatches>,
    /// Reference for operators that dispatch; it does not keep the orchestrator alive.
    pub(crate) this: Weak<OrchestratorInner>,
}

/// Retry policies of dispatches.
#[derive(Clone)]
pub(crate) struct Retrying {
    /// Policy of operators that start again from the beginning.
    pub(crate) anew: RetryPolicy,
    pub(crate) anew_attempts: u32,
    /// Policy of operators that continue after a failure.
    pub(crate) on: RetryPolicy,
    pub(crate) on_attempts: u32,
}

impl Retrying {
    /// Returns the policy of an operator and its number of attempts.
    pub(crate) fn policy_for(&self, operator: &dyn Operator) -> (RetryPolicy, u32) {
        match operator.can_go_on() {
            true => (self.on.clone(), self.on_attempts),
            false => (self.anew.clone(), self.anew_attempts),
        }
    }
}
