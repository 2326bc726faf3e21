//! What people see while an agent runs: a spinner and tool lines on a terminal, plain lines
//! otherwise. Always on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use event_log::describe;
use indicatif::{ProgressBar, ProgressStyle};
use layer0::event::{Event, EventKind};
use react::{Live, Piece, Subscriber};

use crate::assemble::brief;
use crate::output::note;

/// Shows a run until it ends.
///
/// # Cancel safety
///
/// Dropping the future stops showing.
pub(crate) async fn show(mut events: Subscriber, spinner: Option<ProgressBar>) {
    let mut screen = Screen { spinner, answer: String::new() };
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
    screen.clear();
}

struct Screen {
    /// `None` when nobody watches a terminal.
    spinner: Option<ProgressBar>,
    answer: String,
}

/// Makes a spinner, where somebody watches a terminal.
pub(crate) fn spinner() -> Option<ProgressBar> {
    stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let spinner = ProgressBar::new_spinner().with_style(style);
        spinner.enable_steady_tick(Duration::from_millis(100));
        spinner
    })
}

impl Screen {
    fn event(&mut self, event: &Event) {
        let what = describe(&event.kind);
        match &event.kind {
            EventKind::ModelRequested(e) => {
                self.answer.clear();
                self.status(format!("asking the model (call {})", e.call));
            }
            EventKind::ModelAttempted(e) if e.code.is_some() => {
                self.line(&format!("! model {what}"));
            }
            EventKind::ToolRequested(e) => {
                self.status(format!("running {} {}", e.tool, brief(&e.arguments)));
            }
            EventKind::ToolResponded(e) if e.ok => self.line(&format!("✓ {what}")),
            EventKind::ToolResponded(_) => self.line(&format!("✗ {what}")),
            EventKind::ApprovalGranted(_) => self.line(&format!("✓ approved {what}")),
            EventKind::ApprovalDenied(_) => self.line(&format!("✗ denied {what}")),
            EventKind::HookFailed(_) => self.line(&format!("! hook {what}")),
            EventKind::HookAborted(_) => self.line(&format!("! hook {what}")),
            EventKind::MemoryDegraded(_) => self.line(&format!("! memory {what}")),
            EventKind::BudgetExhausted(_) => self.line(&format!("! budget {what}")),
            EventKind::RunWaiting(_) => self.line("… waiting for approval"),
            EventKind::ErrorStored(_) => self.line(&format!("  stored {what}")),
            EventKind::ErrorStoreDegraded(_) => self.line(&format!("! error store: {what}")),
            EventKind::GuardTripped(_) => self.line(&format!("! guard {what}")),
            _ => {}
        }
    }

    /// Shows the end of the answer that is coming in.
    fn text(&mut self, piece: &str) {
        if let Some(spinner) = &self.spinner {
            self.answer.extend(piece.chars().map(|c| if c.is_control() { ' ' } else { c }));
            let count = self.answer.chars().count();
            let end: String = self.answer.chars().skip(count.saturating_sub(100)).collect();
            spinner.set_message(end);
        }
    }

    fn status(&self, text: String) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text);
        }
    }

    fn line(&self, text: &str) {
        match &self.spinner {
            Some(spinner) => spinner.println(text),
            None => note(text),
        }
    }

    fn clear(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
