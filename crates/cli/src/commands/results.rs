//! `backstop results`

use std::process::ExitCode;

use backstop_error_store::{Lookup, Origin, ResultEntry, ResultFilter, ResultRecord};
use serde_json::json;

use crate::args::{ResultsArgs, ResultsCommand, ResultsListArgs, ResultsShowArgs};
use crate::exit::CliError;
use crate::{ids, output, store};

pub(crate) async fn run(args: ResultsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        ResultsCommand::List(args) => list(args).await,
        ResultsCommand::Show(args) => show(args).await,
    }
}

async fn list(args: ResultsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let mut filter = ResultFilter::new().limit(args.limit);
    filter.session = args.session.map(Into::into);
    filter.tool = args.tool;
    (filter.from, filter.to) = (args.time.since, args.time.until);
    if let Some(run) = &args.run {
        filter.run = Some(ids::find_run(&chosen, run).await?);
    }
    let results = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let results = database.results().list(filter).await;
            database.close().await;
            results?
        }
        None => Vec::new(),
    };
    if args.json {
        results.iter().try_for_each(|ResultEntry { id, origin, bytes, .. }| {
            output::json(&json!({
                "id": id, "run": origin.run, "session": origin.session,
                "call_id": origin.call_id, "tool": origin.tool, "at": origin.at, "bytes": bytes,
            }))
        })?;
    } else if results.is_empty() {
        output::note("no results");
    } else {
        let row = |ResultEntry { id, origin, bytes, .. }: &ResultEntry| {
            let Origin { at, run, tool, .. } = origin;
            vec![
                id.to_string(),
                tool.to_string(),
                bytes.to_string(),
                at.to_string(),
                run.to_string(),
            ]
        };
        let rows: Vec<Vec<String>> = results.iter().map(row).collect();
        output::table(&["ID", "TOOL", "BYTES", "STORED", "RUN"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ResultsShowArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let (id, found) = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let found = async {
                let id = ids::result(&database, &args.id).await?;
                let found = database.results().find(&id).await?;
                Ok::<_, CliError>((id, found))
            };
            let found = found.await;
            database.close().await;
            found?
        }
        None => (args.id.into(), Lookup::Missing),
    };
    if found.is_expired() {
        return Err(CliError::usage(format!("result `{id}` has expired"))
            .with_hint("results are kept as long as errors: error_retention_days in [store]"));
    }
    let Some(ResultRecord { origin, body, .. }) = found.into_item() else {
        return Err(CliError::usage(format!("no result `{id}`"))
            .with_hint("`backstop results list` lists the results of the store"));
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
