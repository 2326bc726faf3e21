//! Stopping a run in the middle: cancellation, time, and what is in flight then.

use layer0::event::SignalReceived;
use react_machine::{CANCEL, Machine};
use serde_json::Value;

use crate::driver::Driver;
use crate::error::AgentError;
use crate::running::drop_guarded;

impl Driver {
    /// Waits for other people's code, unless the run is stopped meanwhile; then it is dropped, and
    /// there is nothing more to do.
    pub(crate) async fn unless_stopped<T>(
        &mut self,
        machine: &mut Machine,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, AgentError> {
        let mut work = Box::pin(work);
        let cancellation = self.request.cancellation.clone();
        let cancelled = tokio::select! {
            biased;
            () = cancellation.cancelled(), if !self.ending => true,
            () = self.alarm.rings_at(machine.deadline(), &self.agent.clock) => false,
            result = &mut work => return Ok(Some(result)),
        };
        drop_guarded(work);
        if cancelled {
            self.cancel(machine).await?;
        } else {
            self.tick(machine).await?;
        }
        Ok(None)
    }

    /// Tells the machine the time. If that ends the run, what is in flight is dropped.
    pub(crate) async fn tick(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        machine.tick(self.agent.clock.now());
        self.drain(machine);
        self.commit(machine).await
    }

    /// Drops what is in flight and tells the machine, which answers every open call.
    pub(crate) async fn cancel(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        self.drop_in_flight();
        let signal = SignalReceived { name: CANCEL.into(), data: Value::Null };
        self.step(machine, [self.fact(signal)]).await
    }

    pub(crate) fn drop_in_flight(&mut self) {
        self.effects.clear();
        self.queued.clear();
        self.admitted.clear();
        // Clearing makes them anew, which an empty one need not be.
        if !self.running.is_empty() {
            self.running.clear();
        }
        if !self.asked.is_empty() {
            self.asked.clear();
        }
    }
}
