//! `backstop trace`

use std::path::Path;
use std::process::ExitCode;

use anstyle::Style;
use backstop_event_log::{LogError, Record, RunSummary, Trace, read_records};
use backstop_rehearse::stored_errors;
use backstop_store_sqlite::Database;
use layer0::event::{Event, EventKind};
use layer0::failure::Chain;

use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::output::style::{BAD, DIM};
use crate::output::{self, note};
use crate::{ids, page, store};

pub(crate) async fn run(args: TraceArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_read_only(&chosen).await?;
    let database = database.ok_or_else(|| CliError::no_run(args.run.as_str().into()))?;
    let shown = async {
        let run = ids::run(&database, &args.run).await?;
        let (summary, records) = read_records(&database.log(), &run).await?;
        let mut entries = Vec::with_capacity(records.len());
        for record in &records {
            entries.push(match record.decode(&run) {
                Err(LogError::Erased { .. }) => (record, None),
                event => (record, Some(event?)),
            });
        }
        match &args.html {
            Some(file) => write_page(&database, &summary, entries, file).await,
            None if args.json => entries.iter().try_for_each(|(record, _)| {
                let line = record.envelope(&run);
                output::json_line(&line.map_err(|error| CliError::internal("printing", error))?)
            }),
            None => print(&entries),
        }
    };
    let shown = shown.await;
    database.close().await;
    shown?;
    Ok(ExitCode::SUCCESS)
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

fn print(entries: &[(&Record, Option<Event>)]) -> Result<(), CliError> {
    let mut trace = Trace::new();
    for (record, event) in entries {
        match event {
            Some(event) => output::pieces(&coloured(event, &trace.line(event)))?,
            None => output::line(&trace.erased(record))?,
        }
    }
    Ok(())
}

/// Colours a failure red and takes the weight from the type, which is the same on many lines.
fn coloured<'a>(event: &Event, line: &'a str) -> Vec<(Style, &'a str)> {
    if is_failure(&event.kind) {
        return vec![(BAD, line)];
    }
    let kind = event.kind.event_type();
    // Before the type stand only numbers.
    match line.split_once(kind) {
        Some((before, after)) => {
            vec![(Style::new(), before), (DIM, kind), (Style::new(), after)]
        }
        None => vec![(Style::new(), line)],
    }
}

fn is_failure(kind: &EventKind) -> bool {
    match kind {
        EventKind::ModelAttempted(attempted) => attempted.code.is_some(),
        EventKind::ToolResponded(responded) => !responded.ok,
        EventKind::ApprovalDenied(_)
        | EventKind::BehaviorFailed(_)
        | EventKind::BudgetExhausted(_)
        | EventKind::ErrorStoreDegraded(_)
        | EventKind::GuardTripped(_)
        | EventKind::HookAborted(_)
        | EventKind::HookFailed(_)
        | EventKind::MemoryDegraded(_)
        | EventKind::ModelFailed(_)
        | EventKind::RunFailed(_)
        | EventKind::ToolAttempted(_) => true,
        _ => false,
    }
}
