//! The model call in progress, and its next attempt.

use backstop_react_machine::EffectId;
use layer0::Timestamp;

use crate::journal::ModelAttempt;

/// The model call in progress.
#[derive(Default)]
pub(super) struct PendingModelCall {
    effect: Option<EffectId>,
    /// The next attempt, and the time to make it.
    waiting: Option<(Timestamp, Box<ModelAttempt>)>,
}

impl PendingModelCall {
    /// Begins a call.
    pub(super) const fn begin(&mut self, effect: EffectId) {
        self.effect = Some(effect);
    }

    /// Returns the effect of the latest call.
    pub(super) const fn effect(&self) -> Option<EffectId> {
        self.effect
    }

    /// Keeps an attempt until this time.
    pub(super) fn wait(&mut self, at: Timestamp, attempt: Box<ModelAttempt>) {
        self.waiting = Some((at, attempt));
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.waiting.is_none()
    }

    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.waiting.as_ref().map(|(at, _)| *at)
    }

    /// Takes the waiting attempt if it is due.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Box<ModelAttempt>> {
        self.waiting.take_if(|(at, _)| *at <= now).map(|(_, attempt)| attempt)
    }

    /// Takes the waiting attempt, whether or not it is due.
    pub(super) fn take_waiting(&mut self) -> Option<Box<ModelAttempt>> {
        self.waiting.take().map(|(_, attempt)| attempt)
    }
}
