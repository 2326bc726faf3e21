//! Pauses of a run for hooks, and stops by hooks.

use std::sync::Arc;

use layer0::event::{Actor, HookPassed};

use super::MachineState;
use super::step::HookStop;
use crate::io::{MachineAction, Pause};
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, StoppedByHook};
use crate::phase::paused::{Paused, PausedStep, PlannedEnd, UnreadAnswer};

/// Text for calls that a hook kept from running.
const STOPPED: &str = "Cancelled: the run was stopped by a hook";

impl MachineState {
    /// Takes a step, after the hooks of its point if there are any.
    pub(super) fn pause_before(&mut self, cause: u64, step: PausedStep) -> RunPhase {
        let paused = Paused { cause, step };
        let point = paused.point();
        if !self.definition.hooks.iter().any(|hook| hook.points.contains(&point)) {
            return self.take_step(paused);
        }
        self.call_hooks(&paused);
        RunPhase::Hooking(paused)
    }

    pub(super) fn call_hooks(&mut self, paused: &Paused) {
        let pause = self.build_pause(&paused.step);
        self.perform(MachineAction::RunHooks(pause));
    }

    /// Returns the data for the hooks of a step.
    fn build_pause(&self, step: &PausedStep) -> Pause {
        match step {
            PausedStep::Start => Pause::RunStart { input: Arc::clone(self.conversation.input()) },
            PausedStep::Ask(ask) => Pause::BeforeModel {
                call: ask.call,
                messages: self.conversation.transcript().clone(),
            },
            PausedStep::Read(answer) => Pause::AfterModel {
                call: answer.turn.ask().call,
                text: Arc::clone(&answer.text),
                tool_calls: Arc::clone(&answer.calls),
                stop_reason: answer.stop_reason.clone(),
            },
            PausedStep::End(ending) => Pause::RunEnd(ending.finish()),
        }
    }

    /// Continues after a pause whose hooks let the run continue.
    pub(super) fn hook_passed(&mut self, paused: &Paused, passed: HookPassed) -> RunPhase {
        self.append(Actor::Runtime, Some(paused.cause), passed);
        self.take_step(paused.clone())
    }

    fn take_step(&mut self, paused: Paused) -> RunPhase {
        let Paused { cause, step } = paused;
        match step {
            PausedStep::Start => self.look_at_input(cause),
            PausedStep::Ask(ask) => self.ask_now(cause, ask),
            PausedStep::Read(answer) => self.read_answer(cause, answer),
            PausedStep::End(ending) => self.conclude(cause, &ending),
        }
    }

    /// Stops the run by a hook, once the call that the hook concerns has its answer.
    pub(super) fn hook_stopped(
        &mut self,
        phase: &mut RunPhase,
        stop: HookStop,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        let failure = stop.failure();
        let answer_follows = stop.after_tool().cloned();
        let event = stop.into_event();
        let cause = phase.find_cause(&event);
        let seq = self.append(Actor::Runtime, cause, event);
        match (phase, answer_follows) {
            (RunPhase::Working(batch), Some(call)) if batch.is_running(&call) => {
                batch.stop_after(call, seq, failure);
                None
            }
            // The run had already ended; its end remains, unless it was not a failure.
            (RunPhase::Hooking(Paused { step: PausedStep::End(ending), .. }), _) => {
                Some(match ending {
                    PlannedEnd::Failed(_) => self.conclude(seq, ending),
                    PlannedEnd::Stopped(_) => self.conclude(seq, &PlannedEnd::Failed(failure)),
                })
            }
            (phase, _) => {
                self.answer_open(phase, seq, STOPPED);
                Some(self.fail(seq, failure))
            }
        }
    }

    /// Stops the run by a hook that concerned a call which now has its answer.
    pub(super) fn stop_by_hook(
        &mut self,
        batch: &mut CallBatch,
        stopped: StoppedByHook,
    ) -> RunPhase {
        let StoppedByHook { cause, failure } = stopped;
        self.answer_batch(batch, cause, STOPPED);
        self.fail(cause, failure)
    }

    /// Answers the calls of an answer that will not be read.
    pub(super) fn answer_unread(&mut self, answer: &UnreadAnswer, cause: u64, text: &str) {
        if answer.is_said {
            self.conversation.push(answer.message());
            self.answer_unrun(cause, &answer.calls, text);
        } else {
            self.cancel_calls(cause, &answer.calls, text);
        }
    }
}
