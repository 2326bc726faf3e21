//! Resuming, forking and replaying of runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{
    Claim, EventLog, LogError, RunSummary, open_root, read_records, session_of_fork,
};
use backstop_orchestrator::new_run_id;
use backstop_react_machine::{AgentDefinition, Divergence, Finish, INPUT, Replayed};
use layer0::Orchestrator;
use layer0::event::{EventKind, LostTail, RunForked, RunResumed, SignalReceived};
use layer0::id::RunId;
use layer0::usage::BudgetIncrease;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::outcome::RunOutcome;
use crate::place::DispatchContext;
use crate::record::fold::{DefinedAs, Folded, fold, other_model};
use crate::record::source::Source;
use crate::resume_error::{ResumeError, check_words};
use crate::run::resume::{Copied, Resumed};

/// A request to resume a run.
#[derive(Clone)]
#[non_exhaustive]
pub struct ResumeRequest {
    /// The run.
    pub run: RunId,
    /// The person who resumes it.
    pub by: Arc<str>,
    /// Token that stops the run when cancelled.
    pub cancellation: CancellationToken,
    /// Whether this agent's definition may differ from the run's latest one.
    pub other_agent: bool,
    /// Whether it continues although its record has lost events that were acknowledged.
    pub accept_lost_tail: bool,
    /// Its place among other runs in this process.
    pub(crate) place: DispatchContext,
}

impl ResumeRequest {
    /// Returns a request for a run of this same agent.
    pub fn new(run: impl Into<RunId>) -> Self {
        Self {
            run: run.into(),
            by: "backstop".into(),
            cancellation: CancellationToken::new(),
            other_agent: false,
            accept_lost_tail: false,
            place: DispatchContext::default(),
        }
    }

    /// Sets the person who resumes the run.
    #[must_use]
    pub fn by(mut self, by: impl Into<Arc<str>>) -> Self {
        self.by = by.into();
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

    /// Allows this agent to adopt a run that had another definition until now: other instructions, tools, limits or
    /// budget. `run.resumed` records the definition, so that the run is replayed, and resumed the next time, with it;
    /// its child runs are resumed in the same way. Earlier usage counts. The schema of its answers, its deadline, its
    /// caller's allowance and the tools of its servers stay those of the run. A waiting run adopts the definition when
    /// its wait ends.
    ///
    /// ```no_run
    /// # async fn on(agent: backstop_react::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop_react::ResumeRequest;
    ///
    /// agent.resume(ResumeRequest::new("run_1").by("deploy-17").allow_other_agent()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn allow_other_agent(mut self) -> Self {
        self.other_agent = true;
        self
    }

    /// Resumes the run and its child runs although their records have lost events that were acknowledged
    /// ([`LogError::LostTail`]). `run.resumed` records the loss. Calls that are not idempotent and may have run in the
    /// lost events are answered as interrupted. Other losses, such as a model answer and the calls that followed it,
    /// are unknown to the record: check what the run did before you accept the loss.
    ///
    /// ```no_run
    /// # async fn on(agent: backstop_react::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use backstop_react::ResumeRequest;
    ///
    /// agent.resume(ResumeRequest::new("run_1").by("ops").accept_lost_tail()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn accept_lost_tail(mut self) -> Self {
        self.accept_lost_tail = true;
        self
    }

    /// Returns the definition that the run has to have.
    const fn defined_as<'a>(&self, own: &'a AgentDefinition) -> DefinedAs<'a> {
        match self.place.adopts || self.other_agent {
            true => DefinedAs::Adopted(own),
            false => DefinedAs::Own(own),
        }
    }
}

impl fmt::Debug for ResumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumeRequest")
            .field("run", &self.run)
            .field("by", &self.by)
            .field("other_agent", &self.other_agent)
            .finish_non_exhaustive()
    }
}

impl<T: Into<RunId>> From<T> for ResumeRequest {
    fn from(run: T) -> Self {
        Self::new(run)
    }
}

/// A request to fork a run at one of its events.
#[derive(Clone)]
#[non_exhaustive]
pub struct ForkRequest {
    /// The run.
    pub run: RunId,
    /// The last event of the run that is copied.
    pub at: u64,
    /// Input for the model's next call.
    pub input: Option<Arc<str>>,
    /// The person who makes the fork.
    pub by: Arc<str>,
    /// Increase of the budget for a fork that is over at its end.
    pub budget: BudgetIncrease,
    /// Source of the run; the agent's own log and stores if `None`.
    pub from: Option<Source>,
    /// Token that stops the fork when cancelled.
    pub cancellation: CancellationToken,
}

impl ForkRequest {
    /// Returns a request for a fork with the first `at` events.
    pub fn new(run: impl Into<RunId>, at: u64) -> Self {
        Self {
            run: run.into(),
            at,
            input: None,
            by: "backstop".into(),
            budget: BudgetIncrease::default(),
            from: None,
            cancellation: CancellationToken::new(),
        }
    }

    /// Sets the input for the model's next call.
    #[must_use]
    pub fn input(mut self, input: impl Into<Arc<str>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Sets the person who makes the fork.
    #[must_use]
    pub fn by(mut self, by: impl Into<Arc<str>>) -> Self {
        self.by = by.into();
        self
    }

    /// Increases the budget for a fork that is over at its end. A fork that is open there is refused.
    #[must_use]
    pub const fn budget(mut self, more: BudgetIncrease) -> Self {
        self.budget = more;
        self
    }

    /// Sets another source than the agent's own log and stores: the run, the runs of its session that it follows, and
    /// their stored errors and results are copied from it.
    #[must_use]
    pub fn from(mut self, source: impl Into<Source>) -> Self {
        self.from = Some(source.into());
        self
    }

    /// Sets a token that stops the fork when cancelled.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }
}

impl Agent {
    /// Resumes a run whose process died or that waited for a person. Completed work is not repeated; open calls that
    /// are safe to repeat are run again, others are answered as interrupted.
    ///
    /// For a finished run, nothing is run or appended: its recorded result is returned. A run that still waits for a
    /// person, or is parked until later, is returned as waiting.
    ///
    /// If the run was dispatched by an open run, the root of its callers is resumed instead, if it is a run of this
    /// agent; the outcome names the root.
    ///
    /// # Errors
    ///
    /// [`ResumeError::Log`] if there is no such run, its record cannot be trusted, another process is writing it, or it
    /// has lost events that were acknowledged; [`ResumeError::Blank`] if `by` is blank; [`ResumeError::Diverged`] if it
    /// is another agent's run; [`ResumeError::Run`] if it fails, or has failed; [`ResumeError::CallerOpen`] if it was
    /// dispatched by an open run of another agent.
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::run`]; the run can be resumed again.
    pub async fn resume(
        &self,
        request: impl Into<ResumeRequest>,
    ) -> Result<RunOutcome, ResumeError> {
        let request = request.into();
        if request.by.trim().is_empty() {
            return Err(ResumeError::Blank("by"));
        }
        let log = self.require_log(&request.run)?;
        let known = log.summary(&request.run).await?;
        let known = known.ok_or_else(|| LogError::NotFound(request.run.clone()))?;
        if known.is_open()
            && request.place.caller.is_none()
            && let Some(root) = open_root(&*log, &known).await?
        {
            return self.resume_root(request, root).await;
        }
        self.take_over(&log, &known, request).await
    }

    /// Resumes the open root of the named run's callers, if it is a run of this agent.
    pub(crate) async fn resume_root(
        &self,
        mut request: ResumeRequest,
        root: RunId,
    ) -> Result<RunOutcome, ResumeError> {
        let log = self.require_log(&root)?;
        let named = std::mem::replace(&mut request.run, root.clone());
        let known = log.summary(&root).await?.ok_or_else(|| LogError::NotFound(root.clone()))?;
        let defined_as = request.defined_as(&self.inner.definition);
        let is_its_agent = match fold(&*log, &root, defined_as, None).await {
            Ok(_) => *known.agent == *self.inner.definition.name,
            Err(ResumeError::Diverged(why)) if why.kind == "agent" => false,
            Err(error) => return Err(error),
        };
        if !is_its_agent {
            return Err(ResumeError::caller_open(named, root));
        }
        tracing::info!(run = %named, %root, "going on with the run at the head of its callers");
        Box::pin(self.take_over(&log, &known, request)).await
    }

    /// Resumes a run, or returns its recorded end.
    async fn take_over(
        &self,
        log: &Arc<dyn EventLog>,
        known: &RunSummary,
        request: ResumeRequest,
    ) -> Result<RunOutcome, ResumeError> {
        let defined_as = request.defined_as(&self.inner.definition);
        let accepts_loss = request.accept_lost_tail || request.place.accepts_lost_tail;
        let (mut folded, claim, lost) =
            fold_claimed(&**log, known, defined_as, accepts_loss).await?;
        let mut adopted = folded.adopted.take();
        if adopted.is_none() {
            adopted = other_model(&self.inner.definition, &folded.events)?;
        }
        let mut place = request.place;
        place.adopts |= request.other_agent;
        place.accepts_lost_tail |= request.accept_lost_tail;
        let inner = Arc::clone(&self.inner);
        let log = Arc::clone(log);
        let mut resumed =
            Resumed::open(inner, log, folded, claim, (request.cancellation, place)).await?;
        let mut by = RunResumed::new(self.inner.redactor.redact(&request.by));
        (by.agent, by.lost_tail) = (adopted, lost);
        let mut first = Vec::new();
        if by.lost_tail.is_some() {
            resumed = resumed.adopting(by);
        } else if resumed.machine().is_waiting() {
            resumed = resumed.by(by);
        } else if by.agent.is_some() {
            resumed = resumed.adopting(by);
        } else {
            first.push(EventKind::from(resumed.machine().find_lost_steps()));
        }
        resumed.go_on(first).await.map_err(Into::into)
    }

    /// Forks a run at an event, in a new session, and runs the fork. The run itself is not changed; its usage counts
    /// for the fork too. A fork that is over at its end is reopened and reads the input, whether or not the run had
    /// completed.
    ///
    /// # Errors
    ///
    /// [`ResumeError::NoSuchEvent`], [`ResumeError::CopyOver`] for a fork that is over and has no input,
    /// [`ResumeError::CopyOpen`] for a budget of a fork that does not need it because it is open,
    /// [`ResumeError::NotReopenable`] if even the input and the budget do not reopen it, and as [`Agent::resume`]. The
    /// agent need not be the run's: the fork keeps the recorded definition, with this agent's model and tools.
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::run`]; the fork can be resumed.
    pub async fn fork(&self, request: ForkRequest) -> Result<RunOutcome, ResumeError> {
        check_words(&request.by, None)?;
        let log = self.require_log(&request.run)?;
        let from = request.from.unwrap_or_else(|| Source::new(Arc::clone(&log)));
        let folded = fold(&*from.log, &request.run, DefinedAs::Recorded, Some(request.at)).await?;
        let is_silent = request.input.as_ref().is_none_or(|input| input.trim().is_empty());
        let Replayed { machine, beyond, .. } = &folded.replayed;
        // Checked before anything is copied to another store. A decision beyond the fork's last event is its end.
        if is_silent && machine.is_over() && beyond.is_empty() {
            return Err(ResumeError::copy_over(request.run, request.at));
        }
        if is_silent && request.input.is_some() {
            return Err(ResumeError::Blank("input"));
        }
        if !machine.is_over() && !request.budget.is_empty() {
            return Err(ResumeError::copy_open(request.run, request.at));
        }
        let is_from_elsewhere = !Arc::ptr_eq(&from.log, &log);
        if is_from_elsewhere {
            from.copy_to(&self.inner, &log, &folded.events, &folded.sessions).await?;
        }
        let (_, mut records) = read_records(&*from.log, &request.run).await?;
        records.retain(|record| record.seq <= request.at);
        let child = new_run_id(self.inner.clock.now());
        let session = session_of_fork(&child);
        let forked = RunForked::new(child.clone(), session, request.run.clone(), request.at);
        let cancellation = request.cancellation;
        let copied =
            Copied { log, child, forked, records, folded, cancellation, is_from_elsewhere };
        let copied = Resumed::open_fork(Arc::clone(&self.inner), copied).await;
        let redactor = &self.inner.redactor;
        let input = request.input.map(|text| Arc::from(redactor.redact_held(&text)));
        if copied.is_over() && is_silent {
            return copied.go_on(Vec::new()).await.map_err(Into::into);
        }
        if copied.is_over() {
            let by: Arc<str> = redactor.redact(&request.by).into();
            let reopened = copied.machine().reopening(by, input, Some(request.budget));
            let reopened = reopened.map_err(|why| ResumeError::not_reopenable(request.run, why))?;
            return copied.reopen(reopened).await;
        }
        let mut first = Vec::new();
        if let Some(input) = input {
            let data = Value::from(&*input);
            first.push(SignalReceived::new(INPUT, data).into());
        }
        let mut lost = copied.machine().find_lost_steps();
        // The model was not called for the fork yet.
        lost.models = 0;
        first.push(lost.into());
        copied.go_on(first).await.map_err(Into::into)
    }
}

/// Folds a run, under a claim unless it is over. The record decides that, not the summary, which was read earlier:
/// another process may have reopened the run meanwhile.
async fn fold_claimed(
    log: &dyn EventLog,
    known: &RunSummary,
    defined_as: DefinedAs<'_>,
    accepts_loss: bool,
) -> Result<(Folded, Option<Claim>, Option<LostTail>), ResumeError> {
    if !known.is_open() {
        let folded = fold(log, &known.run, defined_as, None).await?;
        if folded.replayed.machine.is_over() {
            return Ok((folded, None, None));
        }
    }
    let (claim, lost) = claim_run(log, &known.run, accepts_loss).await?;
    Ok((fold(log, &known.run, defined_as, None).await?, Some(claim), lost))
}

/// Claims a run, with a lost tail only if the loss is accepted; returns the lost events.
pub(crate) async fn claim_run(
    log: &dyn EventLog,
    run: &RunId,
    accepts_loss: bool,
) -> Result<(Claim, Option<LostTail>), LogError> {
    match accepts_loss {
        true => log.claim_with_loss(run).await,
        false => Ok((log.claim(run).await?, None)),
    }
}

/// Replays a run: feeds its facts to the machine and compares every decision. No model is called and no tool runs.
/// Returns the run's end; `None` while it is open.
///
/// # Errors
///
/// [`ResumeError::Diverged`] with the first difference, [`ResumeError::Log`].
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn replay(log: &dyn EventLog, run: &RunId) -> Result<Option<Finish>, ResumeError> {
    replay_as(log, run, None).await
}

impl Agent {
    /// Returns the log; an agent without a log knows no runs.
    pub(crate) fn require_log(&self, run: &RunId) -> Result<Arc<dyn EventLog>, LogError> {
        self.inner.log.clone().ok_or_else(|| LogError::NotFound(run.clone()))
    }

    /// Replays a run as [`replay`] does, and compares its definition with this agent's.
    ///
    /// # Errors
    ///
    /// As [`replay`]; a run of another agent diverges at its first event, with the kind `agent`.
    ///
    /// # Cancel safety
    ///
    /// As [`replay`].
    pub async fn replay(&self, run: &RunId) -> Result<Option<Finish>, ResumeError> {
        replay_as(&*self.require_log(run)?, run, Some(self)).await
    }
}

async fn replay_as(
    log: &dyn EventLog,
    run: &RunId,
    agent: Option<&Agent>,
) -> Result<Option<Finish>, ResumeError> {
    let own = agent.map(|agent| DefinedAs::Own(&agent.inner.definition));
    let defined_as = own.unwrap_or(DefinedAs::Recorded);
    let Folded { summary, replayed, .. } = fold(log, run, defined_as, None).await?;
    let Replayed { mut machine, beyond, .. } = replayed;
    if let Some(missing) = beyond.first() {
        let seq = summary.last_seq + 1;
        return Err(Divergence::beyond_the_end(seq, &missing.kind).into());
    }
    Ok(match machine.poll() {
        backstop_react_machine::MachineOutput::Finish(finish) => Some(finish),
        _ => None,
    })
}
