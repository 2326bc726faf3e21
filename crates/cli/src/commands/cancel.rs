//! `backstop cancel`

use std::process::ExitCode;
use std::sync::Arc;

use backstop_event_log::{EventLog, LogError};
use backstop_react::ResumeError;

use serde_json::json;

use crate::args::CancelArgs;
use crate::commands::resume::find_open_root;
use crate::exit::CliError;
use crate::prompt::user;
use crate::recorded::RecordedAgentFile;
use crate::{ids, output, store};

pub(crate) async fn run(args: CancelArgs) -> Result<ExitCode, CliError> {
    let by = args.by.unwrap_or_else(user);
    let chosen = store::choose(&args.store, None)?;
    let named = ids::find_run(&chosen, &args.run).await?;
    let root = find_open_root(&chosen, &named).await?;
    if let Some(root) = &root {
        output::note(&format!("run {named} was dispatched by {root}: stopping {root}"));
    }
    let run = root.unwrap_or(named);
    let missing = || CliError::no_run(run.clone());
    let database = store::open_existing(&chosen).await?.ok_or_else(missing)?;
    let log: Arc<dyn EventLog> = database.log();
    // The name is recorded.
    let redactor = RecordedAgentFile::redactor(&*log, &run).await;
    let by = redactor.redact(&by);
    let cancelled = backstop_react::cancel(log, &run, &by).await;
    let summary = database.log().summary(&run).await;
    database.close().await;
    match cancelled {
        Err(ResumeError::Log(LogError::NotFound(_))) => Err(missing()),
        Err(error) => Err(error.into()),
        Ok(false) => Err(CliError::usage(format!("run `{run}` is over"))
            .with_hint("`backstop trace` shows how it ended")),
        Ok(true) => {
            let summary = summary?;
            if args.json {
                let state = summary.as_ref().map(|summary| summary.state);
                let outcome = summary.and_then(|summary| summary.outcome);
                let by = &*by;
                output::json(&json!({ "run": run, "state": state, "outcome": outcome, "by": by }))?;
                return Ok(ExitCode::SUCCESS);
            }
            let over = summary.is_some_and(|summary| !summary.is_open());
            let done = if over { "is cancelled" } else { "is told to stop" };
            output::note(&format!("{run} {done}"));
            Ok(ExitCode::SUCCESS)
        }
    }
}
