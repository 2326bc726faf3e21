//! Hooks: where a run pauses for other people's code, and what a stop there means.

use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::{Actor, EventKind, HookAborted, HookFailed};
use layer0::message::{Message, ProviderState, StopReason, ToolCall, Transcript};
use serde::{Deserialize, Serialize};

use crate::io::{Effect, FailureCause, Finish, Misuse};
use crate::machine::{Machine, Phase};
use crate::turn::Turn;

/// Where in a run a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookPoint {
    /// After `run.started`, before the input is looked at.
    RunStart,
    /// Before the model is asked.
    BeforeModel,
    /// After the model answered, before the guards look at the answer.
    AfterModel,
    /// For gates: before a call is looked at. For observers: before an admitted call runs.
    BeforeTool,
    /// After a tool ran, before its answer is logged.
    AfterTool,
    /// Before the last event of the run.
    RunEnd,
}

impl HookPoint {
    /// Returns the text that stands in events and scenario files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunStart => "run_start",
            Self::BeforeModel => "before_model",
            Self::AfterModel => "after_model",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::RunEnd => "run_end",
        }
    }
}

/// What an agent's definition says of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is called.
    pub points: Vec<HookPoint>,
    /// Does the run go on when it fails?
    pub fail_open: bool,
}

/// A place between two steps at which hooks are called, and what they may know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Pause {
    /// The run has started.
    RunStart {
        /// What it was asked.
        input: Arc<str>,
    },
    /// The model is about to be asked.
    BeforeModel {
        /// Which call of the run.
        call: u32,
        /// What the model will be sent.
        messages: Transcript,
    },
    /// The model has answered.
    AfterModel {
        /// Which call of the run.
        call: u32,
        /// What it said.
        text: Arc<str>,
        /// What it asks for.
        tool_calls: Arc<[ToolCall]>,
        /// Why it stopped.
        stop_reason: StopReason,
    },
    /// The run is about to end like this.
    RunEnd(Finish),
}

impl Pause {
    /// Returns which hooks are called.
    #[must_use]
    pub const fn point(&self) -> HookPoint {
        match self {
            Self::RunStart { .. } => HookPoint::RunStart,
            Self::BeforeModel { .. } => HookPoint::BeforeModel,
            Self::AfterModel { .. } => HookPoint::AfterModel,
            Self::RunEnd(_) => HookPoint::RunEnd,
        }
    }
}

/// A step that waits for hooks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Paused {
    /// The seq of what led to the step.
    pub(crate) cause: u64,
    pub(crate) next: Next,
}

/// The step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    Start,
    Ask(Ask),
    Read(Answer),
    End(Finish),
}

/// A model call that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) call: u32,
    pub(crate) attempts: u32,
    pub(crate) pauses: u32,
    pub(crate) asked_again: bool,
}

/// A model answer that is about to be read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) turn: Turn,
    pub(crate) text: Arc<str>,
    pub(crate) calls: Arc<[ToolCall]>,
    pub(crate) state: Option<ProviderState>,
    pub(crate) stop_reason: StopReason,
}

impl Answer {
    /// Returns the answer as the conversation holds it.
    pub(crate) fn message(&self) -> Message {
        Message::Assistant {
            content: Arc::clone(&self.text),
            tool_calls: Arc::clone(&self.calls),
            provider_state: self.state.clone(),
        }
    }
}

impl Paused {
    pub(crate) const fn point(&self) -> HookPoint {
        match self.next {
            Next::Start => HookPoint::RunStart,
            Next::Ask(_) => HookPoint::BeforeModel,
            Next::Read(_) => HookPoint::AfterModel,
            Next::End(_) => HookPoint::RunEnd,
        }
    }
}

impl Machine {
    /// Goes on after a pause: its hooks were called and let the run go on.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotPaused`]; then nothing has changed.
    pub fn proceed(&mut self, at: Timestamp) -> Result<(), Misuse> {
        let Phase::Hooking(paused) = &self.phase else { return Err(Misuse::NotPaused) };
        let paused = paused.clone();
        self.advance(at);
        self.take_step(paused);
        Ok(())
    }

    /// Returns the point whose hooks are to be called now.
    #[must_use]
    pub const fn paused_at(&self) -> Option<HookPoint> {
        match &self.phase {
            Phase::Hooking(paused) => Some(paused.point()),
            _ => None,
        }
    }

    /// Takes a step, after the hooks of its point where there are some.
    pub(crate) fn step_with_hooks(&mut self, cause: u64, next: Next) {
        let paused = Paused { cause, next };
        let point = paused.point();
        if !self.definition.hooks.iter().any(|hook| hook.points.contains(&point)) {
            return self.take_step(paused);
        }
        let pause = self.pause_of(&paused);
        self.phase = Phase::Hooking(paused);
        self.perform(Effect::RunHooks(pause));
    }

    /// Returns what the hooks of a pause may know.
    pub(crate) fn pause_of(&self, paused: &Paused) -> Pause {
        match &paused.next {
            Next::Start => Pause::RunStart { input: Arc::clone(&self.input) },
            Next::Ask(ask) => {
                Pause::BeforeModel { call: ask.call, messages: self.transcript.clone() }
            }
            Next::Read(answer) => Pause::AfterModel {
                call: answer.turn.call,
                text: Arc::clone(&answer.text),
                tool_calls: Arc::clone(&answer.calls),
                stop_reason: answer.stop_reason,
            },
            Next::End(finish) => Pause::RunEnd(finish.clone()),
        }
    }

    fn take_step(&mut self, paused: Paused) {
        let Paused { cause, next } = paused;
        match next {
            Next::Start => self.look_at_input(cause),
            Next::Ask(ask) => self.ask_now(cause, &ask),
            Next::Read(answer) => self.read_answer(cause, answer),
            Next::End(finish) => self.conclude(cause, finish),
        }
    }

    /// May a hook stop the run here?
    pub(crate) fn check_hook(&self, event: &'static str, point: &str) -> Result<(), Misuse> {
        let fits = match &self.phase {
            Phase::Hooking(paused) => paused.point().as_str() == point,
            Phase::Working(_) => [HookPoint::BeforeTool, HookPoint::AfterTool]
                .map(HookPoint::as_str)
                .contains(&point),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(Misuse::Unexpected { event, state: self.phase.name() })
    }

    pub(crate) fn hook_failed(&mut self, failed: HookFailed) {
        if failed.fail_open {
            return self.note(failed.into());
        }
        let cause = FailureCause::HookRejected {
            hook: Arc::clone(&failed.hook),
            message: Arc::clone(&failed.message),
        };
        self.stopped_by_hook(failed.into(), cause);
    }

    pub(crate) fn hook_aborted(&mut self, aborted: HookAborted) {
        let cause = FailureCause::Aborted {
            hook: Arc::clone(&aborted.hook),
            reason: Arc::clone(&aborted.message),
        };
        self.stopped_by_hook(aborted.into(), cause);
    }

    fn stopped_by_hook(&mut self, event: EventKind, failure: FailureCause) {
        let answer_follows = match &event {
            EventKind::HookFailed(HookFailed { point, call_id: Some(id), .. })
            | EventKind::HookAborted(HookAborted { point, call_id: Some(id), .. }) => {
                (&**point == HookPoint::AfterTool.as_str()).then(|| id.clone())
            }
            _ => None,
        };
        let cause = self.cause_of(&event);
        let seq = self.append(Actor::Runtime, cause, event);
        match (&mut self.phase, answer_follows) {
            (Phase::Working(batch), Some(id)) if batch.is_running(&id) => {
                batch.stop_after(id, seq, failure);
            }
            // It ended already; what it ended with stays, unless that was no failure.
            (Phase::Hooking(Paused { next: Next::End(finish), .. }), _) => {
                let finish = match finish {
                    failed @ Finish::Failed(_) => failed.clone(),
                    Finish::Stopped { .. } => Finish::Failed(failure),
                };
                self.conclude(seq, finish);
            }
            _ => {
                self.answer_open_calls(seq, "Cancelled: the run was stopped by a hook");
                self.fail(seq, failure);
            }
        }
    }

    /// Answers the calls of an answer that nobody will read.
    pub(crate) fn answer_unread_calls(&mut self, cause: u64, text: &str) {
        let Phase::Hooking(Paused { next: Next::Read(answer), .. }) = &self.phase else { return };
        let (said, calls) = (answer.message(), Arc::clone(&answer.calls));
        if calls.is_empty() && answer.text.trim().is_empty() {
            return;
        }
        self.cancel_calls(cause, &calls, text);
        self.transcript.push(said);
        for call in calls.iter() {
            self.transcript.push(Message::tool(call.id.clone(), text, true));
        }
    }
}
