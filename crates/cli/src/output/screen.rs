//! Standard error, with a thread of its own that writes.
//!
//! Output goes through a queue, so that a paused terminal or an unread pipe blocks no other thread. Progress that does
//! not fit in the queue is left out. The rest is kept until it is written, or until the end of the command has waited
//! for it.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;

use super::spinner::{new_spinner, tick};
use super::streams::broken_line;

/// Limit of pending progress, in bytes.
const MAX_PROGRESS: usize = 1024 * 1024;
/// Longest wait at the end for a reader that reads nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Size of one write, in bytes. A pipe takes this much atomically.
const PIECE: usize = 4096;
/// Interval between frames of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// The only screen of the process.
pub(super) static SCREEN: LazyLock<Screen> = LazyLock::new(Screen::start);

pub(super) struct Screen {
    state: Mutex<ScreenState>,
    changed: Condvar,
    /// Whether there is no thread, so that the caller writes.
    alone: bool,
}

/// Work for the thread.
pub(super) enum ScreenJob {
    /// Work during which nothing else is written.
    Alone(Box<dyn FnOnce() + Send>),
    Line(String),
    /// A line that may be left out.
    Progress(String),
    Spin(bool),
}

#[derive(Default)]
struct ScreenState {
    queue: VecDeque<ScreenJob>,
    /// Size of all progress in the queue, in bytes.
    progress: usize,
    left_out: usize,
    /// The next text of the spinner.
    status: Option<String>,
    spins: bool,
    works: bool,
    /// Count of finished work and written pieces.
    moves: u64,
    /// Whether the reader read nothing for too long.
    stuck: bool,
}

impl Screen {
    fn start() -> Self {
        let work = || SCREEN.work();
        let started = thread::Builder::new().name("screen".to_owned()).spawn(work);
        Self { state: Mutex::default(), changed: Condvar::new(), alone: started.is_err() }
    }

    /// Adds an entry to the queue.
    pub(super) fn push(&self, entry: ScreenJob) {
        if self.alone {
            return self.perform(entry, &mut None);
        }
        let mut state = self.lock();
        if let ScreenJob::Progress(text) = &entry {
            if state.progress + text.len() > MAX_PROGRESS {
                state.left_out += 1;
                return;
            }
            state.progress += text.len();
        }
        state.queue.push_back(entry);
        self.changed.notify_all();
    }

    /// Sets the text of the spinner.
    pub(super) fn status(&self, text: String) {
        self.lock().status = Some(text);
    }

    /// Waits until everything is written, except for a reader that reads nothing.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        while !self.alone && !state.stuck && (state.works || !state.queue.is_empty()) {
            let moves = state.moves;
            let waited = self.changed.wait_timeout(state, PATIENCE);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.stuck = timeout.timed_out() && state.moves == moves;
        }
    }

    fn work(&self) {
        let mut spinner = None;
        loop {
            match self.next() {
                Some(entry) => self.perform(entry, &mut spinner),
                None => tick(spinner.as_ref(), self.lock().status.take()),
            }
            self.record_move();
        }
    }

    /// Returns the next entry; `None` if only the next frame of the spinner is due.
    fn next(&self) -> Option<ScreenJob> {
        let mut state = self.lock();
        state.works = false;
        self.changed.notify_all();
        loop {
            let entry = state.queue.pop_front();
            if let Some(ScreenJob::Progress(text)) = &entry {
                state.progress -= text.len();
            }
            if let Some(ScreenJob::Spin(spins)) = &entry {
                state.spins = *spins;
            }
            let left_out = match state.queue.is_empty() {
                true => std::mem::take(&mut state.left_out),
                false => 0,
            };
            if left_out > 0 {
                let text = format!("… progress was left out that was not read in time: {left_out}");
                state.queue.push_back(ScreenJob::Line(text));
            }
            if entry.is_some() {
                state.works = true;
                return entry;
            }
            if !state.queue.is_empty() {
                continue;
            }
            if state.spins {
                let waited = self.changed.wait_timeout(state, TICK);
                let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = next;
                if timeout.timed_out() && state.queue.is_empty() {
                    state.works = true;
                    return None;
                }
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn perform(&self, entry: ScreenJob, spinner: &mut Option<ProgressBar>) {
        match entry {
            ScreenJob::Spin(true) if stderr().is_terminal() => *spinner = Some(new_spinner()),
            ScreenJob::Spin(_) => {
                if let Some(spinner) = spinner.take() {
                    spinner.finish_and_clear();
                }
            }
            ScreenJob::Alone(work) => beside(spinner.as_ref(), work),
            ScreenJob::Line(text) | ScreenJob::Progress(text) => {
                let broken = broken_line();
                beside(spinner.as_ref(), || self.write(&format!("{broken}{text}\n")));
            }
        }
    }

    fn write(&self, text: &str) {
        for piece in text.as_bytes().chunks(PIECE) {
            // Nothing can be reported once standard error is gone.
            if stderr().write_all(piece).is_err() {
                return;
            }
            self.record_move();
        }
    }

    fn record_move(&self) {
        let mut state = self.lock();
        state.moves += 1;
        state.stuck = false;
    }

    fn lock(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a closure while the spinner is off the screen.
fn beside(spinner: Option<&ProgressBar>, act: impl FnOnce()) {
    match spinner {
        Some(spinner) => spinner.suspend(act),
        None => act(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C1, V1
    #[test]
    fn progress_is_left_out_and_nothing_else() {
        let screen = Screen { state: Mutex::default(), changed: Condvar::new(), alone: false };
        let progress = || ScreenJob::Progress("x".repeat(MAX_PROGRESS / 4));
        for _ in 0..6 {
            screen.push(progress());
        }
        screen.push(ScreenJob::Line("result".to_owned()));
        let next = || match screen.next() {
            Some(ScreenJob::Line(text) | ScreenJob::Progress(text)) => text,
            _ => String::new(),
        };
        assert!((0..4).all(|_| next().starts_with('x')));
        assert_eq!(next(), "result");
        assert!(next().ends_with("not read in time: 2"));
        screen.push(progress());
        assert!(next().starts_with('x'), "there is room again");
    }
}
