//! `backstop runs`

mod tree;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{
    EventLog, RunFilter, RunState, RunSummary, StuckReason, StuckRun, stuck_runs,
};
use backstop_react::priced;
use backstop_retention::{RemoveError, Removed};
use layer0::failure::Seconds;
use layer0::id::{RunId, SessionId};
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp};
use serde::Serialize;

use self::tree::{Callers, Placed, Style};
use crate::args::{
    EndedState, ListedState, RunsArgs, RunsCommand, RunsDeleteArgs, RunsListArgs, RunsPruneArgs,
};
use crate::exit::CliError;
use crate::ids;
use crate::output::{self, counted};
use crate::store::{self, Chosen};

pub(crate) async fn run(args: RunsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        None => list(args.list).await,
        Some(RunsCommand::Prune(args)) => prune(args).await,
        Some(RunsCommand::Delete(args)) => delete(args).await,
    }
}

async fn list(args: RunsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let filter = filter(&args);
    let is_narrowed = filter != RunFilter::new().limit(args.limit);
    if args.stuck {
        return stuck(&chosen, &filter, args.json).await;
    }
    let database = store::open_read_only(&chosen).await?;
    let listed = async {
        match &database {
            Some(database) if args.json => lines(&*database.log(), filter).await,
            Some(database) => table(&*database.log(), filter, is_narrowed).await,
            None => Ok(false),
        }
    };
    let listed = listed.await;
    if let Some(database) = database {
        database.close().await;
    }
    if !listed? && !args.json {
        let fit = if is_narrowed { " that fit" } else { "" };
        output::note(&format!("no runs{fit} in {}", chosen.url));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints runs as lines of JSON, each for itself; says whether there were some.
async fn lines(log: &dyn EventLog, filter: RunFilter) -> Result<bool, CliError> {
    let runs = log.runs(filter).await?;
    let mut callers = Callers::new(log);
    for run in &runs {
        let root = callers.root(run).await?;
        let run = priced(run.clone());
        let (parent, line) = (run.parent.as_ref(), RunLine::of(&run));
        output::json(&TreeLine { line, parent, root: &root })?;
    }
    Ok(!runs.is_empty())
}

/// Prints runs with those below them; says whether there were some.
async fn table(log: &dyn EventLog, filter: RunFilter, narrowed: bool) -> Result<bool, CliError> {
    let style = if output::shows_results() { Style::Lines } else { Style::Indent };
    let placed = tree::list(log, filter, narrowed, style).await?;
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
    let rows = placed.into_iter().map(|Placed { run, lead, note }| {
        let labels = is_filed.then(|| labels(&run));
        let mut cells = row(&priced(run));
        cells.extend(labels.into_iter().chain(note));
        (lead, cells)
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        output::tree(&header, &rows)?;
    }
    Ok(!rows.is_empty())
}

fn filter(args: &RunsListArgs) -> RunFilter {
    let mut filter = RunFilter::new().limit(args.limit);
    filter.session = args.session.as_deref().map(Into::into);
    filter.agent.clone_from(&args.agent);
    filter.labels.extend(args.labels.iter().cloned());
    filter.reason.clone_from(&args.code);
    (filter.from, filter.to) = (args.time.since, args.time.until);
    filter.states = args.states.iter().map(|state| (*state).into()).collect();
    if args.failed {
        filter.states.push(RunState::Failed);
    }
    filter
}

impl From<ListedState> for RunState {
    fn from(state: ListedState) -> Self {
        match state {
            ListedState::Running => Self::Running,
            ListedState::WaitingApproval => Self::WaitingApproval,
            ListedState::Parked => Self::Parked,
            ListedState::Finished => Self::Finished,
            ListedState::Failed => Self::Failed,
        }
    }
}

/// Lists the runs that need a look.
async fn stuck(chosen: &Chosen, filter: &RunFilter, json: bool) -> Result<ExitCode, CliError> {
    let mut stuck = match store::open_read_only(chosen).await? {
        Some(database) => {
            let stuck = stuck_runs(&*database.log(), SystemClock.now()).await;
            database.close().await;
            stuck?
        }
        None => Vec::new(),
    };
    stuck.retain(|stuck| filter.matches(&stuck.run));
    stuck
        .truncate(filter.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
    if json {
        for StuckRun { run, why, since, .. } in stuck {
            let run = priced(run);
            output::json(&StuckLine { line: RunLine::of(&run), stuck: why, since })?;
        }
    } else if stuck.is_empty() {
        output::note(&format!("no run needs a look in {}", chosen.url));
    } else {
        let row = |stuck: &StuckRun| {
            let StuckRun { run, why, since, .. } = stuck;
            let (why, since) = (why.as_str().to_owned(), since.to_string());
            vec![run.run.to_string(), why, since, run.session.to_string(), run.agent.to_string()]
        };
        let rows: Vec<Vec<String>> = stuck.iter().map(row).collect();
        output::table(&["RUN", "WHY", "SINCE", "SESSION", "AGENT"], &rows)?;
        output::note(
            "`backstop approvals` lists what they wait for; `backstop resume RUN` goes on",
        );
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
    let run = ids::run_of(&chosen, &args.run).await?;
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
    let state = match removed.state {
        0 => String::new(),
        values => format!(", {}", counted(values, "value")),
    };
    format!(
        "{} taken away, {}, {}{state}",
        counted(runs, "run"),
        counted(removed.errors, "error"),
        counted(removed.results, "result")
    )
}

/// A run that needs a look as one line of JSON.
#[derive(Serialize)]
struct StuckLine<'a> {
    #[serde(flatten)]
    line: RunLine<'a>,
    stuck: StuckReason,
    since: Timestamp,
}

/// A run as one line of JSON, with its place among others.
#[derive(Serialize)]
struct TreeLine<'a> {
    #[serde(flatten)]
    line: RunLine<'a>,
    parent: Option<&'a RunId>,
    root: &'a RunId,
}

/// A run as one line of JSON.
#[derive(Serialize)]
struct RunLine<'a> {
    run: &'a RunId,
    session: &'a SessionId,
    agent: &'a str,
    state: RunState,
    outcome: Option<Outcome>,
    reason: Option<&'a Code>,
    started_at: Timestamp,
    finished_at: Option<Timestamp>,
    usage: Usage,
    labels: &'a BTreeMap<String, String>,
}

impl<'a> RunLine<'a> {
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
            labels: &run.labels,
        }
    }
}

fn labels(run: &RunSummary) -> String {
    let labels: Vec<String> =
        run.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(" ")
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
