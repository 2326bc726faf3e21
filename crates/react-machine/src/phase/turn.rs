//! A model call in flight.

use layer0::event::ModelAttempted;

use crate::io::{EffectId, Misuse};

/// A model call, from its request to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenModelCall {
    ask: PlannedModelCall,
    effect: EffectId,
    /// The seq of its `model.requested`.
    requested: u64,
    /// Whether the last attempt failed and no other follows.
    cut_short: bool,
    /// Whether an attempt without a record may be in flight.
    in_flight: bool,
}

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedModelCall {
    /// Number of the call in the run: 1, 2, …; a resend has the number of its call.
    pub(crate) call: u32,
    /// Number of attempts made for it.
    pub(crate) attempts: u32,
    /// Number of consecutive pauses.
    pub(crate) pauses: u32,
    /// Whether the model was already called again after an unusable answer.
    pub(crate) asked_again: bool,
}

impl PlannedModelCall {
    /// Returns the first request of a call.
    pub(crate) const fn first(call: u32) -> Self {
        Self { call, attempts: 0, pauses: 0, asked_again: false }
    }
}

impl OpenModelCall {
    pub(crate) const fn new(ask: PlannedModelCall, effect: EffectId, requested: u64) -> Self {
        Self { ask, effect, requested, cut_short: false, in_flight: true }
    }

    /// Returns the request, with the number of attempts until now.
    pub(crate) const fn ask(&self) -> PlannedModelCall {
        self.ask
    }

    pub(crate) const fn effect(&self) -> EffectId {
        self.effect
    }

    pub(crate) const fn request_seq(&self) -> u64 {
        self.requested
    }

    /// Returns whether the last attempt failed and no other follows.
    pub(crate) const fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Returns whether an attempt without a record may be in flight.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    pub(crate) const fn count_attempt(&mut self, attempted: &ModelAttempted) {
        self.ask.attempts = self.ask.attempts.saturating_add(1);
        self.in_flight = attempted.code.is_some() && attempted.delay_ms.is_some();
        self.cut_short = attempted.code.is_some() && attempted.delay_ms.is_none();
    }

    pub(crate) fn check_attempt(
        &self,
        effect: Option<EffectId>,
        attempted: &ModelAttempted,
    ) -> Result<(), Misuse> {
        self.check_answer(effect, "model.attempted", attempted.call)?;
        let (actual, expected) = (attempted.attempt, self.ask.attempts.saturating_add(1));
        if actual != expected {
            return Err(Misuse::OutOfOrder { event: "model.attempted", actual, expected });
        }
        Ok(())
    }

    /// Checks that the named effect is the open one, if one is named.
    pub(crate) fn check_effect(&self, effect: Option<EffectId>) -> Result<(), Misuse> {
        match effect.filter(|effect| *effect != self.effect) {
            Some(EffectId { epoch, number }) => Err(Misuse::Stale { epoch, number }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_answer(
        &self,
        effect: Option<EffectId>,
        event: &'static str,
        call: u32,
    ) -> Result<(), Misuse> {
        self.check_effect(effect)?;
        if call != self.ask.call {
            return Err(Misuse::OutOfOrder { event, actual: call, expected: self.ask.call });
        }
        Ok(())
    }
}
