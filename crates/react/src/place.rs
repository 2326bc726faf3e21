//! The place of a run among other runs in this process.

use std::sync::Arc;
use std::time::Duration;

use layer0::Orchestrator;
use layer0::operator::{Caller, Signals};

/// The parts of a run that its dispatcher sets; empty for a run that a person started.
#[derive(Clone, Default)]
pub(crate) struct DispatchContext {
    /// The caller that gets reports on the run.
    pub(crate) caller: Option<Arc<dyn Caller>>,
    /// The orchestrator that its tools dispatch through.
    pub(crate) orchestrator: Option<Arc<dyn Orchestrator>>,
    /// Signals to the run from this process.
    pub(crate) signals: Option<Signals>,
    /// Maximum time for which the run may be parked instead of failing when an endpoint asks for a wait.
    pub(crate) max_park: Option<Duration>,
    /// Whether the run adopts the current definition of its agent if that has changed.
    pub(crate) adopts: bool,
    /// Whether the run continues although its record has lost its tail.
    pub(crate) accepts_lost_tail: bool,
    /// The caller's place in a distributed trace.
    pub(crate) trace_parent: Option<Arc<str>>,
}
