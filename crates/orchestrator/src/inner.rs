//! What an orchestrator is made of, shared by its clones and its dispatches.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use backstop_retry::RetryPolicy;
use layer0::Operator;
use tokio::sync::Semaphore;

use crate::checked::Checked;
use crate::in_flight::InFlight;

pub(crate) struct Inner {
    pub(crate) operators: BTreeMap<String, Arc<Checked>>,
    pub(crate) retry: Retrying,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    /// Places for first-level dispatches. Sub-dispatches run in their caller's place, so that
    /// callers that wait for each other never wait for a place.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) max_depth: u32,
    /// How long roots may be parked whose task does not say.
    pub(crate) max_park: Option<Duration>,
    /// Are roots that are parked answered as such, rather than waited for?
    pub(crate) leaves_parked: bool,
    pub(crate) in_flight: Arc<InFlight>,
    /// For operators that dispatch: does not keep the orchestrator alive.
    pub(crate) this: Weak<Inner>,
}

/// How dispatches are tried again.
#[derive(Clone)]
pub(crate) struct Retrying {
    /// Those of operators that begin anew.
    pub(crate) anew: RetryPolicy,
    pub(crate) anew_attempts: u32,
    /// Those of operators that go on where they failed.
    pub(crate) on: RetryPolicy,
    pub(crate) on_attempts: u32,
}

impl Retrying {
    /// Returns the policy of an operator, and how many attempts it has.
    pub(crate) fn of(&self, operator: &dyn Operator) -> (RetryPolicy, u32) {
        match operator.can_go_on() {
            true => (self.on.clone(), self.on_attempts),
            false => (self.anew.clone(), self.anew_attempts),
        }
    }
}
