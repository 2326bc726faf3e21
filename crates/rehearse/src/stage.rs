//! Sets up a scenario, runs it and compares the result.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, ClockHold, VirtualClock};
use backstop_config::{Reopening, Scenario};
use backstop_event_log::{LogError, read_events};
use backstop_orchestrator::{LocalOrchestrator, new_run_id};
use backstop_provider::ScriptExhausted;
use backstop_react::{
    Agent, CancellationToken, ReopenRequest, ResumeError, ResumeRequest, RunFailure, RunOutcome,
    RunRequest,
};
use backstop_store_sqlite::Database;
use layer0::error::BoxError;
use layer0::event::Event;
use layer0::failure::{Chain, Effect, Facts, Failure, sources};
use layer0::id::RunId;
use layer0::operator::{Context, Signal, Task};
use layer0::{Orchestrator, Timestamp};
use serde::Serialize;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::agents::ScenarioParts;
use crate::expect::difference;
use crate::marks::ReachMark;
use crate::model::SentRequest;
use crate::operators::{EntryOperator, Operators};
use crate::report::{RunReport, stored_errors};
use crate::runs::session_runs;
use crate::signals;
use layer0::code;

/// Start time of every scenario: 2026-01-01T00:00:00Z, in milliseconds since 1970.
const START_MS: i64 = 1_767_225_600_000;

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rehearsal {
    /// The scenario's name.
    pub scenario: String,
    /// Whether everything was as expected.
    pub pass: bool,
    /// The differences, one line each.
    pub diff: Option<String>,
    /// The report of the run.
    #[serde(flatten)]
    pub report: RunReport,
    /// The model's requests, one per attempt.
    pub requests: Vec<SentRequest>,
    /// Parts of the scenario that the run did not reach.
    pub unused: Vec<String>,
}

/// An error that keeps a scenario from running at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum RehearsalError {
    /// The agent cannot be built from it.
    ///
    /// Retry: never. Effect: none.
    Agent(BoxError),
    /// The store cannot be opened or read.
    ///
    /// Retry: never. Effect: unknown.
    Store(BoxError),
}

impl Failure for RehearsalError {
    fn facts(&self) -> Facts {
        match self {
            Self::Agent(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Store(_) => Facts::never(code::STORE_FAILED, Effect::Unknown),
        }
    }
}

impl std::fmt::Display for RehearsalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Agent(_) => "the scenario's agent cannot be built",
            Self::Store(_) => "the scenario's store failed",
        })
    }
}

impl std::error::Error for RehearsalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Agent(error) | Self::Store(error) => Some(&**error),
        }
    }
}

/// Runs a scenario in a store of its own. `file` is the path of the scenario; relative paths in it are relative to that
/// file's folder.
///
/// A scenario has the same result every time: everything happens on one thread, which waits for the store, so that runs
/// and tools that end at the same moment continue in the same order.
///
/// ```
/// use std::path::Path;
///
/// use backstop_config::Scenario;
/// use backstop_rehearse::rehearse;
///
/// // #[tokio::test]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = std::env::temp_dir().join(format!("stock-{}.toml", std::process::id()));
/// # std::fs::write(&file, r#"
/// # name = "one answer"
/// # input = "How many ropes are left?"
/// # [[model]]
/// # text = "7 ropes are left."
/// # [expect]
/// # outcome = "completed"
/// # output = "7 ropes are left."
/// # "#)?;
/// # let path: &Path = &file;
/// # /*
/// let path = Path::new("tests/stock.toml");
/// # */
/// let rehearsal = rehearse(&Scenario::read(path)?, path).await?;
/// assert!(rehearsal.pass, "{}", rehearsal.diff.unwrap_or_default());
/// # std::fs::remove_file(&file)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`RehearsalError::Agent`], [`RehearsalError::Store`]. A run that fails is not an error here.
///
/// # Cancel safety
///
/// Dropping the future discards the result; the rehearsal continues to its end on its own thread.
pub async fn rehearse(scenario: &Scenario, file: &Path) -> Result<Rehearsal, RehearsalError> {
    let (scenario, file) = (scenario.clone(), file.to_owned());
    let (done, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("rehearsal".to_owned())
        .spawn(move || drop(done.send(rehearse_here(&scenario, &file))))
        .map_err(|error| RehearsalError::Agent(error.into()))?;
    result.await.map_err(|_| RehearsalError::Agent("the rehearsal's thread was lost".into()))?
}

fn rehearse_here(scenario: &Scenario, file: &Path) -> Result<Rehearsal, RehearsalError> {
    let no_runtime = |error: std::io::Error| RehearsalError::Agent(error.into());
    // The store needs its own thread, because the thread of the runs blocks on it.
    let of_store = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let of_store = of_store.map_err(no_runtime)?;
    let of_runs = Builder::new_current_thread().enable_all().build().map_err(no_runtime)?;
    let database = of_store.block_on(Database::in_memory());
    let database = database.map_err(|error| RehearsalError::Store(error.into()))?;
    let result = of_runs.block_on(play(scenario, file, (&database, of_store.handle())));
    of_store.block_on(database.close());
    result
}

async fn play(
    scenario: &Scenario,
    file: &Path,
    store: (&Database, &Handle),
) -> Result<Rehearsal, RehearsalError> {
    let clock = VirtualClock::starting_at(Timestamp::from_millis(START_MS));
    let shared = Arc::new(ScenarioParts::new(scenario, file, store, &clock));
    let operators = Operators::new(scenario, &shared).map_err(RehearsalError::Agent)?;
    let orchestrator = operators.orchestrator(&shared).map_err(RehearsalError::Agent)?;
    let through: Arc<dyn Orchestrator> = Arc::new(orchestrator.clone());
    let run = new_run_id(clock.now());
    let stage = Stage { scenario, shared: &shared, operators: &operators, clock: &clock };
    let entry = match operators.entry(scenario.entry.as_deref()) {
        EntryOperator::Agent(entry) => entry,
        EntryOperator::Workflow(name) => return stage.play_workflow(name, run, orchestrator).await,
    };
    let agent = entry.agent_for_run(&run).map_err(RehearsalError::Agent)?;

    let mut request = RunRequest::new(scenario.input.as_str()).run(run.clone());
    request.session = scenario.session.as_deref().map(Into::into);
    request = request.orchestrator(Arc::clone(&through));
    let unsent = signals::send(&scenario.signals, &run, orchestrator, &shared, &clock);
    let token = CancellationToken::new();
    request = request.cancelled_by(token.clone());
    let max_park = entry.max_park();
    if let Some(longest) = max_park {
        request = request.max_park(longest);
    }
    if let Some(ms) = scenario.cancel_at_ms {
        let (token, mark) = (token.clone(), stage.mark_cancel(ms));
        let timer = clock.sleep(Duration::from_millis(ms));
        tokio::spawn(clock.track(Box::pin(async move {
            timer.await;
            mark.reach();
            token.cancel();
        })));
    }
    let first = agent.clone();
    let (mut result, mut still) =
        run_tracked(&clock, None, async move { first.run(request).await }).await?;
    let mut resume = ResumeRequest::new(run.clone()).cancelled_by(token.clone());
    resume = resume.orchestrator(Arc::clone(&through));
    if let Some(longest) = max_park {
        resume = resume.max_park(longest);
    }
    (result, still) = until_due(&clock, &agent, &resume, (result, still)).await?;
    let mut refused = None;
    for reopening in &scenario.reopen {
        let (reopens, request) = (agent.clone(), build_reopen_request(&run, reopening));
        let mut request = request.orchestrator(Arc::clone(&through));
        if let Some(longest) = max_park {
            request = request.max_park(longest);
        }
        let opened;
        (opened, still) =
            run_tracked(&clock, Some(still), async move { reopens.reopen(request).await }).await?;
        result = match opened {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(failure.into_inner()),
            Err(error) => {
                // Leaves out the run's id, which differs each time.
                let why = match &error {
                    ResumeError::NotReopenable { why, .. } => why.to_string(),
                    other => Chain(other).to_string(),
                };
                refused = Some(format!("reopen: {why} ({})", error.code()));
                break;
            }
        };
        (result, still) = until_due(&clock, &agent, &resume, (result, still)).await?;
    }
    let unreached = shared.marks.list_unreached();
    let report = stage.report(&result).await.map_err(RehearsalError::Store)?;
    drop(still);
    let mut diff: Vec<String> = list_exhausted_models(&operators, &report, &result);
    diff.extend(unsent.take());
    diff.extend(refused);
    Ok(stage.rehearsal(report, diff, unreached, &run))
}

/// A scenario while it runs.
struct Stage<'s> {
    scenario: &'s Scenario,
    shared: &'s ScenarioParts,
    operators: &'s Operators,
    clock: &'s VirtualClock,
}

impl Stage<'_> {
    /// Compares the report with the expectation. Parts that were not reached fail the scenario, unless it allows them.
    fn rehearsal(
        &self,
        report: RunReport,
        mut diff: Vec<String>,
        unreached: Vec<String>,
        run: &RunId,
    ) -> Rehearsal {
        diff.extend(difference(&self.scenario.expect, &report));
        if self.scenario.unused.is_none() {
            diff.extend(unreached.iter().map(|part| format!("unused: {part}")));
        }
        let unused = unreached.into_iter().chain(self.operators.leftovers()).collect();
        Rehearsal {
            scenario: self.scenario.name.clone(),
            pass: diff.is_empty(),
            diff: (!diff.is_empty()).then(|| diff.join("\n")),
            report,
            requests: self.operators.find_requests(run).take(),
            unused,
        }
    }

    /// Adds the cancellation to the parts that the run has to reach.
    fn mark_cancel(&self, at_ms: u64) -> ReachMark {
        self.shared.marks.add(format!("cancel at {at_ms} ms"))
    }

    /// Dispatches a workflow.
    async fn play_workflow(
        &self,
        name: &str,
        run: RunId,
        orchestrator: LocalOrchestrator,
    ) -> Result<Rehearsal, RehearsalError> {
        let Self { scenario, clock, .. } = self;
        let mut context = Context::root();
        context.run = Some(run.clone());
        context.session = scenario.session.as_deref().map(Into::into);
        let unsent =
            signals::send(&scenario.signals, &run, orchestrator.clone(), self.shared, clock);
        if let Some(ms) = scenario.cancel_at_ms {
            let (signals, timer) =
                (context.signals.clone(), clock.sleep(Duration::from_millis(ms)));
            let mark = self.mark_cancel(ms);
            tokio::spawn(clock.track(Box::pin(async move {
                timer.await;
                mark.reach();
                signals.push(Signal::cancel());
            })));
        }
        let (name, task) = (name.to_owned(), Task::text(scenario.input.as_str()));
        let dispatch = async move { orchestrator.dispatch(&name, task, context).await };
        let (result, still) = run_tracked(clock, None, dispatch).await?;
        let unreached = self.shared.marks.list_unreached();
        let events =
            self.events(&run).await.map_err(|error| RehearsalError::Store(error.into()))?;
        let report = RunReport::of_workflow(&run, &result, events);
        let report = self.with_runs(report).await.map_err(RehearsalError::Store)?;
        drop(still);
        let mut diff = exhausted_below(self.operators, &report);
        diff.extend(unsent.take());
        if !scenario.reopen.is_empty() {
            diff.push(
                "reopen: a workflow goes on by what dispatched it, not from outside".to_owned(),
            );
        }
        Ok(self.rehearsal(report, diff, unreached, &run))
    }

    /// Reports the run, and its child runs if the scenario has operators.
    async fn report(&self, result: &Result<RunOutcome, RunFailure>) -> Result<RunReport, BoxError> {
        let run = match result {
            Ok(outcome) => &outcome.run_id,
            Err(failure) => &failure.run_id,
        };
        let events = self.events(run).await?;
        let stored = stored_errors(&*self.shared.errors, &events).await?;
        self.with_runs(RunReport::new(result, events, stored)).await
    }

    async fn events(&self, run: &RunId) -> Result<Vec<Event>, LogError> {
        match read_events(&*self.shared.log, run).await {
            Ok((_, events)) => Ok(events),
            // Its first append failed.
            Err(LogError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn with_runs(&self, mut report: RunReport) -> Result<RunReport, BoxError> {
        if !self.scenario.operator.is_empty() {
            report.runs = session_runs(&*self.shared.log, &report).await?;
            for below in report.runs.iter_mut().skip(1) {
                below.requests = self.operators.find_requests(&below.run).take();
            }
        }
        Ok(report)
    }
}

/// Returns a line for each model that was asked more often than it has answers.
fn list_exhausted_models(
    operators: &Operators,
    report: &RunReport,
    result: &Result<RunOutcome, RunFailure>,
) -> Vec<String> {
    let own = result.as_ref().is_err_and(is_exhausted);
    let own = own.then(|| "model: asked more often than it has answers".to_owned());
    own.into_iter().chain(exhausted_below(operators, report)).collect()
}

fn exhausted_below(operators: &Operators, report: &RunReport) -> Vec<String> {
    let below = report.runs.iter().skip(1);
    let below = below.filter(|run| operators.find_requests(&run.run).is_exhausted());
    below
        .map(|run| format!("model of `{}`: asked more often than it has answers", run.operator))
        .collect()
}

/// Runs a future in a task of its own, because the clock must see when the task is idle. The returned hold keeps the
/// clock from advancing until it is dropped, for example by the next call.
async fn run_tracked<T: Send + 'static>(
    clock: &VirtualClock,
    still: Option<ClockHold>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(T, ClockHold), RehearsalError> {
    let (done, result) = oneshot::channel();
    let holding = clock.clone();
    let work = async move {
        let value = work.await;
        let _ = done.send((value, holding.hold()));
    };
    let task = tokio::spawn(clock.track(Box::pin(work)));
    drop(still);
    let lost = |_| RehearsalError::Agent("the run's task was lost".into());
    let result = result.await.map_err(lost)?;
    let _ = task.await;
    Ok(result)
}

type Ended = (Result<RunOutcome, RunFailure>, ClockHold);

/// Resumes a parked run when it is due, as a caller does.
async fn until_due(
    clock: &VirtualClock,
    agent: &Agent,
    request: &ResumeRequest,
    (mut result, mut still): Ended,
) -> Result<Ended, RehearsalError> {
    while let Some(until) = parked_until(&result) {
        let (agent, request, waits) = (agent.clone(), request.clone(), clock.clone());
        let resumed;
        (resumed, still) = run_tracked(clock, Some(still), async move {
            waits.sleep(until.since(waits.now())).await;
            agent.resume(request).await
        })
        .await?;
        result = match resumed {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(failure.into_inner()),
            Err(error) => return Err(RehearsalError::Store(error.into())),
        };
    }
    Ok((result, still))
}

/// Builds the request to reopen a run.
fn build_reopen_request(run: &RunId, reopening: &Reopening) -> ReopenRequest {
    let mut request = ReopenRequest::new(run.clone()).budget(reopening.budget);
    if let Some(by) = &reopening.by {
        request = request.by(by.as_str());
    }
    if let Some(message) = &reopening.message {
        request = request.message(message.as_str());
    }
    request
}

fn parked_until(result: &Result<RunOutcome, RunFailure>) -> Option<Timestamp> {
    result.as_ref().ok()?.parked_until
}

fn is_exhausted(failure: &RunFailure) -> bool {
    sources(failure).any(|cause| cause.is::<ScriptExhausted>())
}
