//! Pauses of a run, at which hooks are called.

use layer0::event::{EventKind, HookPassed};

use super::Run;
use crate::error::AgentError;
use crate::journal::StopFact;

impl Run {
    /// Continues the run after the hooks of a pause, unless a hook stops it.
    pub(super) async fn hooks_ended(
        &mut self,
        notes: Vec<EventKind>,
        stop: Option<StopFact>,
    ) -> Result<(), AgentError> {
        let Some(point) = self.ledger.machine().paused_at() else { return Ok(()) };
        let last = match stop {
            Some(StopFact(fact)) => fact.0,
            None => HookPassed::new(point.as_str(), None).into(),
        };
        let facts: Vec<_> =
            notes.into_iter().chain([last]).map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }

    /// Stops the steps in flight, and then the run, on behalf of a hook.
    pub(super) async fn stop_by_hook(
        &mut self,
        notes: Vec<EventKind>,
        StopFact(stop): StopFact,
    ) -> Result<(), AgentError> {
        self.stop_steps(layer0::code::HOOK_ABORTED).await?;
        // The run may have waited for nothing but the steps in flight.
        if self.is_ending() {
            return Ok(());
        }
        self.return_orphans().await?;
        self.ledger.forget_effects();
        let facts: Vec<_> =
            notes.into_iter().chain([stop.0]).map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }
}
