//! Signals to a run: they are recorded, and shown to hooks unless the run itself handles them.

use backstop_react_machine::{CANCEL, HookPoint, INPUT};
use layer0::JsonText;
use layer0::event::{EventKind, SignalReceived};
use layer0::operator::Signal;

use super::{Run, StepPurpose};
use crate::effect::has_hooks;
use crate::error::AgentError;
use crate::journal::{Step, StopFact};

impl Run {
    /// Handles a signal of the caller in this process.
    pub(super) async fn handle_signal(&mut self, signal: Signal) -> Result<(), AgentError> {
        if self.is_ending() {
            return Ok(());
        }
        self.take_signal(signal).await
    }

    /// Records a signal, and then shows it to hooks.
    pub(super) async fn take_signal(&mut self, signal: Signal) -> Result<(), AgentError> {
        let signal = self.recordable_signal(signal);
        let is_own = [CANCEL, INPUT].contains(&&*signal.name);
        let is_shown = !is_own && has_hooks(&self.agent, HookPoint::Signal);
        let shown = is_shown.then(|| Step::Signal(Box::new(signal.clone())));
        let facts = self.facts_of_outside(signal);
        self.ledger.step(facts).await?;
        if let Some(shown) = shown
            && !self.is_ending()
        {
            self.start(shown, StepPurpose::Signal);
        }
        Ok(())
    }

    /// Records the results of the hooks that a signal was shown to.
    pub(super) async fn signal_shown(
        &mut self,
        notes: Vec<EventKind>,
        stop: Option<StopFact>,
    ) -> Result<(), AgentError> {
        match stop {
            Some(stop) if !self.is_ending() => self.stop_by_hook(notes, stop).await,
            _ if self.ledger.is_over() => Ok(()),
            _ => {
                let facts: Vec<_> = notes.into_iter().map(|note| self.ledger.fact(note)).collect();
                self.ledger.step(facts).await
            }
        }
    }

    pub(super) fn recordable_signal(
        &self,
        Signal { name, data, cause, .. }: Signal,
    ) -> SignalReceived {
        let redactor = &self.agent.redactor;
        let data = redactor.redact_held_json(JsonText::from(data)).value();
        let mut signal = SignalReceived::new(redactor.redact_held(&name).into_owned(), data);
        signal.cause = cause;
        signal
    }
}
