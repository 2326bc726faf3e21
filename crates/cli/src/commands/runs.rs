//! `backstop runs`

mod line;
mod search;
mod stuck;
mod tree;
mod wanted;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, RunState, RunSummary};
use backstop_react::add_cost;
use backstop_retention::{Fork, RemoveError, Removed};
use layer0::failure::Seconds;
use layer0::id::RunId;
use serde::Serialize;

use self::line::RunLine;
use self::tree::{Callers, RunTreeRow, Style};
use self::wanted::RunConditions;
use crate::args::{EndedState, RunsArgs, RunsCommand, RunsDeleteArgs, RunsListArgs, RunsPruneArgs};
use crate::commands::run::check_labels;
use crate::exit::CliError;
use crate::ids;
use crate::output::{self, format_count};
use crate::store::{self, AnyDatabase};

pub(crate) async fn run(args: RunsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        None => list(args.list).await,
        Some(RunsCommand::Prune(args)) => prune(args).await,
        Some(RunsCommand::Delete(args)) => delete(args).await,
    }
}

async fn list(args: RunsListArgs) -> Result<ExitCode, CliError> {
    check_labels(&args.labels)?;
    let chosen = store::choose(&args.store, None)?;
    if args.stuck {
        return stuck::list(&chosen, &args).await;
    }
    let database = store::open_read_only(&chosen).await?;
    let listed = match &database {
        Some(database) => list_stored(database, &args).await,
        None => Ok(false),
    };
    if let Some(database) = database {
        database.close().await;
    }
    if !listed? && !args.json {
        let is_narrowed = RunConditions::new(&args, BTreeSet::new()).is_narrowed();
        let fit = if is_narrowed { " that fit" } else { "" };
        output::note(&format!("no runs{fit} in {}", chosen.describe()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the runs of a store; returns whether there are any.
async fn list_stored(database: &AnyDatabase, args: &RunsListArgs) -> Result<bool, CliError> {
    let interrupted = database.interrupted_runs().await?.into_keys().collect();
    let wanted = RunConditions::new(args, interrupted);
    let log = database.log();
    match args.json {
        true => lines(&*log, &wanted).await,
        false => table(&*log, &wanted).await,
    }
}

/// Prints runs as single lines of JSON; returns whether there are any.
async fn lines(log: &dyn EventLog, wanted: &RunConditions) -> Result<bool, CliError> {
    let runs = wanted.runs(log).await?;
    let mut callers = Callers::new(log);
    for run in &runs {
        let root = callers.root(run).await?;
        let run = add_cost(run.clone());
        let (parent, line) = (run.parent.as_ref(), RunLine::new(&run, wanted.state(&run)));
        output::json(&TreeLine { line, parent, root: &root })?;
    }
    Ok(!runs.is_empty())
}

/// Prints runs with their child runs; returns whether there are any.
async fn table(log: &dyn EventLog, wanted: &RunConditions) -> Result<bool, CliError> {
    let style = if output::shows_results() { Style::Lines } else { Style::Indent };
    let placed = tree::list(log, wanted, style).await?;
    let mut header = vec![
        "RUN", "STATE", "OUTCOME", "STARTED", "TOOK", "MODEL", "TOOLS", "TOKENS", "COST", "ERRORS",
        "AGENT", "REASON",
    ];
    let is_filed = placed.iter().any(|one| !one.run.labels.is_empty());
    if is_filed {
        header.push("LABELS");
    }
    if placed.iter().any(|one| one.note.is_some()) {
        header.push("NOTE");
    }
    let rows = placed.into_iter().map(|RunTreeRow { run, lead, note }| {
        let labels = is_filed.then(|| labels(&run));
        let state = wanted.state(&run);
        let mut cells = row(&add_cost(run), state);
        cells.extend(labels.into_iter().chain(note));
        (lead, cells)
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        output::tree(&header, &rows)?;
    }
    Ok(!rows.is_empty())
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
    if args.dry_run {
        let runs = match store::open_read_only(&chosen).await? {
            Some(database) => {
                let runs = database.plan_prune(args.older_than, &states, SystemClock.now()).await;
                database.close().await;
                runs?
            }
            None => Vec::new(),
        };
        return report_plan(&runs, &[], args.json);
    }
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
    let run = ids::find_run(&chosen, &args.run).await?;
    let opened = match args.dry_run {
        true => store::open_read_only(&chosen).await?,
        false => store::open_existing(&chosen).await?,
    };
    let Some(database) = opened else { return Err(RemoveError::NoRun(run).into()) };
    if args.dry_run {
        let runs = database.plan_delete(&run).await;
        database.close().await;
        return report_plan(&runs?, &[], args.json);
    }
    let removed = database.delete_run(&run).await;
    database.close().await;
    report(&removed?, args.json)
}

/// Prints the runs that would be removed; with JSON also the copies that would stay.
pub(crate) fn report_plan(
    runs: &[RunId],
    forks: &[Fork],
    json: bool,
) -> Result<ExitCode, CliError> {
    if json {
        output::json(&Plan { dry_run: true, runs, forks })?;
        return Ok(ExitCode::SUCCESS);
    }
    for run in runs {
        output::line(run.as_str())?;
    }
    let count = u64::try_from(runs.len()).unwrap_or(u64::MAX);
    output::note(&format!("{} would be removed; nothing was", format_count(count, "run")));
    Ok(ExitCode::SUCCESS)
}

/// The result of `--dry-run`, for one line of JSON.
#[derive(Serialize)]
struct Plan<'a> {
    dry_run: bool,
    runs: &'a [RunId],
    #[serde(skip_serializing_if = "<[Fork]>::is_empty")]
    forks: &'a [Fork],
}

fn report(removed: &Removed, json: bool) -> Result<ExitCode, CliError> {
    if json {
        output::json(removed)?;
    } else {
        output::line(&describe(removed))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line about removed data.
pub(crate) fn describe(removed: &Removed) -> String {
    let runs = u64::try_from(removed.runs.len()).unwrap_or(u64::MAX);
    let state = match removed.state {
        0 => String::new(),
        values => format!(", {}", format_count(values, "value")),
    };
    format!(
        "{} taken away, {}, {}{state}",
        format_count(runs, "run"),
        format_count(removed.errors, "error"),
        format_count(removed.results, "result")
    )
}

/// A run with its caller and root, for one line of JSON.
#[derive(Serialize)]
struct TreeLine<'a> {
    #[serde(flatten)]
    line: RunLine<'a>,
    parent: Option<&'a RunId>,
    root: &'a RunId,
}

fn labels(run: &RunSummary) -> String {
    let labels: Vec<String> =
        run.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(" ")
}

fn row(run: &RunSummary, state: &str) -> Vec<String> {
    let usage = &run.usage;
    vec![
        run.run.to_string(),
        state.to_owned(),
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
