//! The result of a run, from the machine's end.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_provider::ProviderError;
use backstop_react_machine::{Approval, FailureCause, Finish, Machine, MachineOutput, text};
use layer0::failure::{Chain, Failure};
use layer0::id::{RunId, SessionId};
use layer0::stop::Stop;

use super::Run;
use super::resume::has_acted;
use crate::error::{AgentError, LoggedFailure, RunFailure, internal};
use crate::hook::{HookContext, HookError};
use crate::outcome::RunOutcome;
use crate::record::fold::{DefinedAs, Folded, fold};
use crate::record::transcript::history;
use crate::resume_error::ResumeError;

impl Run {
    /// Returns the result of a run that is over, that waits for people, or that failed.
    pub(super) fn finish(
        self: Box<Self>,
        result: Result<Option<Finish>, AgentError>,
        below: Vec<Approval>,
    ) -> Result<RunOutcome, RunFailure> {
        match result {
            Ok(None) => Ok(self.into_suspended(below)),
            Ok(Some(Finish::Stopped { stop, output })) => {
                let HookContext { run, session } = self.context.clone();
                Ok(build_outcome(
                    (run, session, self.sessions),
                    self.ledger.machine(),
                    stop,
                    output,
                ))
            }
            Ok(Some(Finish::Failed(cause))) => {
                let model = self.effects.take_model_error();
                let hook = self.effects.take_hook_error();
                Err(self.failure(build_agent_error(cause, model, hook)))
            }
            Ok(Some(other)) => Err(self.failure(internal(format!("unknown end: {other:?}")))),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Returns the outcome of a run that waits for people.
    fn into_suspended(self: Box<Self>, below: Vec<Approval>) -> RunOutcome {
        let HookContext { run, session } = self.context.clone();
        let machine = self.ledger.machine();
        let output = Arc::clone(machine.last_text());
        let place = (run, session, Arc::clone(&self.sessions));
        let mut outcome = build_outcome(place, machine, Stop::WaitingApproval, output);
        outcome.parked_until = machine.parked_until();
        outcome.approvals = machine.open_approvals().cloned().chain(below).collect();
        outcome
    }

    pub(super) fn failure(self: Box<Self>, error: AgentError) -> RunFailure {
        let why = Chain(&error).to_string();
        let why = self.agent.redactor.redact(&why);
        tracing::warn!(code = error.code(), error = %why, "run failed");
        let HookContext { run, session } = self.context.clone();
        let machine = self.ledger.machine();
        RunFailure {
            run_id: run,
            session,
            error,
            usage: self.ledger.usage(),
            transcript: machine.transcript().clone().with_sessions(self.sessions),
            partial: Arc::clone(machine.last_text()),
            acted: self.acted,
        }
    }
}

fn build_outcome(
    (run_id, session, sessions): (RunId, SessionId, Arc<[SessionId]>),
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
        transcript: machine.transcript().clone().with_sessions(sessions),
        approvals: Vec::new(),
        parked_until: None,
    }
}

/// Returns the live error of a cause that the machine knows as data. A run that failed in another process has no live
/// error, only the recorded one.
fn build_agent_error(
    cause: FailureCause,
    model: Option<ProviderError>,
    hook_error: Option<HookError>,
) -> AgentError {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let recorded = LoggedFailure::new(&cause);
    match cause {
        FailureCause::Model { .. } => match model {
            Some(error) => AgentError::Llm(error),
            None => AgentError::Recorded(recorded),
        },
        FailureCause::Aborted { hook, reason } => AgentError::hook_aborted(&*hook, &*reason),
        FailureCause::CrashLoop { open } => AgentError::crash_loop(&*open),
        FailureCause::HookRejected { hook, .. } => match hook_error {
            Some(error) => AgentError::hook_rejected(&*hook, error),
            None => AgentError::Recorded(recorded),
        },
        FailureCause::InputInvalid(why) => AgentError::InputValidation(why.to_string()),
        FailureCause::InvalidResponse(why) => {
            AgentError::Llm(ProviderError::InvalidResponse(why.to_string()))
        }
        FailureCause::ContextExceeded => {
            AgentError::Llm(ProviderError::context_overflow(text::CONTEXT_EXCEEDED))
        }
        FailureCause::Loop { signature, count: times, limit } => {
            AgentError::loop_detected(&*signature, count(times), count(limit))
        }
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

/// Returns the end of a recorded run; `None` while it is open. Nothing is run, and no agent is needed.
///
/// # Errors
///
/// [`ResumeError::Run`] when the run failed, [`ResumeError::Log`] and [`ResumeError::Diverged`] when
/// its record cannot be read.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn read_outcome(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<Option<RunOutcome>, ResumeError> {
    let Folded { summary, events, replayed, mut sessions, follows, .. } =
        fold(log, run, DefinedAs::Recorded, None).await?;
    let mut machine = replayed.machine;
    let earlier = history(log, follows.as_ref(), None).await;
    machine.provide_earlier(earlier.messages);
    sessions.extend(earlier.sessions);
    let sessions: Arc<[SessionId]> = sessions.into();
    match machine.poll() {
        MachineOutput::Finish(Finish::Stopped { stop, output }) => {
            let place = (summary.run, summary.session, sessions);
            Ok(Some(build_outcome(place, &machine, stop, output)))
        }
        MachineOutput::Finish(Finish::Failed(cause)) => Err(RunFailure {
            run_id: summary.run,
            session: summary.session,
            error: build_agent_error(cause, None, None),
            usage: summary.usage,
            transcript: machine.transcript().clone().with_sessions(sessions),
            partial: Arc::clone(machine.last_text()),
            acted: has_acted(&events),
        }
        .into()),
        _ => Ok(None),
    }
}
