//! The terminal on Unix: standard input and standard error.

use std::io::{self, PipeReader, Write, stderr, stdin};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush, tcgetwinsize};

use super::terminal::{Terminal, Typed};

/// Longest line that is read, in bytes.
const LONGEST: usize = 64 * 1024;

/// The terminal during a prompt.
pub(super) struct Tty<'a> {
    /// Closed when the prompt is withdrawn.
    withdrawn: &'a PipeReader,
    /// Input that is not yet a whole line.
    begun: Vec<u8>,
}

impl<'a> Tty<'a> {
    pub(super) const fn new(withdrawn: &'a PipeReader) -> Self {
        Self { withdrawn, begun: Vec::new() }
    }
}

impl Terminal for Tty<'_> {
    fn forget(&mut self) -> io::Result<()> {
        self.begun.clear();
        Ok(tcflush(stdin(), QueueSelector::IFlush)?)
    }

    /// Reads without a buffer of the standard library, which would keep text that was typed ahead.
    fn read(&mut self) -> io::Result<Typed> {
        loop {
            if let Some(end) = self.begun.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
                let line: Vec<u8> = self.begun.drain(..=end).collect();
                return Ok(Typed::Line(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            let stdin = stdin();
            let mut ready =
                [PollFd::new(self.withdrawn, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
            if !ready[0].revents().is_empty() {
                return Ok(Typed::Withdrawn);
            }
            let mut bytes = [0; 4096];
            match rustix::io::read(&stdin, &mut bytes) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok(0) => return Ok(Typed::End),
                Ok(_) if self.begun.len() > LONGEST => return Ok(Typed::End),
                read => self.begun.extend_from_slice(&bytes[..read?]),
            }
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        stderr().write_all(text.as_bytes())
    }
}

/// Returns the width of a terminal, in columns.
pub(super) fn width(of: impl AsFd) -> Option<usize> {
    tcgetwinsize(of).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
