//! The command at a terminal: a real pseudo-terminal, with a person who types.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};

use crate::bench::Bench;

/// A time limit far above the duration of any test.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time between two looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A terminal in which the command runs.
pub(crate) struct Terminal {
    child: Child,
    keyboard: Arc<Pty>,
    screen: Arc<(Mutex<String>, Condvar)>,
    reads: JoinHandle<()>,
    /// Number of answered prompts.
    answered: AtomicUsize,
}

impl Bench {
    /// Runs the command at a terminal of 80 columns, with text that was typed before its start.
    pub(crate) fn at_terminal(&self, typed_ahead: &str, args: &[&str]) -> Terminal {
        let (pty, inside) = open().unwrap();
        pty.resize(Size::new(24, 80)).unwrap();
        (&pty).write_all(typed_ahead.as_bytes()).unwrap();
        let mut command = self.command(args);
        command.env("USER", "ada").env("TERM", "xterm");
        let child = Command::from(command).spawn(inside).unwrap();
        let (keyboard, screen) = (Arc::new(pty), Arc::<(Mutex<String>, Condvar)>::default());
        let (pty, shown) = (Arc::clone(&keyboard), Arc::clone(&screen));
        // The thread ends with the command.
        let reads = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = (&*pty).read(&mut bytes) {
                shown.0.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
                shown.1.notify_all();
            }
        });
        Terminal { child, keyboard, screen, reads, answered: AtomicUsize::new(0) }
    }
}

impl Terminal {
    /// Waits until the screen contains a text this many times.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str, times: usize) {
        let screen = self.screen.0.lock().unwrap();
        let missing = |screen: &mut String| screen.matches(text).count() < times;
        let waited = self.screen.1.wait_timeout_while(screen, PATIENCE, missing).unwrap();
        assert!(!waited.1.timed_out(), "no {text} is on the screen: {}", waited.0);
    }

    pub(crate) fn type_in(&self, text: &str) {
        (&*self.keyboard).write_all(text.as_bytes()).unwrap();
    }

    /// Types after the next unanswered prompt: text that is typed earlier may be discarded.
    #[track_caller]
    pub(crate) fn answer(&self, prompt: &str, text: &str) {
        self.wait_for(prompt, self.answered.fetch_add(1, Ordering::Relaxed) + 1);
        self.type_in(text);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end; returns the exit code and all output.
    #[track_caller]
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut looks = PATIENCE.as_millis() / LOOK.as_millis();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if looks > 0 => thread::sleep(LOOK),
                None => {
                    self.child.kill().unwrap();
                    panic!("it does not end: {}", self.screen.0.lock().unwrap());
                }
            }
            looks -= 1;
        };
        let code = status.code().unwrap_or(-1);
        self.reads.join().unwrap();
        let screen = self.screen.0.lock().unwrap().clone();
        (code, screen)
    }
}

/// Sends a signal.
pub(crate) fn kill(signal: &str, process: u32) {
    let id = process.to_string();
    assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
}

/// The signals that stop the program. Under `nohup`, tests inherit that a closed terminal changes nothing.
pub(crate) fn stopping() -> Vec<&'static str> {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let mut signals = vec!["-INT", "-TERM"];
    if ignored & HANGUP == 0 {
        signals.push("-HUP");
    }
    signals
}
