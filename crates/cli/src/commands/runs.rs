//! `backstop runs`

use std::process::ExitCode;
use std::time::Duration;

use error_store::{ErrorFilter, ErrorStore};
use event_log::{EventLog, RunFilter, RunSummary};
use layer0::failure::Seconds;
use store_sqlite::Database;

use crate::args::RunsArgs;
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: RunsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let filter = RunFilter { session: args.session.map(Into::into), limit: Some(args.limit) };
    let (runs, errors) = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let read = async {
                let runs = database.log().runs(filter).await?;
                let errors = if args.json { Vec::new() } else { count(&database, &runs).await? };
                Ok::<_, CliError>((runs, errors))
            };
            let read = read.await;
            database.close().await;
            read?
        }
        None => (Vec::new(), Vec::new()),
    };
    if args.json {
        runs.iter().try_for_each(output::json)?;
    } else if runs.is_empty() {
        output::note(&format!("no runs in {}", chosen.url));
    } else {
        let rows: Vec<Vec<String>> =
            runs.iter().zip(errors).map(|(run, errors)| row(run, errors)).collect();
        let header = [
            "RUN", "OUTCOME", "STARTED", "TOOK", "MODEL", "TOOLS", "TOKENS", "COST", "ERRORS",
            "AGENT", "REASON",
        ];
        output::table(&header, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the errors that each run stored.
async fn count(database: &Database, runs: &[RunSummary]) -> Result<Vec<usize>, CliError> {
    let mut counts = Vec::with_capacity(runs.len());
    for run in runs {
        let filter = ErrorFilter { run: Some(run.run.clone()), ..Default::default() };
        counts.push(database.errors().list(filter).await?.len());
    }
    Ok(counts)
}

fn row(run: &RunSummary, errors: usize) -> Vec<String> {
    let usage = &run.usage;
    vec![
        run.run.to_string(),
        run.outcome.map_or(run.state.as_str(), |outcome| outcome.as_str()).to_owned(),
        run.started_at.to_string(),
        Seconds(Duration::from_millis(usage.wall_ms)).to_string(),
        usage.model_calls.to_string(),
        usage.tool_calls.to_string(),
        usage.total_tokens.to_string(),
        usage.cost_usd.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
        errors.to_string(),
        run.agent.clone(),
        run.reason.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}
