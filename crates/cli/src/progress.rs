//! Progress of a run for people: on a terminal the streamed answer, tool lines and a spinner; otherwise plain lines.
//! Results go to standard output, the rest to standard error.

use std::collections::{HashMap, VecDeque};

use anstyle::Style;
use backstop_event_log::{describe, one_line};
use backstop_react::{Live, LivePiece, RunFailure, RunOutcome, RunStream, StreamItem, Subscriber};
use layer0::JsonText;
use layer0::event::{Event, EventKind};
use layer0::failure::Chain;
use layer0::id::CallId;

use crate::output::style::{BAD, DIM, GOOD, ODD};
use crate::output::{self, Spinner, progress};

/// Number of characters of the streamed answer that a spinner shows.
const SHOWN: usize = 100;
/// Number of characters of a tool's arguments in its line.
const ARGUMENTS: usize = 80;

/// Output to standard output during a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Results {
    /// The answer as it is streamed, if standard output is a terminal.
    Answer,
    /// Each event as a line of JSON.
    Events,
    /// Nothing.
    None,
}

/// The result of a run, and the answer that the terminal already shows.
pub(crate) struct PrintedResult<T> {
    pub(crate) result: T,
    pub(crate) answer: Option<String>,
}

/// Shows a run until it ends, and returns its result.
///
/// # Cancel safety
///
/// Dropping the future stops the run.
pub(crate) async fn show_run(
    mut stream: RunStream,
    results: Results,
) -> PrintedResult<Result<RunOutcome, RunFailure>> {
    let mut view = ProgressView::new(results);
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Logged(event) => view.event(&event),
            StreamItem::Delta { piece: LivePiece::Text(text), .. } => view.text(&text),
            StreamItem::Unread { from, to, error } => {
                let error = Chain(&error);
                output::alert(&format!("warning: events {from} to {to} are not shown: {error}"));
            }
            StreamItem::Ended(result) => return PrintedResult { result, answer: view.end() },
            _ => {}
        }
    }
    // Not reached, because a stream ends with the outcome.
    PrintedResult { result: stream.finish().await, answer: view.end() }
}

/// Shows a resumed run until it ends; returns the answer that the terminal already shows.
///
/// # Cancel safety
///
/// Dropping the future ends the display; the run continues.
pub(crate) async fn show(mut events: Subscriber, results: Results) -> Option<String> {
    let mut view = ProgressView::new(results);
    while let Some(live) = events.next().await {
        match live {
            Live::Logged(event) => {
                view.event(&event);
                if matches!(event.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_)) {
                    break;
                }
            }
            Live::Delta { piece: LivePiece::Text(text), .. } => view.text(&text),
            // The missed items may be part of the answer.
            Live::Missed(_) => view.answer = None,
            _ => {}
        }
    }
    view.end()
}

struct ProgressView {
    results: Results,
    /// Whether the answer is written as it is streamed.
    streams: bool,
    /// The spinner, while its line has no other text.
    spinner: Option<Spinner>,
    /// End of the streamed answer.
    tail: VecDeque<char>,
    /// Written part of the streamed answer.
    coming: String,
    /// The last complete answer that was written.
    answer: Option<String>,
    /// Arguments of the open calls.
    calls: HashMap<CallId, String>,
}

impl ProgressView {
    fn new(results: Results) -> Self {
        Self {
            results,
            streams: results == Results::Answer && output::shows_results(),
            spinner: Some(output::spinner()),
            tail: VecDeque::new(),
            coming: String::new(),
            answer: None,
            calls: HashMap::new(),
        }
    }

    fn event(&mut self, event: &Event) {
        if self.results == Results::Events
            && let Err(error) = output::json(event)
        {
            output::alert(&format!("warning: an event cannot be printed: {error}"));
        }
        let what = describe(&event.kind);
        match &event.kind {
            EventKind::ModelRequested(e) => {
                self.begin_answer();
                output::status(&format!("asking the model (call {})", e.call));
            }
            EventKind::ModelAttempted(e) if e.code.is_some() => {
                let void = if self.coming.is_empty() { "" } else { " (the text above is void)" };
                self.line(ODD, "! ", &format!("model {what}{void}"));
                self.begin_answer();
            }
            EventKind::ModelResponded(_) => self.end_answer(),
            EventKind::ToolRequested(e) => {
                let arguments = brief(&e.arguments);
                output::status(&format!("running {} {arguments}", e.tool));
                self.calls.insert(e.call_id.clone(), arguments);
            }
            EventKind::ToolResponded(e) => {
                let (style, sign) = if e.ok { (GOOD, "✓ ") } else { (BAD, "✗ ") };
                let arguments = self.calls.remove(&e.call_id);
                let (tool, rest) = what.split_once(' ').unwrap_or((&what, ""));
                self.turn();
                match arguments.as_deref() {
                    None | Some("{}") => progress(&[(style, sign), (Style::new(), &what)]),
                    Some(arguments) => progress(&[
                        (style, sign),
                        (Style::new(), tool),
                        (DIM, &format!(" {arguments} ")),
                        (Style::new(), rest),
                    ]),
                }
            }
            EventKind::ApprovalGranted(_) => self.line(GOOD, "✓ ", &format!("approved {what}")),
            EventKind::ApprovalDenied(_) => self.line(BAD, "✗ ", &format!("denied {what}")),
            EventKind::HookFailed(_) | EventKind::HookAborted(_) => {
                self.line(ODD, "! ", &format!("hook {what}"));
            }
            EventKind::MemoryDegraded(_) => self.line(ODD, "! ", &format!("memory {what}")),
            EventKind::BudgetExhausted(_) => self.line(ODD, "! ", &format!("budget {what}")),
            EventKind::RunWaiting(_) => self.line(Style::new(), "… ", "waiting for approval"),
            EventKind::ErrorStored(_) => self.line(DIM, "  ", &format!("stored {what}")),
            EventKind::ErrorStoreDegraded(_) => {
                self.line(ODD, "! ", &format!("error store: {what}"));
            }
            EventKind::Warning(e) => self.line(ODD, "! ", &format!("warning: {}", e.message)),
            EventKind::GuardTripped(_) => self.line(ODD, "! ", &format!("guard {what}")),
            _ => {}
        }
    }

    fn line(&mut self, style: Style, sign: &str, text: &str) {
        self.turn();
        progress(&[(style, sign), (Style::new(), text)]);
    }

    /// Shows a piece of the streamed answer.
    fn text(&mut self, piece: &str) {
        if self.streams {
            // The line has no room for anything else.
            self.spinner = None;
            self.coming.push_str(piece);
            output::part(piece);
            return;
        }
        self.tail.extend(piece.chars().map(|c| if c.is_whitespace() { ' ' } else { c }));
        self.tail.drain(..self.tail.len().saturating_sub(SHOWN));
        output::status(&self.tail.iter().collect::<String>());
    }

    fn begin_answer(&mut self) {
        self.tail.clear();
        self.end_line();
        self.coming.clear();
        self.turn();
    }

    fn end_answer(&mut self) {
        self.end_line();
        self.answer = (!self.coming.is_empty()).then(|| std::mem::take(&mut self.coming));
        self.turn();
    }

    /// Ends the line of an answer that stopped within it.
    fn end_line(&mut self) {
        if !self.coming.is_empty() && !self.coming.ends_with('\n') {
            output::end_line();
            self.coming.push('\n');
        }
    }

    /// Shows the spinner again below the written text.
    fn turn(&mut self) {
        self.end_line();
        self.spinner.get_or_insert_with(output::spinner);
    }

    /// Removes the spinner from the screen; returns the answer that the terminal shows.
    fn end(mut self) -> Option<String> {
        self.end_line();
        self.spinner = None;
        self.answer.take()
    }
}

/// Returns the shortened arguments of a tool call for its line.
fn brief(arguments: &JsonText) -> String {
    let text = one_line(arguments.get());
    match text.char_indices().nth(ARGUMENTS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
