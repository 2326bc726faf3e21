//! `backstop errors`

mod counts;
mod which;

use std::process::ExitCode;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{ErrorRecord, ErrorStats, Lookup, Pruned, Retention, readable};
use serde_json::json;

use self::which::ErrorSelection;
use crate::args::{
    ErrorsArgs, ErrorsCommand, ErrorsListArgs, ErrorsPruneArgs, ErrorsShowArgs, ErrorsStatsArgs,
    Grouping,
};
use crate::exit::CliError;
use crate::ids;
use crate::output::{self, format_count};
use crate::store::{self, days};

pub(crate) async fn run(args: ErrorsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        ErrorsCommand::List(args) => list(args).await,
        ErrorsCommand::Show(args) => show(args).await,
        ErrorsCommand::Prune(args) => prune(args).await,
        ErrorsCommand::Stats(args) => stats(args).await,
    }
}

async fn list(args: ErrorsListArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let which = ErrorSelection::resolve(args.which, &chosen).await?;
    let errors = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let listed = async {
                let filter = which.errors(&*database.log()).await?.limit(args.limit);
                Ok::<_, CliError>(database.errors().list(filter).await?)
            };
            let errors = listed.await;
            database.close().await;
            errors?
        }
        None => Vec::new(),
    };
    if args.json {
        errors.iter().try_for_each(output::json)?;
    } else if errors.is_empty() {
        output::note(&which.none());
    } else {
        let row = |error: &ErrorRecord| {
            vec![
                error.id().to_string(),
                error.tool().to_string(),
                error.reason().to_string(),
                error.occurrences().to_string(),
                readable(error.raw()).chars().count().to_string(),
                error.summary().to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
        output::table(&["ID", "TOOL", "REASON", "SEEN", "CHARS", "SUMMARY"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ErrorsShowArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let (id, found) = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let found = async {
                let id = ids::error(&database, &args.id).await?;
                let found = database.errors().find(&id).await?;
                Ok::<_, CliError>((id, found))
            };
            let found = found.await;
            database.close().await;
            found?
        }
        None => (args.id.into(), Lookup::Missing),
    };
    if found.is_expired() {
        return Err(CliError::usage(format!("error `{id}` has expired"))
            .with_hint("errors are kept as long as error_retention_days in [store] says"));
    }
    let Some(error) = found.into_item() else {
        return Err(CliError::usage(format!("no error `{id}`"))
            .with_hint("`backstop errors list` lists the errors of the store"));
    };
    if args.json {
        output::json(&error)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::note(&format!("{} from {} at {}", error.id(), error.tool(), error.at()));
    output::note(&format!(
        "run {}, call {}, seen {}",
        error.run(),
        error.call_id(),
        format_count(error.occurrences(), "time")
    ));
    let author = error.code().map(|code| format!(", the tool's code {code}")).unwrap_or_default();
    output::note(&format!("{}{author}: {}", error.reason(), error.summary()));
    output::note("");
    output::foreign(&readable(error.raw()))?;
    Ok(ExitCode::SUCCESS)
}

async fn prune(args: ErrorsPruneArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let mut retention = Retention::NONE.max_age(days(args.days)).max_bytes(args.bytes);
    retention.max_rows = args.rows;
    let (errors, results) = match store::open_existing(&chosen).await? {
        Some(database) => {
            let now = SystemClock.now();
            let errors = database.errors().prune(retention, now).await;
            let results = database.results().prune(retention, now).await;
            database.close().await;
            (errors?, results?)
        }
        None => (Pruned::default(), Pruned::default()),
    };
    if args.json {
        output::json(&json!({ "rows": errors.rows, "bytes": errors.bytes, "results": results }))?;
    } else {
        output::line(&describe_pruned("error", errors))?;
        output::line(&describe_pruned("result", results))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the line about pruned rows of a kind.
fn describe_pruned(kind: &str, pruned: Pruned) -> String {
    format!(
        "{} taken away, {}",
        format_count(pruned.rows, kind),
        format_count(pruned.bytes, "byte")
    )
}

async fn stats(args: ErrorsStatsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let which = ErrorSelection::resolve(args.which, &chosen).await?;
    if let Some(by) = args.by.or_else(|| which.is_some().then_some(Grouping::Code)) {
        return counts::print(&chosen, &which, by, args.limit, args.json).await;
    }
    let stats = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let stats = database.errors().stats(Some(args.limit)).await;
            database.close().await;
            stats?
        }
        None => Vec::new(),
    };
    if args.json {
        stats.iter().try_for_each(output::json)?;
    } else if stats.is_empty() {
        output::note("no errors");
    } else {
        let row = |stats: &ErrorStats| {
            vec![
                stats.tool.clone(),
                stats.reason.to_string(),
                stats.code.clone().unwrap_or_default(),
                stats.errors.to_string(),
                stats.occurrences.to_string(),
                stats.chars_kept.to_string(),
                stats.session.to_string(),
            ]
        };
        let rows: Vec<Vec<String>> = stats.iter().map(row).collect();
        output::table(
            &["TOOL", "REASON", "CODE", "ERRORS", "SEEN", "CHARS KEPT", "SESSION"],
            &rows,
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
