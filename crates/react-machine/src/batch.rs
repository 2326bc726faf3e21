//! Tool batches: admission, executions, answers in call order.

use std::sync::Arc;

use layer0::Code;
use layer0::code;
use layer0::event::{Actor, ToolFailure, ToolRequested, ToolResponded};
use layer0::id::{CallId, ErrorId};
use layer0::message::{Message, ToolCall};
use serde_json::{Value, json};

use crate::guards::result_digest;
use crate::io::{Approval, Effect, EffectId, FailureCause, Misuse, ToolBatch, ToolRun};
use crate::machine::{Machine, Phase};
use crate::signature::call_signature;

/// The calls of one model answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    /// The seq of the answer that asked for them.
    pub(crate) responded: u64,
    /// What makes another batch the same.
    signature: Arc<str>,
    pub(crate) calls: Vec<Call>,
    /// Was a call kept from running by the budget?
    cancelled: bool,
    /// The run stops once this call has its answer.
    stopping: Option<Stopping>,
}

#[derive(Debug, Clone, PartialEq)]
struct Stopping {
    after: CallId,
    cause: u64,
    failure: FailureCause,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) tool: Arc<str>,
    /// The model's arguments.
    arguments: Arc<Value>,
    /// What makes another call the same, by the model's arguments.
    signature: Arc<str>,
    /// Where the error of its execution is stored.
    pub(crate) stored: Option<ErrorId>,
    pub(crate) state: CallState,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallState {
    /// Not yet admitted.
    Asked,
    /// Waits for a person; the seq is that of the question.
    Held { approval: Approval, requested: u64 },
    /// A person decided; the runtime acts on it.
    Decided { approval: Approval, requested: u64 },
    /// May have begun; the signature is by the arguments it was given.
    Open { effect: EffectId, requested: u64, signature: Arc<str> },
    /// Has its answer; the message waits for the rest of the batch.
    Answered { message: Message, result: u64 },
}

impl Batch {
    pub(crate) fn find(&self, id: &CallId) -> Result<&Call, Misuse> {
        self.calls.iter().find(|call| call.id == *id).ok_or_else(|| Misuse::UnknownCall(id.clone()))
    }

    /// Returns the seq under which what belongs to a call stands.
    pub(crate) fn cause_of(&self, id: &CallId) -> Option<u64> {
        self.find(id).ok().map(|call| match call.state {
            CallState::Held { requested, .. }
            | CallState::Decided { requested, .. }
            | CallState::Open { requested, .. } => requested,
            CallState::Asked | CallState::Answered { .. } => self.responded,
        })
    }

    /// Is nothing in flight but questions to people?
    pub(crate) fn is_idle(&self) -> bool {
        let quiet =
            |call: &Call| matches!(call.state, CallState::Held { .. } | CallState::Answered { .. });
        self.calls.iter().all(quiet) && self.held().next().is_some()
    }

    /// The call is running again, as another effect.
    pub(crate) fn rerun(&mut self, id: &CallId, again: EffectId) {
        let call = self.calls.iter_mut().find(|call| call.id == *id);
        if let Some(Call { state: CallState::Open { effect, .. }, stored, .. }) = call {
            *effect = again;
            *stored = None;
        }
    }

    pub(crate) fn is_running(&self, id: &CallId) -> bool {
        self.find(id).is_ok_and(|call| matches!(call.state, CallState::Open { .. }))
    }

    /// Fails the run once a call has its answer; the first reason counts.
    pub(crate) fn stop_after(&mut self, after: CallId, cause: u64, failure: FailureCause) {
        self.stopping.get_or_insert(Stopping { after, cause, failure });
    }
}

impl Machine {
    /// Gives every call an id that no other call of the run has: a missing or repeated one gets `~n`.
    pub(crate) fn give_unique_ids(&mut self, calls: &mut Arc<[ToolCall]>) {
        for index in 0..calls.len() {
            let id = &calls[index].id;
            if !id.as_str().is_empty() && !self.call_ids.contains(id) {
                self.call_ids.insert(id.clone());
                continue;
            }
            let mut suffix = if id.as_str().is_empty() { 1 } else { 2 };
            let unique = loop {
                let candidate = CallId::new(format!("{id}~{suffix}"));
                if !self.call_ids.contains(&candidate) {
                    break candidate;
                }
                suffix += 1;
            };
            self.call_ids.insert(unique.clone());
            Arc::make_mut(calls)[index].id = unique;
        }
    }

    /// Begins a batch, unless a guard trips: too many at once, then stagnation, then a loop. All of
    /// them count first, and nothing of a batch that trips one runs.
    pub(crate) fn begin_batch(
        &mut self,
        responded: u64,
        calls: Arc<[ToolCall]>,
        text: Option<(u64, u32)>,
    ) {
        let signatures: Vec<Arc<str>> =
            calls.iter().map(|call| call_signature(&call.name, &call.arguments).into()).collect();
        let counted = self.guards.count_batch(&self.definition, &calls, &signatures, text);
        let limit = self.definition.limits.max_parallel_tools;
        let oversized = calls.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        let oversized =
            oversized.then_some(FailureCause::ParallelToolLimit { count: calls.len(), limit });
        if let Some(failure) = oversized.or_else(|| counted.tripped.map(Into::into)) {
            return self.refuse_batch(responded, &calls, failure);
        }
        let open = calls.iter().zip(signatures).map(|(call, signature)| Call {
            id: call.id.clone(),
            tool: Arc::clone(&call.name),
            arguments: Arc::clone(&call.arguments),
            signature,
            stored: None,
            state: CallState::Asked,
        });
        let calls_open = open.collect();
        self.phase = Phase::Working(Batch {
            responded,
            signature: counted.signature,
            calls: calls_open,
            cancelled: false,
            stopping: None,
        });
        let budget = self.definition.budget;
        let usage = self.usage();
        if let Some(exhausted) = budget.crossed(&usage, self.events()) {
            return self.exhaust(responded, exhausted);
        }
        let max_executions = self.executions_left();
        self.perform(Effect::AdmitTools(ToolBatch { calls, max_executions, approved: false }));
    }

    pub(crate) fn executions_left(&self) -> u32 {
        self.definition.budget.executions_left(&self.usage(), self.events())
    }

    /// Answers every call of a batch that tripped a guard, so that the transcript stays whole, and
    /// fails.
    fn refuse_batch(&mut self, responded: u64, calls: &[ToolCall], failure: FailureCause) {
        let tripped = self.trip(responded, &failure);
        let text = "Cancelled: the run was stopped by a guard";
        self.cancel_calls(tripped, calls, text);
        for call in calls {
            self.transcript.push(Message::tool(call.id.clone(), text, true));
        }
        self.fail(tripped, failure);
    }

    /// Answers calls that will never run, so that every call has its answer in the log.
    pub(crate) fn cancel_calls(&mut self, cause: u64, calls: &[ToolCall], text: &str) {
        for call in calls {
            self.append(Actor::Machine, Some(cause), cancelled(&call.id, &call.name, text));
        }
    }

    pub(crate) fn tool_requested(&mut self, requested: ToolRequested) {
        let effect = self.next_effect();
        let Phase::Working(batch) = &self.phase else { return };
        let run = ToolRun {
            id: effect,
            call_id: requested.call_id.clone(),
            tool: Arc::clone(&requested.tool),
            arguments: Arc::clone(&requested.arguments),
            execution: requested.execution,
        };
        self.usage.tool_calls += 1;
        let signature = match batch.find(&requested.call_id) {
            Ok(call) if Arc::ptr_eq(&call.arguments, &requested.arguments) => {
                Arc::clone(&call.signature)
            }
            _ => call_signature(&requested.tool, &requested.arguments).into(),
        };
        let cause = batch.cause_of(&requested.call_id);
        let seq = self.append(Actor::Runtime, cause, requested);
        let Phase::Working(batch) = &mut self.phase else { return };
        if let Some(call) = batch.calls.iter_mut().find(|call| call.id == run.call_id) {
            call.state = CallState::Open { effect, requested: seq, signature };
        }
        self.perform(Effect::RunTool(run));
    }

    pub(crate) fn tool_responded(&mut self, responded: ToolResponded) {
        let Phase::Working(batch) = &mut self.phase else { return };
        let Some(call) = batch.calls.iter_mut().find(|call| call.id == responded.call_id) else {
            return;
        };
        let (actor, cause) = match &call.state {
            CallState::Open { requested, signature, .. } => {
                self.guards.note_execution(signature, &responded);
                (Actor::Tool, *requested)
            }
            CallState::Held { requested, .. } | CallState::Decided { requested, .. } => {
                (Actor::Runtime, *requested)
            }
            CallState::Asked | CallState::Answered { .. } => {
                let reason = responded.error.as_ref().map(|error| error.reason.as_str());
                batch.cancelled |= reason == Some(code::TOOL_CANCELLED);
                (Actor::Runtime, batch.responded)
            }
        };
        self.answer_call(actor, Some(cause), responded);
    }

    /// Writes the answer of a call down, and goes on where nothing else is open.
    pub(crate) fn answer_call(
        &mut self,
        actor: Actor,
        cause: Option<u64>,
        responded: ToolResponded,
    ) {
        let Phase::Working(batch) = &mut self.phase else { return };
        if let Some(call) = batch.calls.iter_mut().find(|call| call.id == responded.call_id) {
            call.state = CallState::Answered {
                message: answer_message(&responded),
                result: result_digest(&responded),
            };
        }
        let stopping = batch.stopping.take_if(|stopping| stopping.after == responded.call_id);
        let seq = self.append(actor, cause, responded);
        if let Some(Stopping { cause, failure, .. }) = stopping {
            self.answer_open_calls(cause, "Cancelled: the run was stopped by a hook");
            return self.fail(cause, failure);
        }
        self.close_batch(seq);
        self.wait_if_idle(seq);
    }

    /// Answers the calls of the batch that have no answer yet; late answers are refused as stale.
    pub(crate) fn answer_open_calls(&mut self, cause: u64, text: &str) {
        self.answer_unread_calls(cause, text);
        let Phase::Working(batch) = &mut self.phase else { return };
        for call in std::mem::take(&mut batch.calls) {
            let message = match call.state {
                CallState::Answered { message, .. } => message,
                CallState::Asked
                | CallState::Held { .. }
                | CallState::Decided { .. }
                | CallState::Open { .. } => {
                    self.append(Actor::Machine, Some(cause), cancelled(&call.id, &call.tool, text));
                    Message::tool(call.id, text, true)
                }
            };
            self.transcript.push(message);
        }
    }

    /// Goes on to the next turn once every call has its answer.
    fn close_batch(&mut self, cause: u64) {
        let Phase::Working(batch) = &mut self.phase else { return };
        if !batch.calls.iter().all(|call| matches!(call.state, CallState::Answered { .. })) {
            return;
        }
        let signature = Arc::clone(&batch.signature);
        let mut results = Vec::with_capacity(batch.calls.len());
        let cancelled = std::mem::take(&mut batch.cancelled);
        for call in std::mem::take(&mut batch.calls) {
            if let CallState::Answered { message, result } = call.state {
                self.transcript.push(message);
                results.push((call.signature, result));
            }
        }
        self.guards.note_results(&signature, results);
        let exhausted = self.definition.budget.tool_calls(&self.usage).filter(|_| cancelled);
        match exhausted {
            Some(exhausted) => self.exhaust(cause, exhausted),
            None => self.next_turn(cause),
        }
    }
}

/// Makes the message the model reads: the text itself, or the compact JSON of what is no text.
fn answer_message(responded: &ToolResponded) -> Message {
    let shown = match &responded.output {
        Value::Object(output) if !responded.ok => output.get("error").unwrap_or(&responded.output),
        output => output,
    };
    let text: Arc<str> = match shown {
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    Message::tool(responded.call_id.clone(), text, !responded.ok)
}

fn cancelled(id: &CallId, tool: &Arc<str>, text: &str) -> ToolResponded {
    ToolResponded {
        call_id: id.clone(),
        tool: Arc::clone(tool),
        ok: false,
        output: json!({ "error": text }),
        duration_ms: 0,
        error: Some(ToolFailure {
            reason: Code::new(code::TOOL_CANCELLED),
            code: None,
            message: text.into(),
            error_id: None,
        }),
    }
}
