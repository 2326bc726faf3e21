//! From the machine's end to what the caller gets.

use std::sync::Arc;

use event_log::EventLog;
use layer0::failure::Failure;
use layer0::id::{RunId, SessionId};
use layer0::stop::Stop;
use layer0::usage::Usage;
use provider::ProviderError;
use react_machine::{FailureCause, Finish, Machine, Output};

use crate::driver::{Driver, internal};
use crate::error::{AgentError, RecordedFailure, RunFailure};
use crate::folding::{Folded, fold};
use crate::hook::HookError;
use crate::outcome::RunOutcome;
use crate::resume::ResumeError;
use crate::resuming::has_acted;

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

    pub(crate) fn end(
        mut self,
        machine: &Machine,
        finish: Finish,
    ) -> Result<RunOutcome, RunFailure> {
        match finish {
            Finish::Stopped { stop, output } => {
                Ok(stopped(self.run, self.session, machine, stop, output))
            }
            Finish::Failed(cause) => {
                let model = self.model_error.take();
                let hook = self.hook_error.take();
                Err(self.failure(machine, error_of(cause, model, hook)))
            }
            other => {
                let error = internal(format!("unknown end: {other:?}"));
                Err(self.failure(machine, error))
            }
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

fn stopped(
    run_id: RunId,
    session: SessionId,
    machine: &Machine,
    stop: Stop,
    output: Arc<str>,
) -> RunOutcome {
    RunOutcome {
        run_id,
        session,
        stop,
        output,
        usage: machine.usage(),
        transcript: machine.transcript().clone(),
        approvals: Vec::new(),
    }
}

/// Returns the live error for what the machine knows as data; that of a run that failed in another
/// process is gone, but its record is not.
fn error_of(
    cause: FailureCause,
    model: Option<ProviderError>,
    hook_error: Option<HookError>,
) -> AgentError {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let recorded = RecordedFailure::new(&cause);
    match cause {
        FailureCause::Model { .. } => match model {
            Some(error) => AgentError::Llm(error),
            None => AgentError::Recorded(recorded),
        },
        FailureCause::Aborted { hook, reason } => AgentError::aborted(&*hook, &*reason),
        FailureCause::HookRejected { hook, .. } => match hook_error {
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

/// Returns how a recorded run ended; `None` while it is open. Nothing is run, and no agent is needed.
///
/// # Errors
///
/// [`ResumeError::Run`] when the run failed, [`ResumeError::Log`] and [`ResumeError::Diverged`] when
/// its record cannot be read.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn recorded(log: &dyn EventLog, run: &RunId) -> Result<Option<RunOutcome>, ResumeError> {
    let Folded { summary, events, definition, replayed, .. } = fold(log, run, None, None).await?;
    let mut machine = replayed.machine;
    match machine.poll() {
        Output::Finish(Finish::Stopped { stop, output }) => {
            Ok(Some(stopped(summary.run, summary.session, &machine, stop, output)))
        }
        Output::Finish(Finish::Failed(cause)) => Err(RunFailure {
            run_id: summary.run,
            session: summary.session,
            error: error_of(cause, None, None),
            usage: summary.usage,
            transcript: machine.transcript().clone(),
            partial: Arc::clone(machine.last_text()),
            acted: has_acted(&definition, &events),
        }
        .into()),
        _ => Ok(None),
    }
}
