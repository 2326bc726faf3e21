//! `backstop trace`

use std::io;
use std::path::Path;
use std::process::ExitCode;

use event_log::{LogError, RunSummary, Trace, read_events};
use layer0::event::{Event, EventKind};
use layer0::failure::Chain;
use layer0::id::RunId;
use rehearse::stored_errors;
use store_sqlite::Database;

use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::output::{self, note};
use crate::store;

pub(crate) async fn run(args: TraceArgs) -> Result<ExitCode, CliError> {
    let run = RunId::from(args.run);
    let chosen = store::choose(&args.store, None)?;
    let database =
        store::open_read_only(&chosen).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let shown = match read_events(&database.log(), &run).await {
        Err(error) => Err(error.into()),
        Ok((summary, events)) => match &args.html {
            Some(file) => write_page(&database, &summary, &events, file).await,
            None if args.json => events.iter().try_for_each(output::json),
            None => print(&events),
        },
    };
    database.close().await;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a run; errors that cannot be read are left out of it.
async fn write_page(
    database: &Database,
    summary: &RunSummary,
    events: &[Event],
    file: &Path,
) -> Result<(), CliError> {
    let errors = match stored_errors(&database.errors(), events).await {
        Ok(errors) => errors,
        Err(error) => {
            note(&format!("warning: stored errors cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    let page = trace_html::page(summary, events, &errors);
    if file == Path::new("-") {
        return output::line(&page);
    }
    let same = |file: &Path| std::fs::canonicalize(file).ok();
    if same(file).is_some_and(|file| Some(file) == same(database.path())) {
        return Err(CliError::usage(format!("{}: is the store itself", file.display()))
            .with_hint("name another file"));
    }
    write_whole(file, &page).map_err(|error| {
        CliError::usage(format!("{}: cannot be written: {error}", file.display()))
            .with_hint("name a file in a folder that exists and that you may write to")
    })?;
    note(&format!("written: {}", file.display()));
    Ok(())
}

/// Writes a file that is there as a whole or not at all.
fn write_whole(file: &Path, text: &str) -> io::Result<()> {
    // A device or a pipe cannot be replaced.
    if file.exists() && !file.is_file() {
        return std::fs::write(file, text);
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

fn print(events: &[Event]) -> Result<(), CliError> {
    let colours = output::colours();
    let mut trace = Trace::new();
    for event in events {
        let line = trace.line(event);
        output::line(&if colours { coloured(event, &line) } else { line })?;
    }
    Ok(())
}

/// Colours a failure red and takes the weight from the type, which is the same on many lines.
fn coloured(event: &Event, line: &str) -> String {
    let (red, dim) = (anstyle::AnsiColor::Red.on_default(), anstyle::Style::new().dimmed());
    if is_failure(&event.kind) {
        return format!("{red}{line}{red:#}");
    }
    let kind = event.kind.event_type();
    // Before the type stand only numbers.
    match line.split_once(kind) {
        Some((before, after)) => format!("{before}{dim}{kind}{dim:#}{after}"),
        None => line.to_owned(),
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
