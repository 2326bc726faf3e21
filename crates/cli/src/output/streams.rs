//! The targets of standard output and standard error, and the state of their lines.

use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};

#[cfg(unix)]
use super::tty;

/// Whether standard output is inside a line. Changed only with standard output locked.
static MIDLINE: AtomicBool = AtomicBool::new(false);

/// Start of the current write to standard output, in milliseconds of this process plus one; 0 without a write.
static WRITING_SINCE: AtomicU64 = AtomicU64::new(0);

/// Writes to standard output with a record of its start for [`writes_for`].
pub(super) fn writing<T>(write: impl FnOnce() -> T) -> T {
    WRITING_SINCE.store(now_ms() + 1, Ordering::Relaxed);
    let written = write();
    WRITING_SINCE.store(0, Ordering::Relaxed);
    written
}

/// Returns whether a write to standard output has been blocked for this time, because its reader reads nothing.
pub(crate) fn writes_for(time: Duration) -> bool {
    let since = WRITING_SINCE.load(Ordering::Relaxed);
    since > 0 && Duration::from_millis((now_ms() + 1).saturating_sub(since)) >= time
}

fn now_ms() -> u64 {
    u64::try_from(SystemClock.monotonic().as_millis()).unwrap_or(u64::MAX - 1)
}

/// Returns whether both streams end at one place, such as a terminal.
pub(super) fn are_one() -> bool {
    *ONE
}

/// Sets whether standard output is inside a line.
pub(super) fn stands_inside_a_line(does: bool) {
    MIDLINE.store(does, Ordering::Relaxed);
}

pub(super) fn is_inside_a_line() -> bool {
    MIDLINE.load(Ordering::Relaxed)
}

/// Returns the end for a line of standard output that a note interrupts.
pub(super) fn broken_line() -> &'static str {
    if !*ONE {
        return "";
    }
    // A write in progress is completed first.
    let _stdout = io::stdout().lock();
    if MIDLINE.swap(false, Ordering::Relaxed) { "\n" } else { "" }
}

/// Returns the width of standard output; `None` if it is no terminal.
pub(crate) fn width() -> Option<usize> {
    terminal_width(&io::stdout())
}

/// Returns the width of standard error; `None` if it is no terminal.
pub(crate) fn width_of_notes() -> Option<usize> {
    terminal_width(&io::stderr())
}

#[cfg(unix)]
fn terminal_width(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    stream.is_terminal().then(|| tty::width(stream).unwrap_or(80))
}

#[cfg(not(unix))]
fn terminal_width(stream: &impl IsTerminal) -> Option<usize> {
    stream.is_terminal().then_some(80)
}

static ONE: LazyLock<bool> = LazyLock::new(|| {
    let files = (identify_file(&io::stdout()), identify_file(&io::stderr()));
    matches!(files, (Some(stdout), Some(stderr)) if stdout == stderr)
});

#[cfg(unix)]
fn identify_file(stream: &impl std::os::fd::AsFd) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::from(stream.as_fd().try_clone_to_owned().ok()?);
    file.metadata().ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identify_file(stream: &impl IsTerminal) -> Option<bool> {
    Some(stream.is_terminal())
}
