//! The only code that writes to standard output and standard error, and that asks at the terminal.
//!
//! Results go to standard output, on the thread that has them. Everything for people goes to standard error through a
//! queue. No text gets there unescaped.
//!
//! **Invariant:** nothing else in the command holds a handle to the three standard streams; clippy's
//! `disallowed-methods` refuses it.
#![expect(clippy::disallowed_methods, reason = "this module owns the standard streams")]

mod ask;
mod call;
mod escape;
mod form;
mod line;
mod screen;
mod spinner;
pub(crate) mod style;
mod streams;
mod table;
mod terminal;
#[cfg(unix)]
mod tty;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstyle::Style;
pub(crate) use backstop_event_log::format_count;
use backstop_redact::Redactor;
use serde::Serialize;

pub(crate) use self::ask::{Prompt, PromptAnswer};
pub(crate) use self::call::call;
pub(crate) use self::form::DataForm;
pub(crate) use self::line::{LineInput, SharedLineEditor};
use self::screen::{SCREEN, ScreenJob};
pub(crate) use self::streams::{width, width_of_notes, writes_for};
use crate::exit::CliError;

/// Writes a line to standard output. A closed reader, such as `head`, is no error.
pub(crate) fn line(text: &str) -> Result<(), CliError> {
    print(&escape::line(text))
}

/// Writes lines to standard output.
pub(crate) fn lines(text: &str) -> Result<(), CliError> {
    print(&escape::text(text))
}

/// Writes a line of coloured pieces; the colours only if standard output takes them.
pub(crate) fn pieces(pieces: &[(Style, &str)]) -> Result<(), CliError> {
    print(&style::join_pieces(&escaped_pieces(pieces), style::colours_results()))
}

fn escaped_pieces(pieces: &[(Style, &str)]) -> Vec<(Style, String)> {
    pieces.iter().map(|(style, text)| (*style, escape::line(text))).collect()
}

/// Writes a part of a streamed text to standard output, without the end of a line.
pub(crate) fn part(text: &str) {
    let safe = escape::text(text);
    if streams::are_one() {
        drain();
    }
    let mut stdout = io::stdout().lock();
    // A closed reader is no error.
    let _ = streams::writing(|| stdout.write_all(safe.as_bytes()).and_then(|()| stdout.flush()));
    streams::stands_inside_a_line(!safe.ends_with('\n'));
}

/// Ends the line of a part, unless a note ended it.
pub(crate) fn end_line() {
    if streams::is_inside_a_line() {
        part("\n");
    }
}

/// Returns whether standard output is a terminal.
pub(crate) fn shows_results() -> bool {
    io::stdout().is_terminal()
}

/// Returns whether standard error is a terminal.
pub(crate) fn shows_notes() -> bool {
    io::stderr().is_terminal()
}

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text =
        serde_json::to_string(value).map_err(|error| CliError::internal("printing", error))?;
    json_line(&text)
}

/// Writes a line of JSON, such as an event of a record.
pub(crate) fn json_line(text: &str) -> Result<(), CliError> {
    print(&escape::json(text))
}

/// Writes a text of others unchanged; escaped for a terminal.
pub(crate) fn foreign(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { print(&escape::text(text)) } else { print(text) }
}

/// Writes a line for people to standard error, unless quiet. Does not wait for the write.
pub(crate) fn note(text: &str) {
    if !style::is_quiet() {
        alert(text);
    }
}

/// Writes a line of one colour for people to standard error, unless quiet.
pub(crate) fn note_styled(style: Style, text: &str) {
    if !style::is_quiet() {
        alert_styled(style, text, "");
    }
}

/// Writes lines for people to standard error, unless quiet.
pub(crate) fn notes(text: &str) {
    if !style::is_quiet() {
        SCREEN.push(ScreenJob::Line(escape::text(text)));
    }
}

/// Writes a line to standard error even if quiet, such as an error.
pub(crate) fn alert(text: &str) {
    SCREEN.push(ScreenJob::Line(escape::line(text)));
}

/// Writes a value as one line of JSON to standard error.
pub(crate) fn alert_json(value: &impl Serialize) {
    // The values consist of texts and numbers, so this cannot fail.
    let text = serde_json::to_string(value).unwrap_or_default();
    SCREEN.push(ScreenJob::Line(escape::json(&text)));
}

/// Writes lines to standard error even if quiet.
pub(crate) fn alerts(text: &str) {
    SCREEN.push(ScreenJob::Line(escape::text(text)));
}

/// Writes a failure to standard error: a coloured word, then the text.
pub(crate) fn alert_styled(style: Style, word: &str, text: &str) {
    let pieces = escaped_pieces(&[(style, word), (Style::new(), text)]);
    SCREEN.push(ScreenJob::Line(style::join_pieces(&pieces, style::colours_notes())));
}

/// Writes a line of coloured pieces to standard error. A slow reader may miss it.
pub(crate) fn progress(pieces: &[(Style, &str)]) {
    if !style::is_quiet() {
        let text = style::join_pieces(&escaped_pieces(pieces), style::colours_notes());
        SCREEN.push(ScreenJob::Progress(text));
    }
}

/// Escapes a text of others for use inside a text of several lines.
pub(crate) fn escape_line(text: &str) -> String {
    escape::line(text)
}

/// Sets the text next to the spinner.
pub(crate) fn status(text: &str) {
    SCREEN.status(escape::line(text));
}

/// Shows a spinner until it is dropped, if standard error is a terminal.
pub(crate) fn spinner() -> Spinner {
    SCREEN.push(ScreenJob::Spin(!style::is_quiet()));
    Spinner(())
}

/// A spinner on the screen.
pub(crate) struct Spinner(());

impl Drop for Spinner {
    fn drop(&mut self) {
        SCREEN.push(ScreenJob::Spin(false));
    }
}

/// Ends the process and restores the terminal to its state before [`SharedLineEditor`].
pub(crate) fn leave(code: i32) -> ! {
    line::put_back();
    std::process::exit(code)
}

/// Waits until all notes are written, at most five seconds for a reader that reads nothing.
pub(crate) fn drain() {
    SCREEN.drain();
}

/// Returns whether a person can be asked: both standard input and standard error are a terminal.
pub(crate) fn at_terminal() -> bool {
    cfg!(unix) && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Reads all of standard input, as text with a limit.
pub(crate) fn input() -> io::Result<String> {
    backstop_config::read_text_from(io::stdin().lock())
}

/// Writes an escaped text; after all earlier notes if both streams are one.
fn print(safe: &str) -> Result<(), CliError> {
    if streams::are_one() {
        drain();
    }
    let written = streams::writing(|| writeln!(io::stdout().lock(), "{safe}"));
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(CliError::internal("writing to standard output", error)),
        Ok(()) => Ok(()),
    }
}

/// Prints rows in aligned columns, within the width of a terminal.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
    let rows: Vec<_> = rows.iter().map(|row| (String::new(), row.clone())).collect();
    tree(header, &rows)
}

/// Prints rows in aligned columns, each after its lead in a tree.
pub(crate) fn tree(header: &[&str], rows: &[(String, Vec<String>)]) -> Result<(), CliError> {
    // Text of others stays in its cell.
    let row = |(lead, row): &(String, Vec<String>)| {
        let mut cells: Vec<String> = row.iter().map(|cell| escape::cell(cell)).collect();
        if let Some(first) = cells.first_mut() {
            first.insert_str(0, lead);
        }
        cells
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    table::lay_out(header, &rows, width()).iter().try_for_each(|text| line(text))
}

/// Returns a word with quotes as a shell needs them.
pub(crate) fn quote_for_shell(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| {
        c.is_alphanumeric()
            || matches!(c, ':' | '/' | '.' | '_' | '-' | '@' | '%' | '+' | ',' | '=')
    };
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

/// Returns a command line of this command.
pub(crate) fn command(rest: &str) -> String {
    // Cargo sets this for programs that it runs.
    let cargo = std::env::var_os("CARGO_MANIFEST_DIR").is_some();
    format!("{} {rest}", if cargo { "cargo run -q --" } else { "backstop" })
}

/// Writer for the lines of the own log, without the secrets of the process: libraries log whole messages.
pub(crate) struct LogLines(pub(crate) Redactor);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let text = self.0.redact(text.trim_end_matches('\n'));
        SCREEN.push(ScreenJob::Progress(escape::line(&text)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
