//! Model calls: requests, resends, reading the answer.

use std::sync::Arc;

use layer0::event::{
    Actor, BudgetExhausted, ModelAttempted, ModelFailed, ModelRequested, ModelResponded,
};
use layer0::message::{Message, StopReason, ToolCall};
use layer0::stop::Stop;
use layer0::{Code, code};

use super::MachineState;
use crate::failure::FailureCause;
use crate::io::{MachineAction, ModelCall};
use crate::phase::RunPhase;
use crate::phase::paused::{PausedStep, Stopped, UnreadAnswer};
use crate::phase::turn::{OpenModelCall, PlannedModelCall};

/// Maximum number of consecutive resends of a paused turn.
const MAX_RESENDS: u32 = 5;

impl MachineState {
    /// Calls the model, unless the limit of calls is reached.
    pub(super) fn next_turn(&mut self, cause: u64) -> RunPhase {
        let (max, made) = (self.definition.limits.max_iterations, self.meter.model_calls());
        if made.saturating_sub(self.calls_before) >= max {
            let failure = FailureCause::MaxIterations(max);
            let tripped = self.trip(cause, &failure);
            return self.fail(tripped, failure);
        }
        self.ask(cause, PlannedModelCall::first(made.saturating_add(1)))
    }

    pub(super) fn ask(&mut self, cause: u64, ask: PlannedModelCall) -> RunPhase {
        match self.meter.budget().for_model(&self.usage(), self.events()) {
            Some(exhausted) => self.wait_or_exhaust(cause, ask, exhausted),
            None => self.pause_before(cause, PausedStep::Ask(ask)),
        }
    }

    /// Calls the model, unless its hooks used up the remaining time.
    pub(super) fn ask_now(&mut self, cause: u64, ask: PlannedModelCall) -> RunPhase {
        if let Some(exhausted) = self.meter.budget().for_model(&self.usage(), self.events()) {
            return self.exhaust(cause, &exhausted);
        }
        self.meter.begin_model_call(ask.call);
        let request = self.conversation.next_request();
        let requested =
            ModelRequested::new(ask.call, request.digest, request.tools_digest, request.messages);
        let requested = self.append(Actor::Machine, Some(cause), requested);
        let id = self.outbox.next_effect();
        self.perform(MachineAction::CallModel(ModelCall {
            id,
            call: ask.call,
            attempts_before: ask.attempts,
            left: self.meter.budget().remaining_allowance(&self.usage()),
        }));
        RunPhase::Asking(OpenModelCall::new(ask, id, requested))
    }

    pub(super) fn model_attempted(
        &mut self,
        turn: &mut OpenModelCall,
        attempted: ModelAttempted,
    ) -> Option<RunPhase> {
        turn.count_attempt(&attempted);
        self.meter.count_attempt(&attempted);
        self.append(Actor::Model, Some(turn.request_seq()), attempted);
        None
    }

    pub(super) fn model_failed(&mut self, turn: OpenModelCall, failed: ModelFailed) -> RunPhase {
        let failure = FailureCause::Model {
            reason: failed.reason.clone(),
            chain: failed.chain.clone(),
            retry: failed.retry,
        };
        let seq = self.append(Actor::Model, Some(turn.request_seq()), failed);
        self.fail(seq, failure)
    }

    /// Ends the run because a spend limit is reached; that is a fact from outside.
    pub(super) fn stop_at_spend_limit(
        &mut self,
        turn: OpenModelCall,
        exhausted: BudgetExhausted,
    ) -> RunPhase {
        let reason = exhausted.reason.clone();
        let seq = self.append(Actor::Runtime, Some(turn.request_seq()), exhausted);
        let text = Arc::clone(self.conversation.last_text());
        self.finish(seq, Stopped::new(Stop::BudgetExhausted { reason }, text))
    }

    pub(super) fn model_responded(
        &mut self,
        turn: OpenModelCall,
        mut responded: ModelResponded,
    ) -> RunPhase {
        self.conversation.give_unique_ids(&mut responded.tool_calls);
        self.conversation.note_text(&responded.text);
        let answer = UnreadAnswer {
            turn,
            text: Arc::clone(&responded.text),
            output: responded.answer.clone(),
            calls: Arc::clone(&responded.tool_calls),
            state: responded.provider_state.clone(),
            stop_reason: responded.stop_reason.clone(),
            is_said: responded.is_said(),
        };
        let seq = self.append(Actor::Model, Some(turn.request_seq()), responded);
        self.pause_before(seq, PausedStep::Read(answer))
    }

    pub(super) fn read_answer(&mut self, seq: u64, answer: UnreadAnswer) -> RunPhase {
        let said = answer.message();
        let is_empty = answer.is_empty();
        let UnreadAnswer { turn, text, output, calls, state, stop_reason, .. } = answer;
        // A paused answer is continued: the turn's last answer counts.
        let text_count = match stop_reason {
            StopReason::Pause => None,
            _ => self.guards.count_text(&text),
        };
        match stop_reason {
            StopReason::End | StopReason::ToolUse if !calls.is_empty() => {
                self.conversation.push(said);
                self.begin_batch(seq, calls, text_count)
            }
            StopReason::End | StopReason::ToolUse if is_empty => self.ask_again(
                seq,
                turn,
                "the model's answer was unusable twice, the last one without text and tool calls",
            ),
            StopReason::End | StopReason::ToolUse => {
                self.conversation.push(said);
                let output = output.unwrap_or(text);
                match self.output_check.as_ref().and_then(|check| check.misfit(&output)) {
                    Some(why) => self.answer_misfits(seq, turn, &why),
                    None => self.finish(seq, Stopped::new(Stop::Completed, output)),
                }
            }
            StopReason::ContextExceeded => {
                self.cancel_calls(seq, &calls, "Cancelled: the context was used up");
                self.fail(seq, FailureCause::ContextExceeded)
            }
            StopReason::Malformed => {
                self.cancel_calls(seq, &calls, "Cancelled: the model's answer was malformed");
                self.ask_again(
                    seq,
                    turn,
                    "the model's answer was unusable twice, the last one malformed",
                )
            }
            StopReason::Pause => {
                if !is_empty || state.is_some() {
                    self.conversation.push(said);
                }
                self.answer_unrun(seq, &calls, "Cancelled: the model's turn was paused");
                // A paused turn is no iteration: its own bound ends it.
                self.resend(seq, turn)
            }
            cut => self.end_incomplete(seq, &cut, said, text, &calls),
        }
    }

    /// Sends the conversation again after a pause.
    fn resend(&mut self, cause: u64, turn: OpenModelCall) -> RunPhase {
        let ask = turn.ask();
        if ask.pauses >= MAX_RESENDS {
            let text = Arc::clone(self.conversation.last_text());
            return self.finish(cause, Stopped::new(incomplete(code::MODEL_PAUSE), text));
        }
        self.ask(cause, PlannedModelCall { pauses: ask.pauses + 1, ..ask })
    }

    /// Sends the same conversation once more after an unusable answer.
    fn ask_again(&mut self, cause: u64, turn: OpenModelCall, why: &'static str) -> RunPhase {
        let ask = turn.ask();
        if ask.asked_again {
            return self.fail(cause, FailureCause::InvalidResponse(why.into()));
        }
        self.ask(cause, PlannedModelCall { pauses: 0, asked_again: true, ..ask })
    }

    /// Sends the model the error of its answer once; the second time the run fails.
    fn answer_misfits(&mut self, cause: u64, turn: OpenModelCall, why: &str) -> RunPhase {
        let ask = turn.ask();
        if ask.asked_again {
            return self.fail(cause, FailureCause::OutputInvalid(why.into()));
        }
        self.conversation.push_own_words(format!(
            "The answer does not fit the schema: {why}. Answer again with nothing but JSON that does."
        ));
        self.ask(cause, PlannedModelCall { pauses: 0, asked_again: true, ..ask })
    }

    /// Ends the run with the text of a cut answer. None of its calls runs, because they may be cut too.
    fn end_incomplete(
        &mut self,
        cause: u64,
        cut: &StopReason,
        said: Message,
        text: Arc<str>,
        calls: &[ToolCall],
    ) -> RunPhase {
        let mut unknown_reason = None;
        let (reason, why) = match cut {
            StopReason::MaxTokens => {
                (code::MODEL_MAX_TOKENS, "the model's answer was cut at the output token limit")
            }
            StopReason::Refusal => (code::MODEL_REFUSAL, "the model refused to answer"),
            StopReason::ContentFilter => {
                (code::MODEL_CONTENT_FILTER, "a content filter cut the model's answer")
            }
            unknown => {
                unknown_reason = Some(unknown.as_str().into());
                (code::MODEL_UNKNOWN_STOP, "the model's answer stopped for an unknown reason")
            }
        };
        if !calls.is_empty() {
            self.conversation.push(said);
            self.answer_unrun(cause, calls, &format!("Cancelled: {why}"));
        } else if !text.is_empty() {
            self.conversation.push(Message::assistant(Arc::clone(&text), Arc::default()));
        }
        self.finish(cause, Stopped { stop: incomplete(reason), output: text, unknown_reason })
    }
}

const fn incomplete(reason: &'static str) -> Stop {
    Stop::Incomplete { reason: Code::new(reason) }
}
