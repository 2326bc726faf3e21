//! Capabilities of a behaviour: dispatch, signal, reopen and state.

use std::fmt;
use std::sync::Arc;

use backstop_clock::Clock;
use backstop_event_log::{EventLog, InboxRequest, LogError};
use backstop_react::{Agent, ReopenRequest, ResumeError, ResumeRequest, RunOutcome};
use backstop_redact::Redactor;
use layer0::error::{OperatorError, OrchError};
use layer0::event::Cause;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::usage::Allowance;
use layer0::{JsonText, Orchestrator, StateStore, code};
use thiserror::Error;

use crate::cause::KnownCauses;
use crate::error::BehaviorError;

/// Resources that a host shares with its behaviours.
pub(crate) struct Means {
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orchestrator: Option<Arc<dyn Orchestrator>>,
    pub(crate) state: Option<Arc<dyn StateStore>>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) grants: Vec<String>,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) redactor: Redactor,
    pub(crate) causes: KnownCauses,
}

/// Capabilities of a behaviour.
///
/// Each method needs a grant of the host or of the behaviour's pack. Events that follow name the delivery as their
/// [`Cause`], so that they are not delivered to the same behaviour.
#[derive(Clone)]
pub struct BehaviorContext {
    means: Arc<Means>,
    /// The grants of its pack.
    grants: Arc<[String]>,
    behavior: Arc<str>,
    cause: Cause,
}

/// Error of a capability that is not granted or not available.
#[derive(Debug, Error)]
enum Refused {
    /// The host does not grant the capability.
    ///
    /// Retry: never. Effect: none.
    #[error("behaviour `{behavior}` needs the grant `{grant}`")]
    Denied { behavior: Arc<str>, grant: &'static str },
    /// The host lacks what the capability needs.
    ///
    /// Retry: never. Effect: none.
    #[error("the host of behaviour `{behavior}` has no {what}")]
    Missing { behavior: Arc<str>, what: String },
    /// The run has ended, or is unknown.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{0}` is not open")]
    NotOpen(RunId),
}

impl Failure for Refused {
    fn facts(&self) -> Facts {
        match self {
            Self::Denied { .. } => Facts::never(code::TOOL_PERMISSION_DENIED, Effect::None),
            Self::Missing { .. } => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::NotOpen(_) => Facts::never(code::ORCH_WORKFLOW_NOT_FOUND, Effect::None),
        }
    }
}

impl BehaviorContext {
    pub(crate) fn new(
        (means, grants): (Arc<Means>, Arc<[String]>),
        behavior: Arc<str>,
        cause: Cause,
    ) -> Self {
        Self { means, grants, behavior, cause }
    }

    /// Returns the [`Cause`] that events caused by this delivery name.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Dispatches an operator as a root run, in its own session and with the host's budget. Needs the grant
    /// `operator:dispatch`.
    ///
    /// # Errors
    ///
    /// Without the grant or an orchestrator, and if the dispatch fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the operator.
    pub async fn dispatch(&self, operator: &str, task: Task) -> Result<Answer, BehaviorError> {
        self.check("operator:dispatch")?;
        let orchestrator = self.means.orchestrator.as_ref();
        let orchestrator = orchestrator.ok_or_else(|| self.missing("orchestrator"))?;
        let mut context = Context::root();
        context.cause = Some(self.cause.clone());
        context.allowance = self.means.allowance;
        let answered = orchestrator.dispatch(operator, task, context).await;
        answered.map_err(|error: OrchError| OperatorError::sub_dispatch(operator, error).into())
    }

    /// Sends a signal to an open run in any process. Needs the grant `run:signal`.
    ///
    /// # Errors
    ///
    /// Without the grant, if the run is not open, and if the log fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the signal may or may not have been sent.
    pub async fn signal(&self, run: &RunId, signal: Signal) -> Result<(), BehaviorError> {
        self.check("run:signal")?;
        let request = InboxRequest::Signal {
            run: run.clone(),
            name: signal.name.into(),
            data: JsonText::from(&signal.data),
            cause: Some(Box::new(self.cause.clone())),
        };
        let by = format!("behavior {}", self.behavior);
        let sent = self.means.log.send(request, &by, self.means.clock.now()).await?;
        if !sent {
            return Err(Refused::NotOpen(run.clone()).into());
        }
        Ok(())
    }

    /// Reopens a run that failed or was stopped, and continues it to its end, with the host's agent of the same name.
    /// If this delivery reopened the run before, and its process died or its time was up, the run is resumed. Needs the
    /// grant `run:reopen`, and a [`timeout`](crate::Behavior::timeout) that is long enough for the run.
    ///
    /// # Errors
    ///
    /// Without the grant or the agent, and as [`Agent::reopen`].
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::reopen`].
    pub async fn reopen(&self, request: ReopenRequest) -> Result<RunOutcome, BehaviorError> {
        self.check("run:reopen")?;
        let summary = self.means.log.summary(&request.run).await?;
        let summary = summary.ok_or_else(|| LogError::NotFound(request.run.clone()))?;
        let mut agents = self.means.agents.iter();
        let agent = agents.find(|agent| *agent.name() == *summary.agent);
        let agent = agent.ok_or_else(|| self.missing(format!("agent `{}`", summary.agent)))?;
        let mut request = request;
        request.cause = Some(self.cause.clone());
        let is_own = summary.causes.last().is_some_and(|(.., cause)| *cause == self.cause);
        let result = match summary.is_open() && is_own {
            true => agent.resume(ResumeRequest::new(request.run)).await,
            false => agent.reopen(request).await,
        };
        match result {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(failure.into_inner().into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the host's state store for reads and writes. Needs the grant `state:write`.
    ///
    /// # Errors
    ///
    /// Without the grant or a state store.
    pub fn state(&self) -> Result<&Arc<dyn StateStore>, BehaviorError> {
        self.check("state:write")?;
        self.means.state.as_ref().ok_or_else(|| self.missing("state store"))
    }

    fn check(&self, grant: &'static str) -> Result<(), BehaviorError> {
        let mut granted = self.means.grants.iter().chain(&*self.grants);
        match granted.any(|granted| granted == grant) {
            true => Ok(()),
            false => Err(Refused::Denied { behavior: Arc::clone(&self.behavior), grant }.into()),
        }
    }

    fn missing(&self, what: impl Into<String>) -> BehaviorError {
        Refused::Missing { behavior: Arc::clone(&self.behavior), what: what.into() }.into()
    }
}

impl fmt::Debug for BehaviorContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BehaviorContext")
            .field("behavior", &self.behavior)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}
