//! `backstop sessions list`

use std::collections::BTreeSet;
use std::process::ExitCode;

use backstop_event_log::{EventLog, LogError, RunFilter, RunSummary};
use backstop_react::add_cost;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use serde::Serialize;

use crate::args::SessionsListArgs;
use crate::exit::CliError;
use crate::newest::find_newest;
use crate::output;
use crate::store::{self, AnyDatabase};

/// The summary of a session.
#[derive(Debug, Serialize)]
struct SessionLine {
    session: SessionId,
    /// Number of runs, without child runs.
    runs: usize,
    /// The run that started last.
    last_run: RunId,
    /// Agent of the last run.
    agent: String,
    /// State of the last run.
    state: String,
    started_at: Timestamp,
    last_started_at: Timestamp,
    total_tokens: u64,
    /// Cost of the session; `None` if a run has no price.
    cost_usd: Option<f64>,
}

pub(super) async fn run(args: &SessionsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let sessions = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let sessions = read(&database, args).await;
            database.close().await;
            sessions?
        }
        None => Vec::new(),
    };
    if args.json {
        sessions.iter().try_for_each(output::json)?;
    } else if sessions.is_empty() {
        output::note(&format!("no sessions in {}", chosen.describe()));
    } else {
        let rows: Vec<Vec<String>> = sessions.iter().map(SessionLine::cells).collect();
        let header =
            ["SESSION", "RUNS", "STARTED", "LAST", "STATE", "TOKENS", "COST", "LAST RUN", "AGENT"];
        output::table(&header, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the sessions of the newest runs.
async fn read(
    database: &AnyDatabase,
    args: &SessionsListArgs,
) -> Result<Vec<SessionLine>, LogError> {
    let mut filter = RunFilter::new();
    filter.agent.clone_from(&args.agent);
    (filter.from, filter.to) = (args.time.since, args.time.until);
    let interrupted = database.interrupted_runs().await?;
    let log = database.log();
    let mut sessions = Vec::new();
    for session in newest(&*log, filter, args.limit).await? {
        let runs = log.runs(RunFilter::new().session(session).roots()).await?;
        let is_interrupted = runs.first().is_some_and(|last| interrupted.contains_key(&last.run));
        sessions.extend(SessionLine::new(runs, is_interrupted));
    }
    Ok(sessions)
}

/// Returns the sessions of the newest matching runs, without duplicates.
async fn newest(
    log: &dyn EventLog,
    filter: RunFilter,
    limit: u32,
) -> Result<Vec<SessionId>, LogError> {
    find_newest(limit, async |looked_at| {
        let runs = log.runs(filter.clone().limit(looked_at)).await?;
        let is_all = runs.len() < usize::try_from(looked_at).unwrap_or(usize::MAX);
        let mut seen = BTreeSet::new();
        let sessions = runs.into_iter().map(|run| run.session);
        Ok((sessions.filter(|id| seen.insert(id.clone())).collect(), is_all))
    })
    .await
}

impl SessionLine {
    /// Sums up the runs of a session, newest first; returns `None` without runs.
    fn new(runs: Vec<RunSummary>, is_interrupted: bool) -> Option<Self> {
        let (last, first) = (runs.first()?, runs.last()?);
        let mut line = Self {
            session: last.session.clone(),
            runs: runs.len(),
            last_run: last.run.clone(),
            agent: last.agent.to_string(),
            state: if is_interrupted { "interrupted" } else { last.state.as_str() }.to_owned(),
            started_at: first.started_at,
            last_started_at: last.started_at,
            total_tokens: 0,
            cost_usd: Some(0.0),
        };
        for run in runs {
            let usage = add_cost(run).usage;
            line.total_tokens = line.total_tokens.saturating_add(usage.total_tokens);
            line.cost_usd = line.cost_usd.zip(usage.cost_usd).map(|(sum, cost)| sum + cost);
        }
        Some(line)
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.session.to_string(),
            self.runs.to_string(),
            self.started_at.to_string(),
            self.last_started_at.to_string(),
            self.state.clone(),
            self.total_tokens.to_string(),
            self.cost_usd.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
            self.last_run.to_string(),
            self.agent.clone(),
        ]
    }
}
