//! Start and resumption of a workflow's run.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, Limit};
use backstop_event_log::{EventLog, LogError, RunState, RunSummary, RunWriter, read_events};
use backstop_redact::Redactor;
use layer0::code;
use layer0::error::OperatorError;
use layer0::event::{
    AgentRecord, Event, Follows, RunFailed, RunRecovered, RunReopened, RunResumed, RunStarted,
};
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::{RunId, SessionId};
use layer0::name::check_session;
use layer0::operator::{Answer, Context, Signals, Task};
use layer0::stop::Outcome;
use layer0::text::plain;
use thiserror::Error;

use super::diverged::Diverged;
use super::episode::{Episode, Underway};
use super::ledger::WorkflowLedger;
use super::line::{Above, RunChannel};
use super::progress::{MAX_RECOVERIES, StepRecord, WorkflowProgress};
use super::recorded::find_result;
use super::text::parse_value;
use crate::books::{Books, Leaving, least};
use crate::ids::{new_run_id, new_session_id};

/// Name of the resumer in the record.
pub(super) const BY: &str = "orchestrator";

/// A run after it was started or found.
pub(super) enum Opened {
    Ended(Result<Answer, OperatorError>),
    /// A running run, with its task.
    AtWork(Box<Episode>, Task),
}

/// Failure of a run that was recovered too often without progress.
///
/// Retry: never. Effect: unknown.
#[derive(Debug, Error)]
#[error("the workflow's process died {MAX_RECOVERIES} times without a step being done")]
struct CrashLoop;

impl Failure for CrashLoop {
    fn facts(&self) -> Facts {
        Facts::never(code::RUN_CRASH_LOOP, Effect::Unknown)
    }
}

/// Recorder of a workflow's runs.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) log: Arc<dyn EventLog>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Redactor,
    /// Definition of the workflow.
    pub(super) record: AgentRecord,
}

impl Recorder {
    /// Starts a run, or resumes a recorded one.
    pub(super) async fn open(
        &self,
        task: &Task,
        context: &Context,
    ) -> Result<Opened, OperatorError> {
        let run = context.run.clone().unwrap_or_else(|| new_run_id(self.clock.now()));
        if !context.goes_on {
            return self.begin(run, task, context).await;
        }
        match self.log.summary(&run).await.map_err(OperatorError::from_failure)? {
            Some(summary) => self.take_up(summary, task, context).await,
            None if context.is_recorded => {
                let is_below = context.parent.is_some();
                let missing = if is_below { LogError::Lost(run) } else { LogError::NotFound(run) };
                Err(OperatorError::from_failure(missing))
            }
            None => self.begin(run, task, context).await,
        }
    }

    async fn begin(
        &self,
        run: RunId,
        task: &Task,
        context: &Context,
    ) -> Result<Opened, OperatorError> {
        let session = match &context.session {
            Some(session) => {
                check_session(session.as_str()).map_err(OperatorError::from_failure)?;
                session.clone()
            }
            None => new_session_id(self.clock.now()),
        };
        let started = self.build_run_started(run.clone(), session, task, context).await?;
        let writer = RunWriter::new(Arc::clone(&self.log), run);
        let mut ledger = WorkflowLedger::new(writer, &self.clock, WorkflowProgress::default());
        ledger.note(started)?;
        ledger.commit().await.map_err(|error| OperatorError::from_failure(error.at_start()))?;
        Ok(self.underway(ledger, None, task, context))
    }

    async fn build_run_started(
        &self,
        run: RunId,
        session: SessionId,
        task: &Task,
        context: &Context,
    ) -> Result<RunStarted, OperatorError> {
        let input = plain(&task.input);
        let input = self.redactor.redact_held(&input);
        let mut started = RunStarted::new(input, session, self.record.clone());
        started.images = Arc::clone(&task.images);
        started.definition_digest = Some(Arc::clone(&self.record.digest));
        let root = context.root.as_ref().or(context.parent.as_ref()).unwrap_or(&run);
        started.root = Some(root.clone());
        started.run = Some(run);
        started.parent = context.parent.clone();
        started.depth = context.depth;
        started.allowance = least(context.allowance, task.allowance).map(Box::new);
        (started.idempotent, started.with_history) = (task.idempotent, task.history);
        started.max_park_ms = context.max_park.map(millis);
        started.deadline = context.deadline;
        started.labels = Arc::clone(&context.labels);
        started.sessions = Arc::clone(&context.sessions);
        started.cause = context.cause.clone().map(Box::new);
        started.output_schema = task.output_schema.as_ref().map(|schema| Box::new(schema.into()));
        started.key_id = self.log.key().map(|key| key.id().into());
        started.row_sealed = self.log.seals_rows();
        if started.parent.is_none() && context.session.is_some() {
            self.join(&mut started, context).await.map_err(OperatorError::from_failure)?;
        }
        Ok(started)
    }

    /// Sets the run to follow the last one of its session, or to branch from it if both were dispatched together.
    async fn join(&self, started: &mut RunStarted, context: &Context) -> Result<(), LogError> {
        let Some(last) = self.log.last_root(&started.session).await? else { return Ok(()) };
        let follow = |run: RunSummary| Follows::new(run.run, run.last_seq, run.head, run.messages);
        let is_beside =
            context.together.contains(&last.run) && Some(&last.run) != started.run.as_ref();
        let before = match (is_beside, &last.follows) {
            (false, _) => Some(last),
            (true, follows) => {
                started.branch_of = Some(last.run.clone());
                match follows {
                    Some(before) => self.log.summary(before).await?,
                    None => None,
                }
            }
        };
        started.follows = before.map(follow).map(Box::new);
        Ok(())
    }

    async fn take_up(
        &self,
        summary: RunSummary,
        task: &Task,
        context: &Context,
    ) -> Result<Opened, OperatorError> {
        // Its usage until now counts in any case.
        if let Some(caller) = &context.caller {
            caller.report_usage(summary.usage);
        }
        let is_over =
            |summary: &RunSummary| !summary.is_open() && !is_tried_again(summary, context);
        let ended = |run: &RunId, events: &[Event]| {
            let open = || OperatorError::from_failure(LogError::Claimed(run.clone()));
            Opened::Ended(find_result(events).unwrap_or_else(|| Err(open())))
        };
        if is_over(&summary) {
            let (_, events) = self.read(&summary.run).await?;
            self.check_name(&events)?;
            return Ok(ended(&summary.run, &events));
        }
        let claimed = match context.accepts_lost_tail {
            true => self.log.claim_with_loss(&summary.run).await,
            false => self.log.claim(&summary.run).await.map(|claim| (claim, None)),
        };
        let (claim, lost) = claimed.map_err(OperatorError::from_failure)?;
        let (summary, events) = self.read(&summary.run).await?;
        // Another process may have ended the run before it released the claim.
        if is_over(&summary) {
            self.check_name(&events)?;
            return Ok(ended(&summary.run, &events));
        }
        let is_tried_again = is_tried_again(&summary, context);
        let progress = WorkflowProgress::from_events(&events)?;
        let recorded = progress.started.as_ref().map(|started| &started.agent);
        let is_workflow = recorded.is_some_and(|recorded| recorded.is_workflow());
        let before = recorded.filter(|recorded| recorded.digest != self.record.digest).cloned();
        if !is_workflow || before.is_some() && !context.adopts {
            return Err(self.definition_mismatch(&progress).into());
        }
        let was_waiting = progress.waiting.is_some() || summary.state == RunState::Parked;
        // A step with a record counts the deaths of its process itself.
        let is_at_rest = was_waiting || progress.steps.values().any(StepRecord::counts_deaths);
        let is_looping = !is_at_rest && progress.recoveries + 1 >= MAX_RECOVERIES;
        let (reason, writer) =
            (summary.reason.clone(), RunWriter::resume(Arc::clone(&self.log), summary, claim));
        let mut ledger = WorkflowLedger::new(writer, &self.clock, progress);
        if is_tried_again {
            let mut reopened = RunReopened::new(BY, reason);
            reopened.lost_tail = lost;
            ledger.note(reopened)?;
        } else if lost.is_some() || was_waiting {
            let mut resumed = RunResumed::new(BY);
            resumed.lost_tail = lost;
            ledger.note(resumed)?;
        }
        if !was_waiting && !is_tried_again {
            ledger.note(RunRecovered::new(Vec::new(), Vec::new(), 0))?;
        }
        if is_looping && !is_tried_again {
            let chain = vec![CrashLoop.to_string()];
            ledger.note(RunFailed::new(code::RUN_CRASH_LOOP, chain, ledger.usage()))?;
            ledger.commit().await.map_err(OperatorError::from_failure)?;
            return Ok(Opened::Ended(Err(OperatorError::from_failure(CrashLoop))));
        }
        ledger.commit().await.map_err(OperatorError::from_failure)?;
        if before.is_some() {
            // The definition is adopted only once something follows from it: its code may not fit the record.
            ledger.adopt_later(RunResumed::new(BY).adopting(self.record.clone()));
        }
        Ok(self.underway(ledger, before, task, context))
    }

    async fn read(&self, run: &RunId) -> Result<(RunSummary, Vec<Event>), OperatorError> {
        read_events(&*self.log, run).await.map_err(OperatorError::from_failure)
    }

    /// Refuses the run of an agent, or of a workflow with another name. A run of another definition is answered.
    fn check_name(&self, events: &[Event]) -> Result<(), OperatorError> {
        let progress = WorkflowProgress::from_events(events)?;
        let recorded = progress.started.as_ref().map(|started| &started.agent);
        match recorded.is_some_and(|it| it.is_workflow() && it.name == self.record.name) {
            true => Ok(()),
            false => Err(self.definition_mismatch(&progress).into()),
        }
    }

    /// Returns the error for a run of another workflow.
    fn definition_mismatch(&self, progress: &WorkflowProgress) -> Diverged {
        let recorded = progress.started.as_ref();
        let recorded = recorded.map_or("", |started| started.agent.definition.get());
        Diverged::of_record(1, recorded, self.record.definition.get())
    }

    /// Builds the episode of a recorded run; `before` is the run's previous definition if it had another one.
    fn underway(
        &self,
        ledger: WorkflowLedger,
        before: Option<Box<AgentRecord>>,
        task: &Task,
        context: &Context,
    ) -> Opened {
        let (line, asks) = RunChannel::new();
        let progress = ledger.progress();
        let started = progress.started.as_deref();
        let first = started.and_then(|started| started.allowance.as_deref()).copied();
        let granted = progress.granted.iter().flatten();
        let allowance = first.map(|first| granted.fold(first, |all, more| all.plus(more)));
        let allowed = self.time_limit(&ledger, context);
        let left = allowed.map(|allowed| allowed.saturating_sub(progress.worked));
        let limit = Arc::new(Limit::new(Arc::clone(&self.clock), left));
        let above = context.caller.clone();
        let has_caller = above.is_some();
        let above = above.map(|caller| Arc::new(Above { caller, line: line.clone() }) as _);
        // The run takes its signals itself.
        let signals = Signals::default();
        let books = Books::new(above, allowance, Arc::clone(&limit), signals, Leaving::Always);
        books.asked_before(u32::try_from(progress.granted.len()).unwrap_or(u32::MAX));
        for step in progress.steps.values() {
            if let Some(returned) = &step.returned {
                books.ended_before(returned.run.clone(), step.used);
            }
        }
        // Signals that the code received before its process died are sent again.
        let own_signals = Signals::default();
        progress.signals.iter().for_each(|signal| own_signals.push(signal.clone()));
        let summary = ledger.summary();
        let (run, session) = (summary.run.clone(), summary.session.clone());
        let root = started.and_then(|started| started.root.clone()).unwrap_or_else(|| run.clone());
        let mut own_task = Task::json(parse_value(started.map_or("", |started| &started.input)));
        own_task.images = started.map(|started| Arc::clone(&started.images)).unwrap_or_default();
        let schema = started.and_then(|started| started.output_schema.as_ref());
        own_task.output_schema = schema.and_then(|schema| schema.read().ok());
        // The task's properties are set at the start; the process that resumes it may not know them.
        own_task.idempotent = task.idempotent || started.is_some_and(|it| it.idempotent);
        own_task.history = task.history || started.is_some_and(|it| it.with_history);
        let max_park = started.and_then(|it| it.max_park_ms).map(Duration::from_millis);
        let episode = Episode {
            name: Arc::clone(&self.record.name),
            run,
            session,
            root,
            depth: started.map_or(0, |started| started.depth),
            max_park: max_park.or(context.max_park),
            adopts: context.adopts,
            accepts_lost_tail: context.accepts_lost_tail,
            before,
            allowed,
            has_caller,
            log: Arc::clone(&self.log),
            clock: Arc::clone(&self.clock),
            redactor: self.redactor.clone(),
            ledger,
            books,
            limit,
            orchestrator: context.orchestrator.clone(),
            line,
            asks,
            signals: context.signals.clone(),
            own_signals,
            underway: Underway::default(),
            parked: None,
        };
        Opened::AtWork(Box::new(episode), own_task)
    }

    /// Returns the time limit of the run, over all its episodes.
    fn time_limit(&self, ledger: &WorkflowLedger, context: &Context) -> Option<Duration> {
        let progress = ledger.progress();
        let recorded = progress.started.as_ref().and_then(|started| started.deadline);
        match (context.deadline, recorded) {
            // A caller's deadline leaves out the waits of this run; for a root, only the record does.
            (Some(deadline), recorded) if context.caller.is_some() || recorded.is_none() => {
                // time of day: the orchestrator has just set the deadline, and the rest is measured.
                Some(progress.worked + deadline.since(self.clock.now()))
            }
            // time of day: both are from the same event.
            (_, recorded) => Some(recorded?.since(ledger.summary().started_at)),
        }
    }
}

/// Returns whether an ended run is to be reopened: its caller makes another attempt, and the run failed or was stopped
/// by its caller's failure.
fn is_tried_again(summary: &RunSummary, context: &Context) -> bool {
    let can_be = summary.state == RunState::Failed || summary.outcome == Some(Outcome::Cancelled);
    can_be && context.attempt > 1 && summary.reopens.saturating_add(1) < context.attempt
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
