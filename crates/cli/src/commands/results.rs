//! `backstop results`

use std::process::ExitCode;

use error_store::ResultStore;
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
            let found = database.results().get(None, &id).await;
            database.close().await;
            found?
        }
        None => None,
    };
    let Some(result) = found else {
        return Err(CliError::usage(format!("no result `{id}`"))
            .with_hint("the trace of a run names the results it stored"));
    };
    let Some(body) = result.body else {
        return Err(CliError::usage(format!("result `{id}` has expired"))
            .with_hint("results are kept as long as errors: error_retention_days in [store]"));
    };
    if args.json {
        output::json(&json!({
            "id": result.id, "run": result.run, "session": result.session, "call_id": result.call_id,
            "tool": result.tool, "at": result.at, "body": body,
        }))?;
    } else {
        output::note(&format!(
            "{} from {} at {}, {} bytes",
            result.id,
            result.tool,
            result.at,
            body.len()
        ));
        output::foreign(&body)?;
    }
    Ok(ExitCode::SUCCESS)
}
