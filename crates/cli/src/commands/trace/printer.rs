use anstyle::Style;
use backstop_event_log::{LogError, Record, Trace, TreeTrace};
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use layer0::stop::Outcome;

use crate::args::TraceArgs;
use crate::exit::CliError;
use crate::output;
use crate::output::style::{BAD, DIM};

/// A printer for the events of a run, or of a run and its child runs.
pub(super) enum EventPrinter {
    Json,
    One(Trace),
    Tree(TreeTrace),
}

impl EventPrinter {
    pub(super) fn new(run: &RunId, args: &TraceArgs) -> Self {
        match (args.json, args.flat) {
            (true, _) => Self::Json,
            (false, true) => Self::One(Trace::new()),
            (false, false) => Self::Tree(TreeTrace::new(run.clone())),
        }
    }

    /// Prints an event; `None` for an erased one.
    pub(super) fn print(
        &mut self,
        run: &RunId,
        record: &Record,
        event: Option<&Event>,
    ) -> Result<(), CliError> {
        let line = match (self, event) {
            (Self::Json, _) => {
                let line = record.envelope(run);
                return output::json_line(
                    &line.map_err(|error| CliError::internal("printing", error))?,
                );
            }
            (Self::One(trace), Some(event)) => trace.line(event),
            (Self::One(trace), None) => trace.erased_line(record),
            (Self::Tree(trace), Some(event)) => trace.line(event),
            (Self::Tree(trace), None) => trace.erased_line(run, record),
        };
        match event {
            Some(event) => output::pieces(&colour_line(event, &line)),
            None => output::line(&line),
        }
    }
}

/// Returns the event of a record; `None` if it was erased.
pub(super) fn decode_event(record: &Record, run: &RunId) -> Result<Option<Event>, LogError> {
    match record.decode(run) {
        Err(LogError::Erased { .. }) => Ok(None),
        event => event.map(Some),
    }
}

/// Colours a failure red, and dims the type of other events, which is the same on many lines.
fn colour_line<'a>(event: &Event, line: &'a str) -> Vec<(Style, &'a str)> {
    if is_failure(&event.kind) {
        return vec![(BAD, line)];
    }
    let kind = event.kind.event_type();
    // Numbers and names of child runs are before the type.
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
        EventKind::OperatorReturned(returned) => returned.outcome == Outcome::Failed,
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
