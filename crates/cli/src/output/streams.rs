//! The targets of standard output and standard error, and the state of their lines.

use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};

#[cfg(unix)]
use super::tty;

/// Does standard output stand inside a line? What has it locked changes this.
static MIDLINE: AtomicBool = AtomicBool::new(false);

/// When the write to standard output began that is under way, in milliseconds of this process, and one more; 0 where
/// none is.
static WRITING_SINCE: AtomicU64 = AtomicU64::new(0);

/// Writes to standard output, so that others see how long that takes.
pub(super) fn writing<T>(write: impl FnOnce() -> T) -> T {
    WRITING_SINCE.store(now_ms() + 1, Ordering::Relaxed);
    let written = write();
    WRITING_SINCE.store(0, Ordering::Relaxed);
    written
}

/// Returns whether a write to standard output has been under way for so long: nobody reads what is written.
pub(crate) fn writes_for(time: Duration) -> bool {
    let since = WRITING_SINCE.load(Ordering::Relaxed);
    since > 0 && Duration::from_millis((now_ms() + 1).saturating_sub(since)) >= time
}

fn now_ms() -> u64 {
    u64::try_from(SystemClock.monotonic().as_millis()).unwrap_or(u64::MAX - 1)
}

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
