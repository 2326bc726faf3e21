//! From the machine's end to what the caller gets.

use std::sync::Arc;

use layer0::failure::Failure;
use layer0::stop::Stop;
use layer0::usage::Usage;
use provider::ProviderError;
use react_machine::{FailureCause, Finish, Machine};

use crate::driver::{Driver, internal};
use crate::error::{AgentError, RecordedFailure, RunFailure};
use crate::outcome::RunOutcome;

impl Driver {
    /// Leaves a run that waits for people.
    pub(crate) fn suspend(self, machine: &Machine) -> RunOutcome {
        RunOutcome {
            run_id: self.run,
            session: self.session,
            stop: Stop::WaitingApproval,
            output: Arc::clone(machine.last_text()),
            usage: machine.usage(),
            transcript: machine.transcript().clone(),
            approvals: machine.open_approvals().cloned().collect(),
        }
    }

    pub(crate) fn end(self, machine: &Machine, finish: Finish) -> Result<RunOutcome, RunFailure> {
        match finish {
            Finish::Stopped { stop, output } => Ok(RunOutcome {
                run_id: self.run,
                session: self.session,
                stop,
                output,
                usage: machine.usage(),
                transcript: machine.transcript().clone(),
                approvals: Vec::new(),
            }),
            Finish::Failed(cause) => {
                let mut driver = self;
                let error = driver.error_of(cause);
                Err(driver.failure(machine, error))
            }
            other => {
                let error = internal(format!("unknown end: {other:?}"));
                Err(self.failure(machine, error))
            }
        }
    }

    /// Returns the live error for what the machine knows as data.
    fn error_of(&mut self, cause: FailureCause) -> AgentError {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        // The live error of a run that failed in another process is gone; its record is not.
        let recorded = RecordedFailure::new(&cause);
        match cause {
            FailureCause::Model { .. } => match self.model_error.take() {
                Some(error) => AgentError::Llm(error),
                None => AgentError::Recorded(recorded),
            },
            FailureCause::Aborted { hook, reason } => AgentError::aborted(&*hook, &*reason),
            FailureCause::HookRejected { hook, .. } => match self.hook_error.take() {
                Some(error) => AgentError::hook_rejected(&*hook, error),
                None => AgentError::Recorded(recorded),
            },
            FailureCause::InputInvalid(why) => AgentError::InputValidation(why.to_owned()),
            FailureCause::InvalidResponse(why) => {
                AgentError::Llm(ProviderError::InvalidResponse(why.to_owned()))
            }
            FailureCause::ContextExceeded => AgentError::Llm(ProviderError::context_overflow(
                "the context was used up while the model answered",
            )),
            FailureCause::Loop { signature, .. } => AgentError::loop_detected(&*signature),
            FailureCause::Stagnation { text_hash, count: times, limit } => {
                AgentError::stagnation(&*text_hash, count(times), count(limit))
            }
            FailureCause::OutputInvalid(why) => AgentError::OutputSerialization(why.to_string()),
            FailureCause::MaxIterations(max) => AgentError::MaxIterationsReached(count(max)),
            FailureCause::ParallelToolLimit { count: asked, limit } => {
                AgentError::parallel_tool_limit(asked, count(limit))
            }
            other => internal(format!("unknown cause: {other:?}")),
        }
    }

    pub(crate) fn failure(self, machine: &Machine, error: AgentError) -> RunFailure {
        let why = layer0::failure::Chain(&error).to_string();
        let why = self.agent.redactor.redact(&why);
        tracing::warn!(code = error.code(), error = %why, "run failed");
        RunFailure {
            run_id: self.run,
            session: self.session,
            error,
            usage: self.usage,
            transcript: machine.transcript().clone(),
            partial: Arc::clone(machine.last_text()),
            acted: self.acted,
        }
    }

    pub(crate) fn failed_to_start(self, error: AgentError) -> RunFailure {
        RunFailure {
            run_id: self.run,
            session: self.session,
            error,
            usage: Usage::default(),
            transcript: layer0::message::Transcript::default(),
            partial: Arc::default(),
            acted: false,
        }
    }
}
