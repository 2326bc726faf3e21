//! Tool batches: admission, executions, answers in call order.

use std::sync::Arc;

use layer0::event::{Actor, ErrorStored, ToolAttempted, ToolRequested, ToolResponded};
use layer0::id::CallId;
use layer0::message::{Message, ToolCall};
use layer0::{Code, JsonText, code};

use super::{Machine, MachineState};
use crate::failure::FailureCause;
use crate::io::{MachineAction, ToolBatch, ToolRun};
use crate::phase::RunPhase;
use crate::phase::batch::{AnswerOrigin, CallBatch, CallIndex, Closed, StoppedByHook};
use crate::tool_message::with_note;

impl Machine {
    /// Returns the number of executions that may still begin, including repeated ones.
    #[must_use]
    pub fn executions_left(&self) -> u32 {
        self.run.executions_left()
    }

    /// Returns the number of the run's next execution: 1, 2, ….
    #[must_use]
    pub const fn next_execution(&self) -> u32 {
        self.run.meter.next_execution()
    }

    /// Returns code and count of a call that failed so often in a row that it must not run again.
    #[must_use]
    pub fn repeated_failure(&self, name: &str, arguments: &JsonText) -> Option<(Arc<str>, u32)> {
        let MachineState { guards, definition, .. } = &self.run;
        let taken = || definition.canonicalize_arguments(name, arguments);
        guards.repeated_failure(&definition.limits, name, taken)
    }
}

impl MachineState {
    /// Begins a batch, unless a guard trips: too many calls, then stagnation, then a loop. All of them count first, and
    /// no call of a batch that trips one runs.
    pub(super) fn begin_batch(
        &mut self,
        responded: u64,
        calls: Arc<[ToolCall]>,
        text: Option<(u64, u32)>,
    ) -> RunPhase {
        let mut batch = CallBatch::new(responded, &calls, &self.definition);
        let tripped = self.guards.count_batch(&self.definition, &calls, &batch, text);
        let limit = self.definition.limits.max_parallel_tools;
        let oversized = calls.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        let oversized =
            oversized.then_some(FailureCause::ParallelToolLimit { count: calls.len(), limit });
        if let Some(failure) = oversized.or_else(|| tripped.map(Into::into)) {
            return self.refuse_batch(responded, &calls, failure);
        }
        if self.short_of_executions(responded, &mut batch) {
            return RunPhase::Working(batch);
        }
        let mut working = RunPhase::Working(batch);
        if let Some(exhausted) = self.meter.budget().find_crossed(&self.usage(), self.events()) {
            return self.exhaust_in(&mut working, responded, &exhausted);
        }
        self.admit(calls);
        working
    }

    /// Requests the admission of calls.
    pub(super) fn admit(&mut self, calls: Arc<[ToolCall]>) {
        self.admit_as(calls, false, false);
    }

    /// Requests the admission of calls that a person approved; `changed` is whether with other arguments.
    pub(super) fn admit_approved(&mut self, calls: Arc<[ToolCall]>, changed: bool) {
        self.admit_as(calls, true, changed);
    }

    fn admit_as(&mut self, calls: Arc<[ToolCall]>, approved: bool, changed: bool) {
        let max_executions = self.executions_left();
        let batch = ToolBatch { calls, max_executions, approved, changed };
        self.perform(MachineAction::AdmitTools(batch));
    }

    pub(super) fn executions_left(&self) -> u32 {
        self.meter.executions_left(self.events())
    }

    /// Answers every call of a batch that tripped a guard, so that the transcript stays complete, and fails the run.
    fn refuse_batch(
        &mut self,
        responded: u64,
        calls: &[ToolCall],
        failure: FailureCause,
    ) -> RunPhase {
        let tripped = self.trip(responded, &failure);
        self.answer_unrun(tripped, calls, "Cancelled: the run was stopped by a guard");
        self.fail(tripped, failure)
    }

    /// Answers calls that will never run, in the log and in the transcript.
    pub(super) fn answer_unrun(&mut self, cause: u64, calls: &[ToolCall], text: &str) {
        self.cancel_calls(cause, calls, text);
        for call in calls {
            self.conversation.push(Message::tool(call.id.clone(), text, true));
        }
    }

    /// Answers calls that will never run, so that every call has its answer in the log.
    pub(super) fn cancel_calls(&mut self, cause: u64, calls: &[ToolCall], text: &str) {
        for ToolCall { id, name, .. } in calls {
            let (id, tool) = (id.clone(), Arc::clone(name));
            let cancelled = ToolResponded::refusal(id, tool, code::TOOL_CANCELLED, text);
            self.append(Actor::Machine, Some(cause), cancelled);
        }
    }

    pub(super) fn tool_requested(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        requested: ToolRequested,
    ) -> Option<RunPhase> {
        let id = self.outbox.next_effect();
        let run = ToolRun {
            id,
            call_id: requested.call_id.clone(),
            tool: Arc::clone(&requested.tool),
            arguments: requested.arguments.clone(),
            execution: requested.execution,
            approval_data: batch.data_at(place).cloned(),
        };
        self.meter.count_executions(1);
        let cause = batch.cause_at(place);
        let seq = self.append(Actor::Runtime, Some(cause), requested);
        batch.begin(place, &run, seq, &self.definition);
        self.perform(MachineAction::RunTool(run));
        None
    }

    pub(super) fn tool_attempted(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        attempted: ToolAttempted,
    ) -> Option<RunPhase> {
        self.meter.count_executions(1);
        let reason = attempted.reason.clone();
        self.append(Actor::Runtime, Some(batch.cause_at(place)), attempted);
        self.end_asking(batch.end_asking(place), &reason);
        None
    }

    pub(super) fn error_stored(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        stored: ErrorStored,
    ) -> Option<RunPhase> {
        batch.store(place, stored.error_id.clone());
        self.append(Actor::Runtime, Some(batch.cause_at(place)), stored);
        None
    }

    pub(super) fn tool_responded(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        responded: ToolResponded,
    ) -> Option<RunPhase> {
        let (actor, cause) = match batch.answering(place) {
            AnswerOrigin::Ran { requested, signature } => {
                self.guards.note_execution(signature, &responded);
                (Actor::Tool, requested)
            }
            AnswerOrigin::Refused { cause } => (Actor::Runtime, cause),
        };
        match self.answer_call(batch, place, actor, cause, responded) {
            Ok(seq) => self.go_on(batch, seq),
            Err(stopped) => Some(self.stop_by_hook(batch, stopped)),
        }
    }

    /// Records a call that began and whose outcome is unknown after its answer.
    pub(super) fn note_outcome(&mut self, answer: &ToolResponded) {
        if self.may_act(&answer.call_id, &answer.tool) {
            self.unsettled.note(answer);
        }
    }

    /// Returns whether a call that began and did not complete may have acted, and is not safe to repeat. Of a call that
    /// only dispatches, the record of the child run shows what happened, if it has one.
    pub(super) fn may_act(&self, call: &CallId, tool: &str) -> bool {
        let is_own = !self.dispatches(tool) || self.unsettled.has_acted_below(call);
        is_own && !self.is_idempotent(tool)
    }

    /// Records the answer of a call. `Err` is the reason that stops the run now.
    pub(super) fn answer_call(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        actor: Actor,
        cause: u64,
        responded: ToolResponded,
    ) -> Result<u64, StoppedByHook> {
        // A settlement decides the outcome of a call, not its answer.
        let is_decided = self.settles_once && batch.is_settled(&responded.call_id);
        if batch.is_running(&responded.call_id) && !is_decided {
            self.note_outcome(&responded);
        }
        let stopped = batch.answer(place, &responded);
        let why = responded.error.as_ref().map(|error| error.reason.clone());
        let seq = self.append(actor, Some(cause), responded);
        if let Some(asked) = batch.end_asking(place) {
            self.end_asking([asked], &why.unwrap_or(Code::new(code::APPROVAL_EXPIRED)));
        }
        stopped.map_or(Ok(seq), Err)
    }

    /// Continues with the next turn once every call has its answer, or waits for people.
    pub(super) fn go_on(&mut self, batch: &mut CallBatch, cause: u64) -> Option<RunPhase> {
        match batch.close() {
            Some(closed) => Some(self.close_batch(cause, closed)),
            None => {
                self.wait_if_idle(batch, cause);
                None
            }
        }
    }

    fn close_batch(&mut self, cause: u64, closed: Closed) -> RunPhase {
        let cancelled = closed.cancelled();
        // The warning about a repetition is only for the model; the record has the original answers.
        let note = self.guards.note_results(&self.definition.limits, &closed);
        for message in closed.into_messages() {
            self.conversation.push(match &note {
                Some(note) => with_note(message, note),
                None => message,
            });
        }
        let exhausted = self.meter.budget().used_up_tool_calls(&self.usage()).filter(|_| cancelled);
        match exhausted {
            Some(exhausted) => self.exhaust(cause, &exhausted),
            None => self.next_turn(cause),
        }
    }
}
