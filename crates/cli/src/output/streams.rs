//! Where standard output and standard error end, and what stands there.

use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(unix)]
use super::tty;

/// Does standard output stand inside a line? What has it locked changes this.
static MIDLINE: AtomicBool = AtomicBool::new(false);

/// Do both end at one place, such as a terminal?
pub(super) fn are_one() -> bool {
    *ONE
}

/// Notes whether standard output stands inside a line.
pub(super) fn stands_inside_a_line(does: bool) {
    MIDLINE.store(does, Ordering::Relaxed);
}

pub(super) fn is_inside_a_line() -> bool {
    MIDLINE.load(Ordering::Relaxed)
}

/// Returns what ends the line of standard output where a note comes into it.
pub(super) fn broken_line() -> &'static str {
    if !*ONE {
        return "";
    }
    // What is being written is written first.
    let _stdout = io::stdout().lock();
    if MIDLINE.swap(false, Ordering::Relaxed) { "\n" } else { "" }
}

/// Returns how wide standard output is; `None` when it is no terminal.
pub(crate) fn width() -> Option<usize> {
    width_of(&io::stdout())
}

/// Returns how wide standard error is; `None` when it is no terminal.
pub(crate) fn width_of_notes() -> Option<usize> {
    width_of(&io::stderr())
}

#[cfg(unix)]
fn width_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    stream.is_terminal().then(|| tty::width(stream).unwrap_or(80))
}

#[cfg(not(unix))]
fn width_of(stream: &impl IsTerminal) -> Option<usize> {
    stream.is_terminal().then_some(80)
}

static ONE: LazyLock<bool> = LazyLock::new(|| {
    let files = (file_of(&io::stdout()), file_of(&io::stderr()));
    matches!(files, (Some(stdout), Some(stderr)) if stdout == stderr)
});

#[cfg(unix)]
fn file_of(stream: &impl std::os::fd::AsFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::from(stream.as_fd().try_clone_to_owned().ok()?);
    file.metadata().ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn file_of(stream: &impl IsTerminal) -> Option<bool> {
    Some(stream.is_terminal())
}
