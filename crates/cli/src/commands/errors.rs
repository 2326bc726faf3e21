//! `backstop errors`

use std::process::ExitCode;

use clock::{Clock, SystemClock};
use error_store::{ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Pruned, Retention, readable};

use crate::args::{
    ErrorsArgs, ErrorsCommand, ErrorsListArgs, ErrorsPruneArgs, ErrorsShowArgs, ErrorsStatsArgs,
    StoreArgs,
};
use crate::exit::CliError;
use crate::store::days;
use crate::{output, store};

pub(crate) async fn run(args: ErrorsArgs) -> Result<ExitCode, CliError> {
    match args.command {
        ErrorsCommand::List(args) => list(args).await,
        ErrorsCommand::Show(args) => show(args).await,
        ErrorsCommand::Prune(args) => prune(args).await,
        ErrorsCommand::Stats(args) => stats(args).await,
    }
}

async fn list(args: ErrorsListArgs) -> Result<ExitCode, CliError> {
    let filter = ErrorFilter {
        session: args.session.map(Into::into),
        run: args.run.map(Into::into),
        tool: args.tool,
        limit: Some(args.limit),
        ..ErrorFilter::default()
    };
    let errors = read(&args.store, filter).await?;
    if args.json {
        errors.iter().try_for_each(output::json)?;
    } else if errors.is_empty() {
        output::note("no errors");
    } else {
        let row = |error: &ErrorRecord| {
            vec![
                error.id.to_string(),
                error.tool.to_string(),
                error.reason.to_string(),
                error.occurrences.to_string(),
                readable(&error.raw).chars().count().to_string(),
                error.summary.clone(),
            ]
        };
        let rows: Vec<Vec<String>> = errors.iter().map(row).collect();
        output::table(&["ID", "TOOL", "REASON", "SEEN", "CHARS", "SUMMARY"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ErrorsShowArgs) -> Result<ExitCode, CliError> {
    let filter = ErrorFilter { id: Some(args.id.as_str().into()), ..ErrorFilter::default() };
    let Some(error) = read(&args.store, filter).await?.pop() else {
        return Err(CliError::usage(format!("no error `{}`", args.id))
            .with_hint("`backstop errors list` lists the errors of the store"));
    };
    if args.json {
        output::json(&error)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::note(&format!("{} from {} at {}", error.id, error.tool, error.at));
    output::note(&format!(
        "run {}, call {}, seen {} times",
        error.run, error.call_id, error.occurrences
    ));
    let author =
        error.code.as_ref().map(|code| format!(", the tool's code {code}")).unwrap_or_default();
    output::note(&format!("{}{author}: {}", error.reason, error.summary));
    output::note("");
    output::foreign(&readable(&error.raw))?;
    Ok(ExitCode::SUCCESS)
}

async fn prune(args: ErrorsPruneArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let retention = Retention {
        max_age: Some(days(args.days)),
        max_rows: args.rows,
        max_bytes: Some(args.bytes),
    };
    let pruned = match store::open_existing(&chosen).await? {
        Some(database) => {
            let pruned = database.errors().prune(retention, SystemClock.now()).await;
            database.close().await;
            pruned?
        }
        None => Pruned::default(),
    };
    if args.json {
        output::json(&pruned)?;
    } else {
        output::line(&format!("{} errors taken away, {} bytes", pruned.rows, pruned.bytes))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn stats(args: ErrorsStatsArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let stats = match store::open_read_only(&chosen).await? {
        Some(database) => {
            let stats = database.errors().stats().await;
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

async fn read(args: &StoreArgs, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, CliError> {
    let chosen = store::choose(args, None)?;
    let Some(database) = store::open_read_only(&chosen).await? else { return Ok(Vec::new()) };
    let errors = database.errors().list(filter).await;
    database.close().await;
    Ok(errors?)
}
