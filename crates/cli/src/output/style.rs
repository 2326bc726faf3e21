//! The amount of output, and its colours.

use std::io::{stderr, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

/// Is nothing said but results and errors?
static QUIET: AtomicBool = AtomicBool::new(false);
/// Is everything said of an error?
static VERBOSE: AtomicBool = AtomicBool::new(false);

/// What went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What failed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// What is to be looked at.
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
/// Secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Says how this process writes, before anything is written.
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

/// Does standard output want colours?
pub(super) fn colours_results() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Does standard error want colours?
pub(super) fn colours_notes() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}

/// Puts pieces that are safe to write together.
pub(super) fn joined(pieces: &[(Style, String)], coloured: bool) -> String {
    let piece = |(style, text): &(Style, String)| match coloured && !style.is_plain() {
        true => format!("{style}{text}{style:#}"),
        false => text.clone(),
    };
    pieces.iter().map(piece).collect()
}
