//! Going on after the process that ran a run has died, and in copies of a run.

use std::sync::Arc;

use layer0::event::{
    Actor, EventKind, RunForked, RunRecovered, RunResumed, SignalReceived, ToolFailure,
    ToolResponded,
};
use layer0::id::{CallId, RunId};
use layer0::message::{Message, ToolCall};
use layer0::{Code, Timestamp, code};
use serde_json::json;

use crate::batch::CallState;
use crate::hooks::Ask;
use crate::io::{Effect, Entry, Misuse, ToolBatch};
use crate::machine::{Machine, Phase};

/// The signal that says something to the model before it is asked next: a `signal.received` of this
/// name, with the text as its data.
pub const INPUT: &str = "input";

/// What the model reads of a call that may have acted when the process died.
const INTERRUPTED: &str = "Interrupted: may already have acted";

impl Machine {
    /// Returns what a process left open that died here: calls to run again because that does no
    /// harm, calls that may have acted, and how many model attempts were lost.
    #[must_use]
    pub fn lost(&self) -> RunRecovered {
        let mut lost = RunRecovered { rerun: Vec::new(), interrupted: Vec::new(), models: 0 };
        match &self.phase {
            Phase::Asking(_) => lost.models = 1,
            Phase::Working(batch) => {
                for call in &batch.calls {
                    if !matches!(call.state, CallState::Open { .. }) {
                        continue;
                    }
                    let again = if self.is_idempotent(&call.tool) {
                        &mut lost.rerun
                    } else {
                        &mut lost.interrupted
                    };
                    again.push(call.id.clone());
                }
            }
            _ => {}
        }
        lost
    }

    fn is_idempotent(&self, tool: &str) -> bool {
        self.definition.tools.iter().any(|spec| *spec.name == *tool && spec.idempotent)
    }

    /// Is everything that is open sorted out, and nothing else?
    pub(crate) fn check_recovered(&self, recovered: &RunRecovered) -> Result<(), Misuse> {
        let Phase::Working(batch) = &self.phase else {
            return match recovered.rerun.iter().chain(&recovered.interrupted).next() {
                Some(id) => Err(Misuse::UnknownCall(id.clone())),
                None => Ok(()),
            };
        };
        let named = || recovered.rerun.iter().chain(&recovered.interrupted);
        if let Some(id) = named().find(|id| !batch.is_running(id)) {
            return Err(Misuse::UnknownCall(id.clone()));
        }
        let is_open = |state: &CallState| matches!(state, CallState::Open { .. });
        let open = batch.calls.iter().filter(|call| is_open(&call.state)).count();
        if open == named().count() {
            return Ok(());
        }
        Err(Misuse::Unexpected { event: "run.recovered", state: "other calls are open too" })
    }

    /// Does again what was open, and answers what must not be done again.
    pub(crate) fn recovered(&mut self, before: Timestamp, recovered: RunRecovered) {
        self.skip_time_since(before);
        self.epoch += 1;
        let (interrupted, models) = (recovered.interrupted.clone(), recovered.models);
        let seq = self.append(Actor::Runtime, None, recovered);
        match &self.phase {
            Phase::Asking(turn) => {
                self.usage.model_attempts += models;
                let (call, attempts) = (turn.call, turn.attempts() + models);
                let (pauses, asked_again) = (turn.pauses(), turn.asked_again());
                self.ask(seq, Ask { call, attempts, pauses, asked_again });
            }
            Phase::Working(_) => self.work_again(seq, &interrupted),
            Phase::Hooking(paused) => {
                let pause = self.pause_of(paused);
                self.perform(Effect::RunHooks(pause));
            }
            Phase::Recalling => {
                self.perform(Effect::ReadMemory { input: Arc::clone(&self.input) });
            }
            Phase::Memorizing { output, .. } => {
                let output = Arc::clone(output);
                self.perform(Effect::WriteMemory { input: Arc::clone(&self.input), output });
            }
            Phase::New | Phase::Done(_) => {}
        }
    }

    fn work_again(&mut self, cause: u64, interrupted: &[CallId]) {
        let Phase::Working(batch) = &self.phase else { return };
        let (mut rerun, mut asked, mut decided, mut held) = (vec![], vec![], vec![], vec![]);
        for call in &batch.calls {
            match &call.state {
                CallState::Open { .. } if !interrupted.contains(&call.id) => {
                    rerun.push(call.id.clone());
                }
                CallState::Asked => asked.push(call.id.clone()),
                CallState::Decided { approval, .. } => decided.push(ToolCall {
                    id: approval.call_id.clone(),
                    name: Arc::clone(&approval.tool),
                    arguments: approval.arguments.clone(),
                }),
                CallState::Held { approval, .. } => held.push(approval.clone()),
                CallState::Open { .. } | CallState::Answered { .. } => {}
            }
        }
        for call_id in rerun {
            let id = self.next_effect();
            if let Phase::Working(batch) = &mut self.phase {
                batch.rerun(&call_id, id);
            }
            self.perform(Effect::Rerun { id, call_id });
        }
        let max_executions = self.executions_left();
        if !asked.is_empty() {
            let calls = self.last_calls().iter().filter(|call| asked.contains(&call.id));
            let calls = calls.cloned().collect();
            self.perform(Effect::AdmitTools(ToolBatch { calls, max_executions, approved: false }));
        }
        if !decided.is_empty() {
            let calls = decided.into();
            self.perform(Effect::AdmitTools(ToolBatch { calls, max_executions, approved: true }));
        }
        for approval in held {
            self.perform(Effect::AskApproval(approval));
        }
        for id in interrupted {
            self.answer_call(Actor::Machine, Some(cause), self.interrupted(id));
        }
        self.wait_if_idle(cause);
    }

    fn interrupted(&self, id: &CallId) -> ToolResponded {
        let tool = match &self.phase {
            Phase::Working(batch) => batch.find(id).map(|call| Arc::clone(&call.tool)).ok(),
            _ => None,
        };
        ToolResponded {
            call_id: id.clone(),
            tool: tool.unwrap_or_default(),
            ok: false,
            output: json!({ "error": INTERRUPTED }),
            duration_ms: 0,
            error: Some(ToolFailure {
                reason: Code::new(code::TOOL_INTERRUPTED),
                code: None,
                message: INTERRUPTED.into(),
                error_id: None,
            }),
        }
    }

    /// Returns the calls of the answer that is worked on.
    fn last_calls(&self) -> &[ToolCall] {
        let messages = self.transcript.messages().iter().rev();
        let calls = messages.filter_map(|message| match &**message {
            Message::Assistant { tool_calls, .. } => Some(&tool_calls[..]),
            _ => None,
        });
        calls.into_iter().next().unwrap_or_default()
    }

    /// Goes on with a run that waited, in another process perhaps.
    pub(crate) fn resumed(&mut self, before: Timestamp, resumed: RunResumed) {
        if !self.is_waiting() {
            self.skip_time_since(before);
        }
        self.epoch += 1;
        self.append(Actor::Runtime, None, resumed);
    }

    /// Becomes `child`, a copy of its run, which was cut before `beyond` was recorded. What was decided there
    /// is decided again after `run.forked`; questions to people and to the model are asked anew.
    pub fn fork(&mut self, at: Timestamp, child: RunId, forked: RunForked, beyond: Vec<Entry>) {
        self.approvals.run = Some(child);
        let before = self.now();
        self.advance(at);
        self.seq -= u64::try_from(beyond.len()).unwrap_or(0);
        self.skip_time_since(before);
        self.approvals.stop_waiting();
        if let Phase::Working(batch) = &mut self.phase {
            batch.ask_anew();
        }
        self.append(Actor::Runtime, None, forked);
        for Entry { kind, .. } in beyond {
            if !matches!(kind, EventKind::ModelRequested(_) | EventKind::RunWaiting(_)) {
                self.append(Actor::Machine, None, kind);
            }
        }
    }

    /// Does not count the time in which nobody ran the run.
    fn skip_time_since(&mut self, before: Timestamp) {
        self.started = self.started.after(self.now().since(before));
    }

    /// Keeps something to say until the model is asked next.
    pub(crate) fn input_received(&mut self, signal: SignalReceived) {
        self.further_input = signal.data.as_str().map(Arc::from);
        self.append(Actor::Person, None, signal);
    }
}
