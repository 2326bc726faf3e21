//! `backstop results`

use std::process::ExitCode;

use error_store::{Lookup, ResultRecord, ResultStore};
use layer0::id::ResultId;
use serde_json::json;

use crate::args::{ResultsArgs, ResultsCommand, ResultsShowArgs};
use crate::exit::CliError;
use crate::{output, store};

pub(crate) async fn run(args: ResultsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        ResultsCommand::Show(args) => show(args).await,
    }
}

async fn show(args: ResultsShowArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let id = ResultId::from(args.id.as_str());
    let found = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let found = database.results().find(&id).await;
            database.close().await;
            found?
        }
        None => Lookup::Missing,
    };
    if found.is_expired() {
        return Err(CliError::usage(format!("result `{id}` has expired"))
            .with_hint("results are kept as long as errors: error_retention_days in [store]"));
    }
    let Some(ResultRecord { origin, body, .. }) = found.found() else {
        return Err(CliError::usage(format!("no result `{id}`"))
            .with_hint("the trace of a run names the results it stored"));
    };
    if args.json {
        output::json(&json!({
            "id": id, "run": origin.run, "session": origin.session, "call_id": origin.call_id,
            "tool": origin.tool, "at": origin.at, "body": *body,
        }))?;
    } else {
        output::note(&format!(
            "{} from {} at {}, {} bytes",
            id,
            origin.tool,
            origin.at,
            body.len()
        ));
        output::foreign(&body)?;
    }
    Ok(ExitCode::SUCCESS)
}
