//! `backstop trace`

use std::process::ExitCode;

use event_log::{LogError, TraceLine, read_events};
use layer0::id::RunId;

use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: TraceArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    let database =
        store::open_read_only(&chosen).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let read = read_events(&database.log(), &run).await;
    database.close().await;
    let (summary, events) = read?;
    for event in &events {
        if args.json {
            output::json(event)?;
        } else {
            output::line(&TraceLine { event, started: summary.started_at }.to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
