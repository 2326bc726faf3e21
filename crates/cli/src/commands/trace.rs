//! `backstop trace`

mod follow;

use std::path::Path;
use std::process::ExitCode;

use anstyle::Style;
use backstop_event_log::{LogError, Record, RunSummary, Trace, read_records};
use backstop_rehearse::stored_errors;
use backstop_store_sqlite::Database;
use layer0::event::{Event, EventKind};
use layer0::failure::Chain;
use layer0::id::RunId;

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
    if let Some(file) = &args.html {
        return write_page(database, &summary, &records, file).await;
    }
    let mut printer = Printer::new(run, args.json);
    records.iter().try_for_each(|record| printer.print(record))
}

/// Returns an event, where it was not erased.
fn event_of(record: &Record, run: &RunId) -> Result<Option<Event>, LogError> {
    match record.decode(run) {
        Err(LogError::Erased { .. }) => Ok(None),
        event => event.map(Some),
    }
}

/// Writes the page of a run; errors that cannot be read are left out of it.
async fn write_page(
    database: &Database,
    summary: &RunSummary,
    records: &[Record],
    file: &Path,
) -> Result<(), CliError> {
    let mut events = Vec::with_capacity(records.len());
    for record in records {
        match event_of(record, &summary.run)? {
            Some(event) => events.push(event),
            None => note(&format!("event {} was erased; the page leaves it out", record.seq)),
        }
    }
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

/// Prints the events of a run, one after the other.
struct Printer<'run> {
    run: &'run RunId,
    is_json: bool,
    trace: Trace,
}

impl<'run> Printer<'run> {
    fn new(run: &'run RunId, is_json: bool) -> Self {
        Self { run, is_json, trace: Trace::new() }
    }

    fn print(&mut self, record: &Record) -> Result<(), CliError> {
        // What cannot be read is no line of JSON either.
        let event = event_of(record, self.run)?;
        if self.is_json {
            let line = record.envelope(self.run);
            return output::json_line(
                &line.map_err(|error| CliError::internal("printing", error))?,
            );
        }
        match event {
            Some(event) => output::pieces(&coloured(&event, &self.trace.line(&event))),
            None => output::line(&self.trace.erased(record)),
        }
    }
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
