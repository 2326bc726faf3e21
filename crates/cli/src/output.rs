//! Writing to standard output and standard error.

use std::io::{self, IsTerminal, Write};

use event_log::one_line;
use serde::Serialize;

use crate::exit::CliError;

/// Writes a line to standard output. A reader that is gone, such as `head`, is no error.
pub(crate) fn line(text: &str) -> Result<(), CliError> {
    done(writeln!(io::stdout().lock(), "{text}"))
}

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    let text =
        serde_json::to_string(value).map_err(|error| CliError::internal("printing", error))?;
    line(&text)
}

/// Writes text that others made. On a terminal, what could steer it is left out.
pub(crate) fn foreign(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { line(&harmless(text)) } else { line(text) }
}

/// Says whether standard output is a terminal that wants colours.
pub(crate) fn colours() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Writes a line for people to standard error.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Leaves out control characters but line ends and tabs, and what turns the direction of writing.
pub(crate) fn harmless(text: &str) -> String {
    let steers = |c: &char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|c| !steers(c)).collect()
}

fn done(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(CliError::internal("writing to standard output", error)),
        Ok(()) => Ok(()),
    }
}

/// Prints rows in aligned columns; the last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> Result<(), CliError> {
    // What others wrote stays in its place.
    let row = |row: &Vec<String>| row.iter().map(|cell| one_line(cell)).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let print = |cells: &mut dyn Iterator<Item = &str>| {
        let text: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        line(text.join("  ").trim_end())
    };
    print(&mut header.iter().copied())?;
    rows.iter().try_for_each(|row| print(&mut row.iter().map(String::as_str)))
}

/// Shows how a command of ours is typed here.
pub(crate) fn command(rest: &str) -> String {
    // Cargo sets this for what it runs.
    let cargo = std::env::var_os("CARGO_MANIFEST_DIR").is_some();
    format!("{} {rest}", if cargo { "cargo run -q --" } else { "backstop" })
}
