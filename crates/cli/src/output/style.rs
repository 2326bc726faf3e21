//! The amount of output, and its colours.

use std::io::{stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Whether only results and errors are printed.
static QUIET: AtomicBool = AtomicBool::new(false);
/// Whether errors are printed in full.
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Style of success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Style of failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Style of a text that needs attention.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
/// Secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Sets the output of this process, before anything is written.
pub(crate) fn set(quiet: bool, verbose: bool, color: ColorChoice) {
    QUIET.store(quiet, Ordering::Relaxed);
    VERBOSE.store(verbose, Ordering::Relaxed);
    color.write_global();
}

pub(super) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

pub(crate) fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Returns whether standard output takes colours.
pub(super) fn colours_results() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Returns whether standard error takes colours.
pub(super) fn colours_notes() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

/// Joins escaped pieces.
pub(super) fn join_pieces(pieces: &[(Style, String)], coloured: bool) -> String {
    let piece = |(style, text): &(Style, String)| match coloured && !style.is_plain() {
        true => format!("{style}{text}{style:#}"),
        false => text.clone(),
    };
    pieces.iter().map(piece).collect()
}
