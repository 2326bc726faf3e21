//! Reopening of finished runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{LogError, RunState, RunSummary, open_root};
use backstop_react_machine::NotReopenable;
use layer0::event::Cause;
use layer0::id::RunId;
use layer0::usage::BudgetIncrease;
use layer0::{Code, Orchestrator, code};
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::agent::resume::{ResumeRequest, claim_run};
use crate::outcome::RunOutcome;
use crate::place::DispatchContext;
use crate::record::fold::{DefinedAs, check_walls, fold};
use crate::resume_error::{ResumeError, check_words};
use crate::run::resume::Resumed;

/// A request to reopen a run, with the changes for this episode.
///
/// ```
/// use backstop_react::ReopenRequest;
/// use layer0::usage::BudgetIncrease;
///
/// let request = ReopenRequest::new("run_1")
///     .by("ops")
///     .message("The database is up again.")
///     .budget(BudgetIncrease::new().model_calls(20));
/// assert_eq!(request.run.as_str(), "run_1");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ReopenRequest {
    /// The run.
    pub run: RunId,
    /// The person who reopens it.
    pub by: Arc<str>,
    /// Message to its model; if the run's end needs one and none is set, the model is asked to continue.
    pub message: Option<Arc<str>>,
    /// Increase of its budget.
    pub budget: BudgetIncrease,
    /// Token that stops the run when cancelled.
    pub cancellation: CancellationToken,
    /// Whether this may be another agent than the run's.
    pub other_agent: bool,
    /// Whether it is reopened although its record has lost events that were acknowledged.
    pub accept_lost_tail: bool,
    /// The delivery to a behaviour that led to it, if one did.
    pub cause: Option<Cause>,
    /// Its place among other runs in this process.
    pub(crate) place: DispatchContext,
}

impl ReopenRequest {
    /// Returns a request for a run of this same agent.
    pub fn new(run: impl Into<RunId>) -> Self {
        Self {
            run: run.into(),
            by: "backstop".into(),
            message: None,
            budget: BudgetIncrease::default(),
            cancellation: CancellationToken::new(),
            other_agent: false,
            accept_lost_tail: false,
            cause: None,
            place: DispatchContext::default(),
        }
    }

    /// Sets the person who reopens the run.
    #[must_use]
    pub fn by(mut self, by: impl Into<Arc<str>>) -> Self {
        self.by = by.into();
        self
    }

    /// Sets a message that the model reads before its next call.
    #[must_use]
    pub fn message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Increases the run's budget.
    #[must_use]
    pub const fn budget(mut self, more: BudgetIncrease) -> Self {
        self.budget = more;
        self
    }

    /// Sets a token that stops the run when cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }

    /// Sets the maximum time for which the run may be parked, as [`RunRequest::max_park`](crate::RunRequest::max_park)
    /// does.
    #[must_use]
    pub const fn max_park(mut self, longest: Duration) -> Self {
        self.place.max_park = Some(longest);
        self
    }

    /// Sets the orchestrator through which the run's tools dispatch operators.
    #[must_use]
    pub fn orchestrator(mut self, orchestrator: Arc<dyn Orchestrator>) -> Self {
        self.place.orchestrator = Some(orchestrator);
        self
    }

    /// Allows a run of another agent, with its recorded definition, although this agent is defined differently. Tools
    /// and model are those of this agent.
    #[must_use]
    pub const fn allow_other_agent(mut self) -> Self {
        self.other_agent = true;
        self
    }

    /// Reopens the run although its record has lost events that were acknowledged, as
    /// [`ResumeRequest::accept_lost_tail`](crate::ResumeRequest::accept_lost_tail) does. `run.reopened` records the
    /// loss.
    #[must_use]
    pub const fn accept_lost_tail(mut self) -> Self {
        self.accept_lost_tail = true;
        self
    }
}

impl fmt::Debug for ReopenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReopenRequest")
            .field("run", &self.run)
            .field("by", &self.by)
            .field("message", &self.message)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl<T: Into<RunId>> From<T> for ReopenRequest {
    fn from(run: T) -> Self {
        Self::new(run)
    }
}

impl Agent {
    /// Reopens a run that failed or was stopped, from its end and in the same record. After a failure of the model, the
    /// model is called again; after an exhausted budget, the run continues with a larger one; after a guard, a
    /// cancellation or an answer that was cut, the model reads the message. Completed work is not repeated, and every
    /// answered call keeps its answer. If it is unknown whether an answered call happened and its tool has a probe, the
    /// tool is probed first, and the model reads the result with the message.
    ///
    /// A run without a terminal event (its process died, or it waits for a person) is resumed with [`Agent::resume`].
    ///
    /// # Errors
    ///
    /// [`ResumeError::NotReopenable`] if its end does not allow it; [`ResumeError::Open`] if it is not over, or another
    /// process reopens it; [`ResumeError::CallerOpen`] if an open run dispatched it; [`ResumeError::Log`] if there is
    /// no such run, its record cannot be trusted, or another run of its session follows it or is open;
    /// [`ResumeError::Blank`] if `by` or the message is blank; [`ResumeError::Diverged`] if it is another agent's run.
    /// In all these cases nothing has changed. [`ResumeError::Run`] if it fails again.
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::run`]; a reopened run can be resumed.
    pub async fn reopen(
        &self,
        request: impl Into<ReopenRequest>,
    ) -> Result<RunOutcome, ResumeError> {
        let request = request.into();
        check_words(&request.by, request.message.as_deref())?;
        let log = self.require_log(&request.run)?;
        let known = log.summary(&request.run).await?;
        let known = known.ok_or_else(|| LogError::NotFound(request.run.clone()))?;
        check_over(&known)?;
        // Its caller reopens it itself.
        let is_dispatched = request.place.caller.is_some();
        if !is_dispatched && let Some(root) = open_root(&*log, &known).await? {
            return self.go_on_with_root(request, root).await;
        }
        let has_caller = !is_dispatched && known.parent.is_some();
        let accepts_loss = request.accept_lost_tail || request.place.accepts_lost_tail;
        let (claim, lost) = match claim_run(&*log, &request.run, accepts_loss).await {
            Ok(claimed) => claimed,
            Err(LogError::Claimed(run)) => {
                let state = log.summary(&run).await?.filter(RunSummary::is_open);
                let state = state.map_or(RunState::Running, |summary| summary.state);
                return Err(ResumeError::open(run, state));
            }
            Err(error) => return Err(error.into()),
        };
        let defined_as = match request.other_agent {
            true => DefinedAs::Recorded,
            false => DefinedAs::Own(&self.inner.definition),
        };
        let folded = fold(&*log, &request.run, defined_as, None).await?;
        check_walls(&folded.definition, &self.inner.definition)?;
        // It may have been reopened before this process got the claim.
        check_over(&folded.summary)?;
        let inner = Arc::clone(&self.inner);
        let redactor = inner.redactor.clone();
        let around = (request.cancellation, request.place);
        let mut resumed = Resumed::open(inner, log, folded, Some(claim), around).await?;
        let machine = resumed.machine();
        let mut budget = request.budget;
        if has_caller {
            budget = budget.and(&machine.kept_by_the_caller());
        }
        let by: Arc<str> = redactor.redact(&request.by).into();
        let message = request.message.map(|text| redactor.redact_held(&text).into());
        let run = request.run;
        let refused = |why| ResumeError::not_reopenable(run.clone(), why);
        // A run that stays over needs no probes.
        machine.reopening(Arc::clone(&by), message.clone(), Some(budget)).map_err(refused)?;
        resumed.probe_answered().await?;
        let reopened = resumed.machine().reopening(by, message, Some(budget));
        let mut reopened = reopened.map_err(refused)?;
        (reopened.cause, reopened.lost_tail) = (request.cause.map(Box::new), lost);
        resumed.reopen(reopened).await
    }
}

impl Agent {
    /// Resumes the open root of the named run's callers: the named run is reopened by its caller, if it is worth
    /// another attempt. A message or a budget for it is refused.
    async fn go_on_with_root(
        &self,
        request: ReopenRequest,
        root: RunId,
    ) -> Result<RunOutcome, ResumeError> {
        let ReopenRequest {
            run, by, message, budget, cancellation, place, accept_lost_tail, ..
        } = request;
        if message.is_some() || budget != BudgetIncrease::default() {
            return Err(ResumeError::caller_open(run, root));
        }
        let mut resume = ResumeRequest::new(run).by(by).cancelled_by(cancellation);
        (resume.place, resume.accept_lost_tail) = (place, accept_lost_tail);
        self.resume_root(resume, root).await
    }
}

/// Refuses an open run, and a run whose record was closed because it cannot be replayed.
fn check_over(run: &RunSummary) -> Result<(), ResumeError> {
    if run.is_open() {
        return Err(ResumeError::open(run.run.clone(), run.state));
    }
    match &run.reason {
        Some(reason) if is_of_the_record(reason) => {
            let why = NotReopenable::Final(reason.clone());
            Err(ResumeError::not_reopenable(run.run.clone(), why))
        }
        _ => Ok(()),
    }
}

/// Returns whether a run ended because its record cannot be replayed or written.
fn is_of_the_record(reason: &Code) -> bool {
    reason.as_str().starts_with("log.") || *reason == code::REPLAY_DIVERGED
}
