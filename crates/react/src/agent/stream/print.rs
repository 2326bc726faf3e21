//! A stream as text, for a terminal or any other writer.

use std::io::{self, Write};

use backstop_event_log::{LogError, describe, is_harmful, is_joiner_needed, one_line};
use layer0::event::{Event, EventKind};
use layer0::failure::Chain;
use layer0::stop::Outcome;

use super::{RunStream, StreamItem};
use crate::error::RunFailure;
use crate::live::LivePiece;
use crate::outcome::RunOutcome;

impl RunStream {
    /// Prints the run to standard output as [`RunStream::write_to`] does.
    ///
    /// # Errors
    ///
    /// As [`Agent::run`](crate::Agent::run).
    ///
    /// # Cancel safety
    ///
    /// As [`RunStream::finish`].
    #[expect(clippy::disallowed_methods, reason = "printing there is what it is for")]
    pub async fn print(self) -> Result<RunOutcome, RunFailure> {
        self.write_to(io::stdout()).await
    }

    /// Writes the run to a writer while it runs: the text of the model as it arrives, and a line for each tool call and
    /// each problem. Returns the result of the run.
    ///
    /// Characters that control a terminal, that are invisible or that change the direction of writing ([`is_harmful`])
    /// are left out; line ends and tabs stay. After a failed write, nothing more is written; the run continues.
    ///
    /// # Errors
    ///
    /// As [`Agent::run`](crate::Agent::run).
    ///
    /// # Cancel safety
    ///
    /// As [`RunStream::finish`].
    pub async fn write_to(mut self, writer: impl Write) -> Result<RunOutcome, RunFailure> {
        let mut printer =
            StreamPrinter { writer: Some(writer), is_in_line: false, has_text: false, last: None };
        loop {
            match self.next().await {
                Some(StreamItem::Delta { piece: LivePiece::Text(text), .. }) => printer.text(&text),
                Some(StreamItem::Logged(event)) => printer.event(&event),
                Some(StreamItem::Ended(result)) => {
                    printer.end_line();
                    return result;
                }
                Some(StreamItem::Unread { from, to, error }) => printer.unread(from, to, &error),
                Some(StreamItem::Delta { .. }) => {}
                None => {
                    return Err(RunFailure::from_lost_task(self.run.clone(), self.session.clone()));
                }
            }
        }
    }
}

struct StreamPrinter<W> {
    /// `None` after a failed write.
    writer: Option<W>,
    /// Whether the last line is unfinished.
    is_in_line: bool,
    /// Whether some of the current attempt's text was written.
    has_text: bool,
    /// The last character of the text.
    last: Option<char>,
}

impl<W: Write> StreamPrinter<W> {
    fn event(&mut self, event: &Event) {
        let what = describe(&event.kind);
        match &event.kind {
            EventKind::ModelRequested(_) => self.has_text = false,
            EventKind::ModelAttempted(attempted) if attempted.code.is_some() => {
                let void = if self.has_text { " (the text above is void)" } else { "" };
                self.line(&format!("! model {what}{void}"));
                self.has_text = false;
            }
            // An answer that was not streamed.
            EventKind::ModelResponded(responded) if !self.has_text => self.text(&responded.text),
            EventKind::ModelFailed(_) => self.line(&format!("! model {what}")),
            EventKind::ToolRequested(_) => self.line(&format!("→ {what}")),
            EventKind::ToolAttempted(_) => self.line(&format!("! tool {what}")),
            EventKind::ToolResponded(answer) if answer.ok => self.line(&format!("✓ {what}")),
            EventKind::ToolResponded(_) => self.line(&format!("✗ {what}")),
            EventKind::ApprovalRequested(_) => self.line(&format!("? approval {what}")),
            EventKind::ApprovalGranted(_) => self.line(&format!("✓ approved {what}")),
            EventKind::ApprovalDenied(_) => self.line(&format!("✗ denied {what}")),
            EventKind::BudgetExhausted(_) => self.line(&format!("! budget {what}")),
            EventKind::GuardTripped(_) => self.line(&format!("! guard {what}")),
            EventKind::HookAborted(_) | EventKind::HookFailed(_) => {
                self.line(&format!("! hook {what}"));
            }
            EventKind::MemoryDegraded(_) => self.line(&format!("! memory {what}")),
            EventKind::ErrorStoreDegraded(_) => self.line(&format!("! error store: {what}")),
            EventKind::OperatorReturned(returned) if returned.outcome == Outcome::Failed => {
                self.line(&format!("✗ operator {what}"));
            }
            EventKind::RunParked(_) => self.line(&format!("… parked {what}")),
            EventKind::RunWaiting(_) => self.line(&format!("… waiting {what}")),
            EventKind::Warning(_) => self.line(&format!("! warning {what}")),
            _ => {}
        }
    }

    /// Writes a line for events that could not be read.
    fn unread(&mut self, from: u64, to: u64, error: &LogError) {
        let which = match from == to {
            true => format!("event {from}"),
            false => format!("events {from} to {to}"),
        };
        self.line(&format!("! {which} cannot be read: {}", one_line(&Chain(error).to_string())));
    }

    fn text(&mut self, text: &str) {
        let text = self.harmless(text);
        if let Some(last) = text.chars().last() {
            self.is_in_line = last != '\n';
            self.has_text = true;
            self.write(&text);
        }
    }

    /// Removes harmful characters from the next piece of a text.
    fn harmless(&mut self, text: &str) -> String {
        let mut chars = text.chars().peekable();
        let mut harmless = String::with_capacity(text.len());
        while let Some(c) = chars.next() {
            // The next piece may begin with the joined character.
            let after = chars.peek().copied().or(self.last);
            let stays = matches!(c, '\n' | '\t') || !is_harmful(c);
            if stays || is_joiner_needed(self.last, c, after) {
                harmless.push(c);
            }
            self.last = Some(c);
        }
        harmless
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        self.write(&format!("{text}\n"));
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_in_line) {
            self.write("\n");
        }
    }

    fn write(&mut self, text: &str) {
        if let Some(writer) = &mut self.writer {
            let written = writer.write_all(text.as_bytes()).and_then(|()| writer.flush());
            if let Err(error) = written {
                tracing::debug!(%error, "a stream cannot be written any more");
                self.writer = None;
            }
        }
    }
}
