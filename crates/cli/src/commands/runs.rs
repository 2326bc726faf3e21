//! `backstop runs`

use std::process::ExitCode;
use std::time::Duration;

use event_log::{EventLog, RunFilter, RunSummary};
use layer0::failure::Seconds;

use crate::args::RunsArgs;
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: RunsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let filter = RunFilter { session: args.session.map(Into::into), limit: Some(args.limit) };
    let runs = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let runs = database.log().runs(filter).await?;
            database.close().await;
            runs
        }
        None => Vec::new(),
    };
    if args.json {
        runs.iter().try_for_each(output::json)?;
    } else if runs.is_empty() {
        output::note(&format!("no runs in {}", chosen.url));
    } else {
        let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
        let header =
            ["RUN", "OUTCOME", "STARTED", "TOOK", "MODEL", "TOOLS", "TOKENS", "AGENT", "REASON"];
        output::table(&header, &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(run: &RunSummary) -> Vec<String> {
    let usage = &run.usage;
    vec![
        run.run.to_string(),
        run.outcome.map_or(run.state.as_str(), |outcome| outcome.as_str()).to_owned(),
        run.started_at.to_string(),
        Seconds(Duration::from_millis(usage.wall_ms)).to_string(),
        usage.model_calls.to_string(),
        usage.tool_calls.to_string(),
        usage.total_tokens.to_string(),
        run.agent.clone(),
        run.reason.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}
