use anstyle::Style;
use backstop_event_log::{LogError, Record, Trace};
use layer0::event::{Event, EventKind};
use layer0::id::RunId;

use crate::exit::CliError;
use crate::output;
use crate::output::style::{BAD, DIM};

/// Prints the events of a run, one after the other.
pub(super) struct Printer<'run> {
    run: &'run RunId,
    is_json: bool,
    trace: Trace,
}

impl<'run> Printer<'run> {
    pub(super) fn new(run: &'run RunId, is_json: bool) -> Self {
        Self { run, is_json, trace: Trace::new() }
    }

    /// Prints an event; one that was erased is `None`.
    pub(super) fn print(&mut self, record: &Record, event: Option<&Event>) -> Result<(), CliError> {
        if self.is_json {
            let line = record.envelope(self.run);
            return output::json_line(
                &line.map_err(|error| CliError::internal("printing", error))?,
            );
        }
        match event {
            Some(event) => output::pieces(&coloured(event, &self.trace.line(event))),
            None => output::line(&self.trace.erased(record)),
        }
    }
}

/// Returns an event, where it was not erased.
pub(super) fn event_of(record: &Record, run: &RunId) -> Result<Option<Event>, LogError> {
    match record.decode(run) {
        Err(LogError::Erased { .. }) => Ok(None),
        event => event.map(Some),
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
