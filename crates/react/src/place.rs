//! Where a run stands among others in this process.

use std::sync::Arc;
use std::time::Duration;

use layer0::Orchestrator;
use layer0::operator::{Caller, Signals};

/// What a run is given by what dispatched it; nothing where a person started it.
#[derive(Clone, Default)]
pub(crate) struct Place {
    /// Who is told what becomes of the run.
    pub(crate) caller: Option<Arc<dyn Caller>>,
    /// What its tools dispatch through.
    pub(crate) orchestrator: Option<Arc<dyn Orchestrator>>,
    /// What is sent to the run from this process.
    pub(crate) signals: Option<Signals>,
    /// How long an endpoint may ask to be left alone without the run failing.
    pub(crate) max_park: Option<Duration>,
    /// Does the run go on with its agent as it is defined now, where that is another definition than before?
    pub(crate) adopts: bool,
    /// Whether the run continues although its record has lost its tail.
    pub(crate) accepts_lost_tail: bool,
    /// The caller's place in a distributed trace.
    pub(crate) trace_parent: Option<Arc<str>>,
}
