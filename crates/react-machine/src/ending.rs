//! How a run ends: guards, budgets, people, hooks, and the one last event.

use std::sync::Arc;

use layer0::event::{Actor, BudgetExhausted, GuardTripped, RunFailed, RunFinished, SignalReceived};
use layer0::stop::Stop;
use layer0::{Code, code};

use crate::budget::Exhausted;
use crate::hooks::Next;
use crate::io::{Effect, FailureCause, Finish};
use crate::machine::{Machine, Phase};

/// What the model would read of a call that a budget kept from running.
pub const BUDGET_CANCELLED: &str = "Cancelled: a budget of the run is used up";

impl Machine {
    /// Records that a guard found the model stuck, with the evidence the cause carries.
    pub(crate) fn trip(&mut self, cause: u64, failure: &FailureCause) -> u64 {
        let (reason, chain) = reason_and_chain(failure);
        let (count, limit, signature, text_hash) = match failure {
            FailureCause::Loop { signature, count, limit } => {
                (u64::from(*count), *limit, Some(Arc::clone(signature)), None)
            }
            FailureCause::Stagnation { text_hash, count, limit } => {
                (u64::from(*count), *limit, None, Some(Arc::clone(text_hash)))
            }
            FailureCause::ParallelToolLimit { count, limit } => {
                (u64::try_from(*count).unwrap_or(u64::MAX), *limit, None, None)
            }
            FailureCause::MaxIterations(max) => (u64::from(*max), *max, None, None),
            FailureCause::Aborted { .. }
            | FailureCause::ContextExceeded
            | FailureCause::HookRejected { .. }
            | FailureCause::InputInvalid(_)
            | FailureCause::InvalidResponse(_)
            | FailureCause::OutputInvalid(_)
            | FailureCause::Model { .. } => return cause,
        };
        let tripped = GuardTripped {
            guard: reason.as_str().trim_start_matches("guard.").into(),
            reason,
            count,
            limit: u64::from(limit),
            signature,
            text_hash,
            message: chain.concat().into(),
        };
        self.append(Actor::Machine, Some(cause), tripped)
    }

    /// Ends the run because a budget is used up; what is open is answered.
    pub(crate) fn exhaust(&mut self, cause: u64, exhausted: Exhausted) {
        let reason = Code::new(exhausted.reason);
        let event = BudgetExhausted {
            dimension: exhausted.reason.trim_start_matches("budget.").into(),
            reason: reason.clone(),
            message: format!("{} of {} used", exhausted.used, exhausted.limit).into(),
            limit: exhausted.limit,
            used: exhausted.used,
        };
        let seq = self.append(Actor::Machine, Some(cause), event);
        self.answer_open_calls(seq, BUDGET_CANCELLED);
        let output = Arc::clone(&self.last_text);
        self.finish(seq, Stop::BudgetExhausted { reason }, output);
    }

    /// Stops the run where it is: every open call is answered, what the model said last is kept.
    pub(crate) fn cancel(&mut self, signal: SignalReceived) {
        let seq = self.append(Actor::Person, None, signal);
        self.answer_open_calls(seq, "Cancelled: the run was stopped");
        let output = Arc::clone(&self.last_text);
        self.finish(seq, Stop::Cancelled, output);
    }

    /// Ends the run; what a completed or incomplete one came to is remembered first.
    pub(crate) fn finish(&mut self, cause: u64, stop: Stop, output: Arc<str>) {
        let worth_it = matches!(stop, Stop::Completed | Stop::Incomplete { .. });
        if !(worth_it && self.definition.memory) {
            return self.end(cause, stop, output);
        }
        let input = Arc::clone(&self.input);
        self.phase = Phase::Memorizing { stop, output: Arc::clone(&output) };
        self.perform(Effect::WriteMemory { input, output });
    }

    /// Ends the run without failing, after its last hooks.
    pub(crate) fn end(&mut self, cause: u64, stop: Stop, output: Arc<str>) {
        self.close(cause, Finish::Stopped { stop, output });
    }

    /// Ends the run as failed, after its last hooks.
    pub(crate) fn fail(&mut self, cause: u64, failure: FailureCause) {
        self.close(cause, Finish::Failed(failure));
    }

    fn close(&mut self, cause: u64, finish: Finish) {
        if self.transcript.messages().is_empty() {
            self.begin_transcript(&[]);
        }
        self.resume_clock();
        self.step_with_hooks(cause, Next::End(finish));
    }

    /// Writes the one last event.
    pub(crate) fn conclude(&mut self, cause: u64, finish: Finish) {
        match &finish {
            Finish::Stopped { stop, output } => self.record_stop(cause, stop, output),
            Finish::Failed(failure) => self.record_failure(cause, failure),
        }
        self.phase = Phase::Done(finish);
    }

    fn record_stop(&mut self, cause: u64, stop: &Stop, output: &Arc<str>) {
        let reason = stop.reason();
        let message = reason
            .as_ref()
            .and_then(|reason| code::find(reason.as_str()))
            .map(|entry| Arc::from(entry.meaning));
        let finished = RunFinished {
            outcome: stop.outcome(),
            reason,
            message,
            output: Arc::clone(output),
            usage: self.usage(),
        };
        self.append(Actor::Machine, Some(cause), finished);
    }

    fn record_failure(&mut self, cause: u64, failure: &FailureCause) {
        let (reason, chain) = reason_and_chain(failure);
        let failed = RunFailed {
            reason,
            message: chain.first().map_or("", String::as_str).into(),
            chain,
            usage: self.usage(),
        };
        self.append(Actor::Machine, Some(cause), failed);
    }
}

impl FailureCause {
    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> Code {
        reason_and_chain(self).0
    }

    /// Returns the failure for people, and its causes, outermost first.
    #[must_use]
    pub fn chain(&self) -> Vec<String> {
        reason_and_chain(self).1
    }
}

/// Returns the code of a failure, and the failure with its causes for people.
fn reason_and_chain(failure: &FailureCause) -> (Code, Vec<String>) {
    let (code, text) = match failure {
        FailureCause::Model { reason, chain } => return (reason.clone(), chain.clone()),
        FailureCause::Aborted { hook, reason } => {
            (code::HOOK_ABORTED, format!("hook `{hook}` aborted the run: {reason}"))
        }
        FailureCause::HookRejected { hook, message } => {
            let chain = vec![format!("hook `{hook}` must not fail"), message.to_string()];
            return (Code::new(code::HOOK_REJECTED), chain);
        }
        FailureCause::InputInvalid(why) => (code::INPUT_INVALID, (*why).to_owned()),
        FailureCause::InvalidResponse(why) => (code::PROVIDER_INVALID_RESPONSE, (*why).to_owned()),
        FailureCause::ContextExceeded => (
            code::PROVIDER_CONTEXT_OVERFLOW,
            "the context was used up while the model answered".to_owned(),
        ),
        FailureCause::Loop { count, limit, .. } => (
            code::GUARD_LOOP_DETECTED,
            format!("the model asked for the same tools {count} times, {limit} are allowed"),
        ),
        FailureCause::MaxIterations(max) => (
            code::GUARD_MAX_ITERATIONS,
            format!("the model still asked for tools after {max} model calls"),
        ),
        FailureCause::OutputInvalid(why) => {
            (code::OUTPUT_UNSERIALIZABLE, format!("the answer cannot be used: {why}"))
        }
        FailureCause::ParallelToolLimit { count, limit } => (
            code::GUARD_PARALLEL_TOOL_LIMIT,
            format!("the model asked for {count} tools at once, {limit} are allowed"),
        ),
        FailureCause::Stagnation { count, limit, .. } => (
            code::GUARD_STAGNATION,
            format!(
                "the model said the same {count} times without a new tool call, {limit} are allowed"
            ),
        ),
    };
    (Code::new(code), vec![text])
}
