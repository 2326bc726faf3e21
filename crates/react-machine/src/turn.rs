//! Model calls: asking, resending, reading the answer, ending the run.

use std::sync::Arc;

use layer0::event::{Actor, ModelAttempted, ModelFailed, ModelRequested, ModelResponded};
use layer0::message::{Message, StopReason};
use layer0::stop::Stop;
use layer0::{Code, code};

use crate::guards::stagnation;
use crate::hooks::{Answer, Ask, Next};
use crate::io::{Effect, EffectId, FailureCause, Misuse, ModelCall};
use crate::machine::{Machine, Phase};

/// How often in a row a paused turn is sent again.
const MAX_RESENDS: u32 = 5;

/// A model call in flight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) call: u32,
    effect: EffectId,
    requested: u64,
    attempts: u32,
    /// Did the last attempt fail, without another to follow?
    pub(crate) cut_short: bool,
    /// Pauses in a row.
    pauses: u32,
    /// Was the model already asked again after an unusable answer?
    asked_again: bool,
}

impl Turn {
    pub(crate) const fn asked_again(&self) -> bool {
        self.asked_again
    }

    pub(crate) const fn pauses(&self) -> u32 {
        self.pauses
    }

    pub(crate) const fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn check_attempt(
        &self,
        effect: Option<EffectId>,
        attempted: &ModelAttempted,
    ) -> Result<(), Misuse> {
        self.check_answer(effect, "model.attempted", attempted.call)?;
        if attempted.attempt != self.attempts + 1 {
            return Err(Misuse::OutOfOrder {
                event: "model.attempted",
                actual: attempted.attempt,
                expected: self.attempts + 1,
            });
        }
        Ok(())
    }

    pub(crate) fn check_answer(
        &self,
        effect: Option<EffectId>,
        event: &'static str,
        call: u32,
    ) -> Result<(), Misuse> {
        if let Some(effect) = effect.filter(|effect| *effect != self.effect) {
            return Err(Misuse::Stale { epoch: effect.epoch, number: effect.number });
        }
        if call != self.call {
            return Err(Misuse::OutOfOrder { event, actual: call, expected: self.call });
        }
        Ok(())
    }
}

impl Machine {
    /// Is this the model call that is waited for?
    #[must_use]
    pub fn is_asking(&self, id: EffectId) -> bool {
        matches!(&self.phase, Phase::Asking(turn) if turn.effect == id)
    }

    /// Asks the model, unless it was asked as often as allowed.
    pub(crate) fn next_turn(&mut self, cause: u64) {
        let max = self.definition.limits.max_iterations;
        if self.usage.model_calls >= max {
            let failure = FailureCause::MaxIterations(max);
            let tripped = self.trip(cause, &failure);
            return self.fail(tripped, failure);
        }
        let call = self.usage.model_calls + 1;
        self.ask(cause, Ask { call, attempts: 0, pauses: 0, asked_again: false });
    }

    pub(crate) fn ask(&mut self, cause: u64, ask: Ask) {
        match self.definition.budget.for_model(&self.usage(), self.events()) {
            Some(exhausted) => self.exhaust(cause, exhausted),
            None => self.step_with_hooks(cause, Next::Ask(ask)),
        }
    }

    /// Asks the model, unless its hooks took the time that was left.
    pub(crate) fn ask_now(&mut self, cause: u64, ask: &Ask) {
        let Ask { call, attempts, pauses, asked_again } = *ask;
        let budget = self.definition.budget;
        if let Some(exhausted) = budget.for_model(&self.usage(), self.events()) {
            return self.exhaust(cause, exhausted);
        }
        self.usage.model_calls = call;
        if let Some(content) = self.further_input.take() {
            self.transcript.push(Message::user(content));
        }
        let messages = self.transcript.messages();
        for message in &messages[self.digested..] {
            self.request_digest.add(message);
        }
        self.digested = messages.len();
        let requested = ModelRequested {
            call,
            request_digest: self.request_digest.hex(),
            tools_digest: Arc::clone(&self.tools_digest),
            messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        };
        let requested = self.append(Actor::Machine, Some(cause), requested);
        let effect = self.next_effect();
        self.phase = Phase::Asking(Turn {
            call,
            effect,
            requested,
            attempts,
            cut_short: false,
            pauses,
            asked_again,
        });
        self.perform(Effect::CallModel(ModelCall {
            id: effect,
            call,
            attempts_before: attempts,
            messages: self.transcript.clone(),
            max_attempts: budget.attempts_left(&self.usage),
            max_output_tokens: budget.output_left(&self.usage),
        }));
    }

    pub(crate) fn model_attempted(&mut self, attempted: ModelAttempted) {
        let Phase::Asking(turn) = &mut self.phase else { return };
        turn.attempts += 1;
        turn.cut_short = attempted.code.is_some() && attempted.delay_ms.is_none();
        let requested = turn.requested;
        self.usage.model_attempts += 1;
        self.usage.add_tokens(attempted.usage.unwrap_or_default());
        self.append(Actor::Model, Some(requested), attempted);
    }

    pub(crate) fn model_failed(&mut self, failed: ModelFailed) {
        let Phase::Asking(turn) = &self.phase else { return };
        let cause =
            FailureCause::Model { reason: failed.reason.clone(), chain: failed.chain.clone() };
        let seq = self.append(Actor::Model, Some(turn.requested), failed);
        self.fail(seq, cause);
    }

    pub(crate) fn model_responded(&mut self, mut responded: ModelResponded) {
        let Phase::Asking(turn) = &self.phase else { return };
        let turn = turn.clone();
        self.give_unique_ids(&mut responded.tool_calls);
        let text = Arc::clone(&responded.text);
        if !text.trim().is_empty() {
            self.last_text = Arc::clone(&text);
        }
        let calls = Arc::clone(&responded.tool_calls);
        let stop_reason = responded.stop_reason;
        let state = responded.provider_state.clone();
        let seq = self.append(Actor::Model, Some(turn.requested), responded);
        self.step_with_hooks(seq, Next::Read(Answer { turn, text, calls, state, stop_reason }));
    }

    pub(crate) fn read_answer(&mut self, seq: u64, answer: Answer) {
        let said = answer.message();
        let Answer { turn, text, calls, state, stop_reason } = answer;
        let blank = text.trim().is_empty();
        let has_state = state.is_some();
        let text_count = self.guards.count_text(&text);
        if ends_without_tools(stop_reason) {
            self.cancel_calls(seq, &calls, "Cancelled: the model's answer was not usable");
        }
        match stop_reason {
            StopReason::Refusal => self.end_incomplete(seq, code::MODEL_REFUSAL, text),
            StopReason::ContentFilter => self.end_incomplete(seq, code::MODEL_CONTENT_FILTER, text),
            StopReason::ContextExceeded => self.fail(seq, FailureCause::ContextExceeded),
            StopReason::Malformed => {
                self.ask_again(
                    seq,
                    &turn,
                    "the model's answer was unusable twice, the last one malformed",
                );
            }
            _ if !calls.is_empty() => {
                self.transcript.push(said);
                self.begin_batch(seq, calls, text_count);
            }
            StopReason::MaxTokens => self.end_incomplete(seq, code::MODEL_MAX_TOKENS, text),
            StopReason::Pause => {
                if !blank || has_state {
                    self.transcript.push(said);
                }
                if let Some(tripped) = stagnation(&self.definition.limits, text_count) {
                    let failure = tripped.into();
                    let tripped = self.trip(seq, &failure);
                    return self.fail(tripped, failure);
                }
                if turn.pauses >= MAX_RESENDS {
                    let why = "the model paused its turn again and again";
                    return self.fail(seq, FailureCause::InvalidResponse(why));
                }
                let (call, attempts, pauses) = (turn.call, turn.attempts, turn.pauses + 1);
                let asked_again = turn.asked_again;
                self.ask(seq, Ask { call, attempts, pauses, asked_again });
            }
            _ if blank => {
                self.ask_again(seq, &turn, "the model's answer was unusable twice, the last one without text and tool calls");
            }
            _ => {
                self.transcript.push(said);
                match self.misfit(&text) {
                    Some(why) => self.answer_misfits(seq, &turn, &why),
                    None => self.finish(seq, Stop::Completed, text),
                }
            }
        }
    }

    /// Sends the same conversation once more after an unusable answer.
    fn ask_again(&mut self, cause: u64, turn: &Turn, why: &'static str) {
        if turn.asked_again {
            return self.fail(cause, FailureCause::InvalidResponse(why));
        }
        let (call, attempts) = (turn.call, turn.attempts);
        self.ask(cause, Ask { call, attempts, pauses: 0, asked_again: true });
    }

    fn end_incomplete(&mut self, cause: u64, reason: &'static str, text: Arc<str>) {
        if !text.is_empty() {
            self.transcript.push(Message::assistant(Arc::clone(&text), Arc::default()));
        }
        self.finish(cause, Stop::Incomplete { reason: Code::new(reason) }, text);
    }
}

/// Are the tool calls of an answer that stopped so never run?
const fn ends_without_tools(stop_reason: StopReason) -> bool {
    matches!(
        stop_reason,
        StopReason::Refusal
            | StopReason::ContentFilter
            | StopReason::ContextExceeded
            | StopReason::Malformed
    )
}
