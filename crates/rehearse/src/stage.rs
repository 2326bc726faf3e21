//! Sets a scenario up, runs it and compares.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_config::{Reopening, Scenario};
use backstop_error_store::{ErrorStore, ResultStore};
use backstop_event_log::{EventLog, LogError, read_events};
use backstop_provider::{ScriptExhausted, ScriptedProvider};
use backstop_react::{
    Agent, CancellationToken, ReopenRequest, ResumeError, RunFailure, RunOutcome, RunRequest,
};
use backstop_retry::Jitter;
use backstop_store_sqlite::Database;
use layer0::Timestamp;
use layer0::error::BoxError;
use layer0::failure::{Chain, sources};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::approvals::ScriptedApprover;
use crate::expect::difference;
use crate::faults::{FaultyErrorStore, FaultyLog, FaultyResultStore};
use crate::held::Held;
use crate::hooks::ScriptedGate;
use crate::memory::ScriptedMemory;
use crate::model::{NotingProvider, Requests, SentRequest};
use crate::report::{RunReport, stored_errors};
use crate::tools::Scripted;

/// When every scenario begins: 2026-01-01T00:00:00Z, in milliseconds since 1970.
const START_MS: i64 = 1_767_225_600_000;

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rehearsal {
    /// The scenario's name.
    pub scenario: String,
    /// Did everything come as expected?
    pub pass: bool,
    /// What differs.
    pub diff: Option<String>,
    /// The run.
    #[serde(flatten)]
    pub report: RunReport,
    /// What the model was sent, one per attempt.
    pub requests: Vec<SentRequest>,
}

/// Says why a scenario could not be run at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum RehearsalError {
    /// The agent cannot be built from it.
    Agent(BoxError),
    /// The store cannot be opened or read.
    Store(BoxError),
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

/// Runs a scenario in a store of its own. `file` is where it came from; relative paths in it are
/// below that file's folder.
///
/// The same comes of the same scenario every time: everything happens on one thread, so that tools
/// which end at the same moment answer in the same order.
///
/// # Errors
///
/// [`RehearsalError::Agent`], [`RehearsalError::Store`]. A run that fails is no error here.
///
/// # Cancel safety
///
/// Dropping the future leaves the rehearsal to end by itself, unseen.
pub async fn rehearse(scenario: &Scenario, file: &Path) -> Result<Rehearsal, RehearsalError> {
    let (scenario, file) = (scenario.clone(), file.to_owned());
    let (done, result) = oneshot::channel();
    let rehearsal = move || {
        let result = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(rehearse_here(&scenario, &file)),
            Err(error) => Err(RehearsalError::Agent(error.into())),
        };
        let _ = done.send(result);
    };
    std::thread::Builder::new()
        .name("rehearsal".to_owned())
        .spawn(rehearsal)
        .map_err(|error| RehearsalError::Agent(error.into()))?;
    result.await.map_err(|_| RehearsalError::Agent("the rehearsal's thread was lost".into()))?
}

async fn rehearse_here(scenario: &Scenario, file: &Path) -> Result<Rehearsal, RehearsalError> {
    let database =
        Database::in_memory().await.map_err(|error| RehearsalError::Store(error.into()))?;
    let result = play(scenario, file, &database).await;
    database.close().await;
    result
}

async fn play(
    scenario: &Scenario,
    file: &Path,
    database: &Database,
) -> Result<Rehearsal, RehearsalError> {
    let clock = VirtualClock::starting_at(Timestamp::from_millis(START_MS));
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let log: Arc<dyn EventLog> = Arc::new(Held::new(log, clock.clone()));
    let log = FaultyLog::wrap(log, scenario.log);
    let errors: Arc<dyn ErrorStore> = Arc::new(database.errors());
    let errors: Arc<dyn ErrorStore> = Arc::new(Held::new(errors, clock.clone()));
    let results: Arc<dyn ResultStore> = Arc::new(database.results());
    let results: Arc<dyn ResultStore> = Arc::new(Held::new(results, clock.clone()));
    let results = FaultyResultStore::wrap(results, scenario.result_store);
    let requests = Requests::default();
    let agent = build(scenario, file, &shared, &log, &errors, results, &requests)
        .map_err(RehearsalError::Agent)?;

    let mut request = RunRequest::new(scenario.input.as_str());
    request.session = scenario.session.as_deref().map(Into::into);
    if let Some(ms) = scenario.cancel_at_ms {
        let token = CancellationToken::new();
        request = request.cancelled_by(token.clone());
        let timer = clock.sleep(Duration::from_millis(ms));
        tokio::spawn(clock.track(Box::pin(async move {
            timer.await;
            token.cancel();
        })));
    }
    let first = agent.clone();
    let mut result = tracked(&clock, async move { first.run(request).await }).await?;
    let mut refused = None;
    for reopening in &scenario.reopen {
        let (agent, request) = (agent.clone(), request_of(&result, reopening));
        let opened = tracked(&clock, async move { agent.reopen(request).await }).await?;
        result = match opened {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(*failure),
            Err(error) => {
                // Without the run's id, which is another one each time.
                refused = Some(match &error {
                    ResumeError::NotReopenable { why, .. } => format!("reopen: {why}"),
                    other => format!("reopen: {}", Chain(other)),
                });
                break;
            }
        };
    }

    let run_id = match &result {
        Ok(outcome) => &outcome.run_id,
        Err(failure) => &failure.run_id,
    };
    let failed = |error: BoxError| RehearsalError::Store(error);
    let events = match read_events(&*log, run_id).await {
        Ok((_, events)) => events,
        // Its first append failed.
        Err(LogError::NotFound(_)) => Vec::new(),
        Err(error) => return Err(failed(error.into())),
    };
    let stored = stored_errors(&*errors, &events).await.map_err(|error| failed(error.into()))?;
    let report = RunReport::new(&result, events, stored);
    let diff = difference(&scenario.expect, &report);
    let mut diff = match (refused, diff) {
        (Some(refused), Some(diff)) => Some(format!("{refused}\n{diff}")),
        (refused, diff) => refused.or(diff),
    };
    if result.as_ref().is_err_and(is_exhausted) {
        let more = diff.map(|diff| format!("\n{diff}")).unwrap_or_default();
        diff = Some(format!("model: asked more often than it has answers{more}"));
    }
    Ok(Rehearsal {
        scenario: scenario.name.clone(),
        pass: diff.is_none(),
        diff,
        report,
        requests: requests.take(),
    })
}

/// Performs something in a task of its own, because the clock has to see when it is idle.
async fn tracked<T: Send + 'static>(
    clock: &VirtualClock,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, RehearsalError> {
    let (done, result) = oneshot::channel();
    let work = async move {
        let _ = done.send(work.await);
    };
    let task = tokio::spawn(clock.track(Box::pin(work)));
    let lost = |_| RehearsalError::Agent("the run's task was lost".into());
    let result = result.await.map_err(lost)?;
    let _ = task.await;
    Ok(result)
}

/// Makes the request to open a run again that ended like this.
fn request_of(result: &Result<RunOutcome, RunFailure>, reopening: &Reopening) -> ReopenRequest {
    let run = match result {
        Ok(outcome) => &outcome.run_id,
        Err(failure) => &failure.run_id,
    };
    let mut request = ReopenRequest::new(run.clone()).budget(reopening.budget);
    if let Some(by) = &reopening.by {
        request = request.by(by.as_str());
    }
    if let Some(message) = &reopening.message {
        request = request.message(message.as_str());
    }
    request
}

fn build(
    scenario: &Scenario,
    file: &Path,
    clock: &Arc<dyn Clock>,
    log: &Arc<dyn EventLog>,
    errors: &Arc<dyn ErrorStore>,
    results: Option<Arc<dyn ResultStore>>,
    requests: &Requests,
) -> Result<Agent, BoxError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let script = ScriptedProvider::new(scenario.model.clone()).with_clock(Arc::clone(clock));
    let mut agent = Agent::builder(NotingProvider { script, requests: requests.clone() })
        .name(scenario.agent.name.as_deref().unwrap_or("scenario"))
        .instructions(scenario.agent.instructions(file, folder)?)
        .limits(scenario.agent.limits())
        .budget(scenario.agent.budget())
        .retry(scenario.agent.retry())
        .jitter(Jitter::seeded(seed(&scenario.name)))
        .clock(Arc::clone(clock))
        .shared_log(Arc::clone(log));
    if let Some(price) = scenario.agent.price() {
        agent = agent.price(price);
    }
    for name in &scenario.agent.limits.exploratory_tools {
        agent = agent.exploratory_tool(name.as_str());
    }
    for grant in scenario.agent.grants(folder) {
        agent = agent.grant(grant);
    }
    for tool in &scenario.tools {
        agent = agent.tool(Scripted::new(tool, folder, Arc::clone(clock)));
    }
    if let Some(table) = &scenario.memory {
        agent = agent.memory(ScriptedMemory { table: table.clone(), clock: Arc::clone(clock) });
    }
    for hook in &scenario.hooks {
        agent = agent.gate(ScriptedGate::new(hook.clone(), Arc::clone(clock)));
    }
    if !scenario.approvals.is_empty() {
        agent =
            agent.approver(ScriptedApprover::new(scenario.approvals.clone(), Arc::clone(clock)));
    }
    agent = match results {
        Some(results) => agent.shared_result_store(results),
        None => agent.without_result_store(),
    };
    agent = match FaultyErrorStore::wrap(Arc::clone(errors), scenario.error_store) {
        Some(errors) => agent.shared_error_store(errors),
        None => agent.without_error_store(),
    };
    agent.build().map_err(Into::into)
}

/// Makes the same waits for the same scenario: FNV-1a 64 of its name.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn is_exhausted(failure: &RunFailure) -> bool {
    sources(failure).any(|cause| cause.is::<ScriptExhausted>())
}
