//! Recovery after the death of a run's process, and in forks of a run.

use layer0::event::{
    Actor, EventKind, RunForked, RunRecovered, SignalReceived, ToolResponded, Verdict,
};
use layer0::id::{CallId, RunId};
use layer0::{Code, Timestamp, ToolSpec, code};

use super::{Machine, MachineState};
use crate::io::{MachineAction, MachineEntry};
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, Sorted, UnfinishedCalls};
use crate::phase::turn::PlannedModelCall;

impl Machine {
    /// Returns the steps that a process that died left open: calls that are safe to run again, calls that may have
    /// acted, calls whose tools can probe whether they happened, and the number of lost model attempts. Calls that only
    /// dispatch are left out, because they continue, except if a child run keeps no record, and in a fork, where the
    /// child runs belong to the original. Calls that a person settled are also left out.
    #[must_use]
    pub fn find_lost_steps(&self) -> RunRecovered {
        let mut lost = RunRecovered::new(Vec::new(), Vec::new(), 0);
        let has_attempts =
            self.run.meter.budget().remaining_allowance(&self.run.usage()).model_calls != Some(0);
        if matches!(&self.phase, RunPhase::Asking(turn) if turn.is_in_flight() && has_attempts) {
            lost.models = 1;
        }
        // Nothing is repeated that killed the process each time.
        let is_last = self.is_crash_loop();
        let mut left = if is_last { 0 } else { self.executions_left() };
        let is_copied = self.phase.batch().is_some_and(CallBatch::is_copied);
        let Some(batch) = self.phase.batch() else { return lost };
        let running = batch.running().filter(|(call, _)| !batch.is_settled(call));
        for (call, tool) in running.filter(|(id, tool)| is_copied || !self.run.goes_on(id, tool)) {
            let Some(spec) = self.run.spec(tool) else {
                lost.interrupted.push(call.clone());
                continue;
            };
            let is_repeatable = spec.idempotent && !self.run.begun_otherwise.contains_key(call);
            // Running it again is a further execution.
            if left > 0 && is_repeatable {
                left -= 1;
                lost.rerun.push(call.clone());
            // In a fork the call has the key of the original run.
            } else if spec.probe && !is_repeatable && !is_last && !is_copied {
                lost.probing.push(call.clone());
            } else {
                lost.interrupted.push(call.clone());
            }
        }
        lost
    }

    /// Returns the steps that a process left open in a run that is ended now: nothing runs again or continues.
    #[must_use]
    pub fn lost_for_good(&self) -> RunRecovered {
        let batch = self.phase.batch().into_iter();
        let running =
            batch.flat_map(|batch| batch.running().filter(|(call, _)| !batch.is_settled(call)));
        let interrupted = running.map(|(call, _)| call.clone()).collect();
        RunRecovered::new(Vec::new(), interrupted, self.find_lost_steps().models)
    }

    /// Returns whether a call continues after its process died, because it only dispatches runs with records.
    #[must_use]
    pub fn is_gone_on_with(&self, call: &CallId) -> bool {
        self.phase.batch().is_some_and(|batch| {
            let mut running = batch.running().filter(|(id, _)| !batch.is_settled(id));
            running.any(|(id, tool)| id == call && self.run.goes_on(id, tool))
        })
    }

    /// Returns whether the run ends with the next recovery, because its process died again and again at this step.
    /// Child runs with records count their own crashes.
    #[must_use]
    pub fn is_crash_loop(&self) -> bool {
        self.run.crashes.is_last() && !self.run.only_waits_below(&self.phase)
    }

    /// Becomes `child`, a fork of its run that was cut before `beyond` was recorded. The decisions in `beyond` are made
    /// again after `run.forked`; approvals and the model's answer are requested again.
    pub fn fork(
        &mut self,
        at: Timestamp,
        child: RunId,
        forked: RunForked,
        beyond: Vec<MachineEntry>,
    ) {
        let Self { phase, run } = self;
        run.id = child;
        let before = run.clock.now();
        run.clock.advance(at);
        run.outbox.forget(beyond.len());
        run.clock.skip_since(before);
        run.clock.forget_waiting();
        // The child runs of the original are not those of the fork.
        run.meter.forget_dispatches();
        run.crashes.begin_copy();
        run.unsettled.begin_copy();
        run.is_copy_of_an_end = matches!(phase, RunPhase::Done(_));
        if let RunPhase::Working(batch) = phase {
            batch.ask_anew();
        }
        run.append(Actor::Runtime, None, forked);
        for MachineEntry { kind, .. } in beyond {
            if !matches!(kind, EventKind::ModelRequested(_) | EventKind::RunWaiting(_)) {
                run.append(Actor::Machine, None, kind);
            }
        }
    }
}

impl MachineState {
    pub(super) fn spec(&self, tool: &str) -> Option<&ToolSpec> {
        self.definition.tools.iter().find(|spec| *spec.name == *tool)
    }

    /// Returns whether a call of this tool may be repeated after it may have acted.
    pub(super) fn is_idempotent(&self, tool: &str) -> bool {
        self.spec(tool).is_some_and(|spec| spec.idempotent)
    }

    /// Repeats open steps, and answers those that must not be repeated.
    pub(super) fn recover(
        &mut self,
        phase: &mut RunPhase,
        sorted: &Sorted,
        before: Timestamp,
        recovered: RunRecovered,
    ) -> Option<RunPhase> {
        self.clock.skip_since(before);
        self.outbox.begin_epoch();
        // Child runs with records count their own crashes.
        let RunRecovered { rerun, interrupted, probing, .. } = &recovered;
        let is_named = rerun.iter().chain(interrupted).chain(probing).next().is_some();
        if (is_named || !self.only_waits_below(phase)) && self.crashes.count() {
            return Some(self.end_crash_loop(phase, recovered));
        }
        self.meter.count_executions(u32::try_from(recovered.rerun.len()).unwrap_or(u32::MAX));
        let models = recovered.models;
        let seq = self.append(Actor::Runtime, None, recovered);
        if let RunPhase::Working(batch) = phase {
            // The requester died with its process; a call that runs again asks again.
            self.end_asking(batch.end_all_asking(), &Code::new(code::TOOL_INTERRUPTED));
        }
        match phase {
            RunPhase::Asking(turn) => {
                let ask = turn.ask();
                self.meter.count_lost_attempts(models);
                let attempts = ask.attempts.saturating_add(models);
                return Some(self.ask(seq, PlannedModelCall { attempts, ..ask }));
            }
            RunPhase::Working(batch) => return self.work_again(seq, batch, sorted),
            RunPhase::Hooking(paused) => self.call_hooks(paused),
            RunPhase::Recalling => self.read_memory(),
            RunPhase::Memorizing(stopped) => self.write_memory(&stopped.output),
            // A fork does not inherit the wait of the original, and asks itself.
            RunPhase::Parked(ask) | RunPhase::Short(ask) if !self.clock.is_waiting() => {
                return Some(self.ask(seq, *ask));
            }
            // The run waits; the process that resumes it asks its caller again.
            RunPhase::Short(_) | RunPhase::Parked(_) | RunPhase::New | RunPhase::Done(_) => {}
        }
        None
    }

    fn work_again(
        &mut self,
        cause: u64,
        batch: &mut CallBatch,
        sorted: &Sorted,
    ) -> Option<RunPhase> {
        if batch.is_doubtful() {
            // The approvals may have been decided in lost events.
            self.clock.end_waiting();
        }
        let left = batch.take_unfinished(sorted, |tool| self.is_idempotent(tool));
        let UnfinishedCalls { rerun, settled, doubtful, asked, decided, changed, held } = left;
        for place in rerun {
            let id = self.outbox.next_effect();
            let call_id = batch.rerun(place, id);
            self.perform(MachineAction::Rerun { id, call_id });
        }
        for place in &sorted.probing {
            let id = self.outbox.next_effect();
            let call_id = batch.rerun(*place, id);
            self.perform(MachineAction::Probe { id, call_id });
        }
        if !asked.is_empty() && batch.is_short() {
            if !self.clock.is_waiting() {
                self.wait_for_budget(cause);
            }
        } else if !asked.is_empty() {
            let calls = self.conversation.last_calls().iter();
            let calls = calls.filter(|call| asked.contains(&call.id)).cloned().collect();
            self.admit(calls);
        }
        if !decided.is_empty() {
            self.admit_approved(decided.into(), false);
        }
        if !changed.is_empty() {
            self.admit_approved(changed.into(), true);
        }
        for approval in held {
            self.perform(MachineAction::AskApproval(approval));
        }
        let interrupted = sorted.interrupted.iter().chain(&doubtful).map(|place| {
            let (id, tool) = batch.call_at(*place);
            (*place, ToolResponded::from_verdict(id, tool, Verdict::Unknown, None))
        });
        let answers: Vec<_> = settled.into_iter().chain(interrupted).collect();
        let mut last = cause;
        for (place, answer) in answers {
            if doubtful.contains(&place) {
                self.note_outcome(&answer);
            }
            match self.answer_call(batch, place, Actor::Machine, cause, answer) {
                Ok(seq) => last = seq,
                Err(stopped) => return Some(self.stop_by_hook(batch, stopped)),
            }
        }
        self.go_on(batch, last)
    }

    /// Keeps a text for the model's next request.
    pub(super) fn input_received(&mut self, signal: SignalReceived) -> Option<RunPhase> {
        if let Some(text) = signal.data.as_str() {
            self.conversation.add_further_input(text);
        }
        self.append(Actor::Person, None, signal);
        None
    }
}
