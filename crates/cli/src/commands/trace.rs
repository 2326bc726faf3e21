//! `backstop trace`

mod follow;
mod printer;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use crate::store::AnyDatabase;
use backstop_event_log::{LogError, Record, RunSummary, read_records};
use backstop_rehearse::stored_errors;
use backstop_trace_html::RecordedRun;
use layer0::event::Event;
use layer0::failure::Chain;
use layer0::id::RunId;

use self::printer::{EventPrinter, decode_event};
use self::tree::Tree;
use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::output::{self, note};
use crate::{ids, page, store};

pub(crate) async fn run(args: TraceArgs) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let database = store::open_read_only(&chosen).await?;
    let database = database.ok_or_else(|| CliError::no_run(args.run.as_str().into()))?;
    let shown = async {
        let records = ids::records(&database, &args.run).await?;
        if let (true, Some(newest)) = (args.follow, records.last()) {
            return follow::follow(&database, newest, &args).await;
        }
        if args.html.is_some() {
            ids::one(&args.run, &records)?;
        }
        for record in &records {
            show(&database, record, &args).await?;
        }
        Ok(ExitCode::SUCCESS)
    };
    let shown = shown.await;
    database.close().await;
    shown
}

/// A run that was read and verified.
struct Read {
    summary: RunSummary,
    records: Vec<Record>,
    /// Events of the records; `None` for an erased one.
    events: Vec<Option<Event>>,
}

impl Read {
    async fn load(database: &AnyDatabase, run: &RunId) -> Result<Self, LogError> {
        let (summary, records) = read_records(&*database.log(), run).await?;
        let events =
            records.iter().map(|record| decode_event(record, run)).collect::<Result<_, _>>()?;
        Ok(Self { summary, records, events })
    }

    fn entries(&self) -> impl Iterator<Item = (&Record, Option<&Event>)> {
        self.records.iter().zip(self.events.iter().map(Option::as_ref))
    }
}

async fn show(database: &AnyDatabase, run: &RunId, args: &TraceArgs) -> Result<(), CliError> {
    let top = Read::load(database, run).await?;
    let dispatches = top.records.iter().any(|record| &*record.event_type == "operator.dispatched");
    if args.is_alone() || !dispatches {
        if let Some(file) = &args.html {
            return write_page(database, &[top], file).await;
        }
        let mut printer = EventPrinter::new(run, args);
        return top.entries().try_for_each(|(record, event)| printer.print(run, record, event));
    }
    let log = database.log();
    let mut tree = Tree::new(&*log, run);
    let order = tree.read().await?;
    let mut runs = BTreeMap::from([(run.clone(), top)]);
    let mut damaged = None;
    for below in tree.runs().skip(1) {
        match Read::load(database, below).await {
            Ok(read) => _ = runs.insert(below.clone(), read),
            Err(LogError::NotFound(_)) => {
                note(&format!("{below} has no record: it did not start, or was taken away"));
            }
            Err(error) => {
                note(&format!("{below} is left out: {}", Chain(&error)));
                damaged.get_or_insert(error);
            }
        }
    }
    if let Some(file) = &args.html {
        let order: Vec<Read> = tree.runs().filter_map(|run| runs.remove(run)).collect();
        write_page(database, &order, file).await?;
    } else {
        let mut printer = EventPrinter::new(run, args);
        for next in order {
            let read = runs.get(&next.run).and_then(|read| {
                let at = usize::try_from(next.record.seq.checked_sub(1)?).ok()?;
                Some((read.records.get(at)?, read.events.get(at)?))
            });
            if let Some((record, event)) = read {
                printer.print(&next.run, record, event.as_ref())?;
            }
        }
    }
    damaged.map_or(Ok(()), |error| Err(error.into()))
}

/// Writes the page of a run and its child runs, without errors that cannot be read.
async fn write_page(database: &AnyDatabase, runs: &[Read], file: &Path) -> Result<(), CliError> {
    let mut shown = Vec::with_capacity(runs.len());
    for read in runs {
        for (record, _) in read.entries().filter(|(_, event)| event.is_none()) {
            note(&format!("event {} was erased; the page leaves it out", record.seq));
        }
        let events: Vec<Event> = read.events.iter().flatten().cloned().collect();
        let errors = match stored_errors(&*database.errors(), &events).await {
            Ok(errors) => errors,
            Err(error) => {
                note(&format!("warning: stored errors cannot be read: {}", Chain(&error)));
                Vec::new()
            }
        };
        shown.push(RecordedRun::new(read.summary.clone(), events, errors));
    }
    let Some((top, below)) = shown.split_first() else { return Ok(()) };
    let page = backstop_trace_html::page(top, below);
    if file == Path::new("-") {
        return output::foreign(&page);
    }
    page::write(file, &page, database)?;
    note(&format!("written: {}", file.display()));
    Ok(())
}
