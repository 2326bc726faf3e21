//! `backstop trace`

mod follow;
mod printer;

use std::path::Path;
use std::process::ExitCode;

use backstop_event_log::{Record, RunSummary, read_records};
use backstop_rehearse::stored_errors;
use backstop_store_sqlite::Database;
use layer0::event::Event;
use layer0::failure::Chain;
use layer0::id::RunId;

use self::printer::{Printer, event_of};
use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::output::{self, note};
use crate::{ids, page, store};

pub(crate) async fn run(args: TraceArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_read_only(&chosen).await?;
    let database = database.ok_or_else(|| CliError::no_run(args.run.as_str().into()))?;
    let shown = async {
        let run = ids::run(&database, &args.run).await?;
        if args.follow {
            return follow::follow(&database, &run, args.json).await;
        }
        show(&database, &run, &args).await?;
        Ok(ExitCode::SUCCESS)
    };
    let shown = shown.await;
    database.close().await;
    shown
}

async fn show(database: &Database, run: &RunId, args: &TraceArgs) -> Result<(), CliError> {
    let (summary, records) = read_records(&database.log(), run).await?;
    let mut entries = Vec::with_capacity(records.len());
    for record in &records {
        entries.push((record, event_of(record, run)?));
    }
    if let Some(file) = &args.html {
        return write_page(database, &summary, entries, file).await;
    }
    let mut printer = Printer::new(run, args.json);
    entries.iter().try_for_each(|(record, event)| printer.print(record, event.as_ref()))
}

/// Writes the page of a run; errors that cannot be read are left out of it.
async fn write_page(
    database: &Database,
    summary: &RunSummary,
    entries: Vec<(&Record, Option<Event>)>,
    file: &Path,
) -> Result<(), CliError> {
    for (record, _) in entries.iter().filter(|(_, event)| event.is_none()) {
        note(&format!("event {} was erased; the page leaves it out", record.seq));
    }
    let events: Vec<Event> = entries.into_iter().filter_map(|(_, event)| event).collect();
    let events = &events[..];
    let errors = match stored_errors(&database.errors(), events).await {
        Ok(errors) => errors,
        Err(error) => {
            note(&format!("warning: stored errors cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    let page = backstop_trace_html::page(summary, events, &errors);
    if file == Path::new("-") {
        return output::foreign(&page);
    }
    page::write(file, &page, database)?;
    note(&format!("written: {}", file.display()));
    Ok(())
}
