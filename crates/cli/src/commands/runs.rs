//! `backstop runs`

use std::process::ExitCode;
use std::time::Duration;

use clock::{Clock, SystemClock};
use event_log::{EventLog, RunFilter, RunState, RunSummary};
use layer0::failure::Seconds;
use layer0::id::{RunId, SessionId};
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp};
use react::priced;
use serde::Serialize;
use store_sqlite::{RemoveError, Removed};

use crate::args::{EndedState, RunsArgs, RunsCommand, RunsDeleteArgs, RunsListArgs, RunsPruneArgs};
use crate::exit::CliError;
use crate::output::{self, counted};
use crate::store;

pub(crate) async fn run(args: RunsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        None => list(args.list).await,
        Some(RunsCommand::Prune(args)) => prune(args).await,
        Some(RunsCommand::Delete(args)) => delete(args).await,
    }
}

async fn list(args: RunsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let filter = RunFilter { session: args.session.map(Into::into), limit: Some(args.limit) };
    let runs: Vec<RunSummary> = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let runs = database.log().runs(filter).await;
            database.close().await;
            runs?.into_iter().map(priced).collect()
        }
        None => Vec::new(),
    };
    if args.json {
        runs.iter().map(Line::of).try_for_each(|line| output::json(&line))?;
    } else if runs.is_empty() {
        output::note(&format!("no runs in {}", chosen.url));
    } else {
        let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
        let header = [
            "RUN", "STATE", "OUTCOME", "STARTED", "TOOK", "MODEL", "TOOLS", "TOKENS", "COST",
            "ERRORS", "AGENT", "REASON",
        ];
        output::table(&header, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn prune(args: RunsPruneArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let states: Vec<RunState> = args
        .states
        .iter()
        .map(|state| match state {
            EndedState::Finished => RunState::Finished,
            EndedState::Failed => RunState::Failed,
        })
        .collect();
    let removed = match store::open_existing(&chosen).await? {
        Some(database) => {
            let removed = database.prune_runs(args.older_than, &states, SystemClock.now()).await;
            database.close().await;
            removed?
        }
        None => Removed::default(),
    };
    report(&removed, args.json)
}

async fn delete(args: RunsDeleteArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let run = RunId::from(args.run);
    let Some(database) = store::open_existing(&chosen).await? else {
        return Err(RemoveError::NoRun(run).into());
    };
    let removed = database.delete_run(&run).await;
    database.close().await;
    report(&removed?, args.json)
}

fn report(removed: &Removed, json: bool) -> Result<ExitCode, CliError> {
    if json {
        output::json(removed)?;
    } else {
        output::line(&describe(removed))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what was taken away.
pub(crate) fn describe(removed: &Removed) -> String {
    let runs = u64::try_from(removed.runs.len()).unwrap_or(u64::MAX);
    format!(
        "{} taken away, {}, {}",
        counted(runs, "run"),
        counted(removed.errors, "error"),
        counted(removed.results, "result")
    )
}

/// A run as one line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    run: &'a RunId,
    session: &'a SessionId,
    agent: &'a str,
    state: RunState,
    outcome: Option<Outcome>,
    reason: Option<&'a Code>,
    started_at: Timestamp,
    finished_at: Option<Timestamp>,
    usage: Usage,
}

impl<'a> Line<'a> {
    fn of(run: &'a RunSummary) -> Self {
        Self {
            run: &run.run,
            session: &run.session,
            agent: &run.agent,
            state: run.state,
            outcome: run.outcome,
            reason: run.reason.as_ref(),
            started_at: run.started_at,
            finished_at: run.finished_at,
            usage: run.usage,
        }
    }
}

fn row(run: &RunSummary) -> Vec<String> {
    let usage = &run.usage;
    vec![
        run.run.to_string(),
        run.state.as_str().to_owned(),
        run.outcome.map_or("-", |outcome| outcome.as_str()).to_owned(),
        run.started_at.to_string(),
        Seconds(Duration::from_millis(usage.wall_ms)).to_string(),
        usage.model_calls.to_string(),
        usage.tool_calls.to_string(),
        usage.total_tokens.to_string(),
        usage.cost_usd.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
        run.errors.to_string(),
        run.agent.to_string(),
        run.reason.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}
