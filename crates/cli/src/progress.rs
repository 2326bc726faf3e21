//! What people see while an agent runs: a spinner and tool lines on a terminal, plain lines
//! otherwise. Always on standard error.

use std::collections::VecDeque;

use event_log::describe;
use layer0::event::{Event, EventKind};
use react::{Live, Piece, RunFailure, RunOutcome, RunStream, StreamItem, Subscriber};

use crate::assemble::brief;
use crate::output::{self, progress};

/// How many characters of the answer that is coming in are shown.
const SHOWN: usize = 100;

/// Shows a run until it ends, and returns how it did.
///
/// # Cancel safety
///
/// Dropping the future stops the run.
pub(crate) async fn show_run(mut stream: RunStream) -> Result<RunOutcome, RunFailure> {
    let _spinner = output::spinner();
    let mut screen = Screen::default();
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Logged(event) => screen.event(&event),
            StreamItem::Delta { piece: Piece::Text(text), .. } => screen.text(&text),
            StreamItem::Ended(result) => return result,
            _ => {}
        }
    }
    // A stream ends with the outcome, so that this is not reached.
    stream.finish().await
}

/// Shows a run that is gone on with until it ends.
///
/// # Cancel safety
///
/// Dropping the future stops showing.
pub(crate) async fn show(mut events: Subscriber) {
    let _spinner = output::spinner();
    let mut screen = Screen::default();
    while let Some(live) = events.next().await {
        match live {
            Live::Logged(event) => {
                screen.event(&event);
                if matches!(event.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_)) {
                    break;
                }
            }
            Live::Delta { piece: Piece::Text(text), .. } => screen.text(&text),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Screen {
    /// The end of the answer that is coming in.
    answer: VecDeque<char>,
}

impl Screen {
    fn event(&mut self, event: &Event) {
        let what = describe(&event.kind);
        match &event.kind {
            EventKind::ModelRequested(e) => {
                self.answer.clear();
                output::status(&format!("asking the model (call {})", e.call));
            }
            EventKind::ModelAttempted(e) if e.code.is_some() => {
                progress(&format!("! model {what}"));
            }
            EventKind::ToolRequested(e) => {
                output::status(&format!("running {} {}", e.tool, brief(&e.arguments)));
            }
            EventKind::ToolResponded(e) if e.ok => progress(&format!("✓ {what}")),
            EventKind::ToolResponded(_) => progress(&format!("✗ {what}")),
            EventKind::ApprovalGranted(_) => progress(&format!("✓ approved {what}")),
            EventKind::ApprovalDenied(_) => progress(&format!("✗ denied {what}")),
            EventKind::HookFailed(_) => progress(&format!("! hook {what}")),
            EventKind::HookAborted(_) => progress(&format!("! hook {what}")),
            EventKind::MemoryDegraded(_) => progress(&format!("! memory {what}")),
            EventKind::BudgetExhausted(_) => progress(&format!("! budget {what}")),
            EventKind::RunWaiting(_) => progress("… waiting for approval"),
            EventKind::ErrorStored(_) => progress(&format!("  stored {what}")),
            EventKind::ErrorStoreDegraded(_) => progress(&format!("! error store: {what}")),
            EventKind::GuardTripped(_) => progress(&format!("! guard {what}")),
            _ => {}
        }
    }

    /// Shows the end of the answer that is coming in.
    fn text(&mut self, piece: &str) {
        self.answer.extend(piece.chars().map(|c| if c.is_whitespace() { ' ' } else { c }));
        self.answer.drain(..self.answer.len().saturating_sub(SHOWN));
        output::status(&self.answer.iter().collect::<String>());
    }
}
