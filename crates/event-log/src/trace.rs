//! One line per event for people, the same live and from the record.

mod describe;
mod line;
mod tree;

use std::collections::BTreeMap;
use std::time::Duration;

use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::failure::Seconds;

pub use self::describe::{describe, format_count};
pub use self::line::one_line;
pub use self::tree::TreeTrace;
use crate::Record;

/// Formats the events of a run as aligned lines, in their order: seq, time since the start, type, duration and a
/// description, with the code of a failure.
///
/// The duration is that of what the event ends: a model call, a tool call, a decision, the run.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    started: Option<Timestamp>,
    /// Times of the requests without an answer, by seq.
    asked: BTreeMap<u64, Timestamp>,
}

/// The position of a line among those of other runs.
#[derive(Debug, Default)]
struct LinePosition {
    /// Start time of the root run.
    began: Option<Timestamp>,
    before: String,
    behind: String,
}

impl Trace {
    /// Creates a trace before the first event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the line of the next event.
    pub fn line(&mut self, event: &Event) -> String {
        self.line_at(event, &LinePosition::default())
    }

    fn line_at(&mut self, event: &Event, place: &LinePosition) -> String {
        let started = *self.started.get_or_insert(event.at);
        let elapsed = event.at.since(place.began.unwrap_or(started)).as_secs_f64();
        let took = self.took(event, started).map(|took| Seconds(took).to_string());
        let line = format!(
            "{:>4}  {elapsed:>9.3}s  {}{:<21} {:>8}  {}{}",
            event.seq,
            place.before,
            event.kind.event_type(),
            took.unwrap_or_default(),
            describe(&event.kind),
            place.behind
        );
        line.trim_end().to_owned()
    }

    /// Returns the line of the next event, whose payload was erased.
    pub fn erased_line(&mut self, record: &Record) -> String {
        self.erased_at(record, &LinePosition::default())
    }

    fn erased_at(&mut self, record: &Record, place: &LinePosition) -> String {
        let started = *self.started.get_or_insert(record.at);
        let elapsed = record.at.since(place.began.unwrap_or(started)).as_secs_f64();
        let Record { seq, event_type, .. } = record;
        format!("{seq:>4}  {elapsed:>9.3}s  {}{event_type:<30}  erased", place.before)
    }

    /// Returns the duration of what an event ends.
    fn took(&mut self, event: &Event, started: Timestamp) -> Option<Duration> {
        match &event.kind {
            EventKind::ModelRequested(_) | EventKind::ApprovalRequested(_) => {
                self.asked.insert(event.seq, event.at);
                None
            }
            EventKind::ModelResponded(_)
            | EventKind::ModelFailed(_)
            | EventKind::ApprovalGranted(_)
            | EventKind::ApprovalDenied(_) => {
                let asked = self.asked.remove(&event.caused_by?)?;
                Some(event.at.since(asked))
            }
            EventKind::ToolResponded(answer) => Some(Duration::from_millis(answer.duration_ms)),
            EventKind::RunFinished(_) | EventKind::RunFailed(_) => Some(event.at.since(started)),
            _ => None,
        }
    }
}
