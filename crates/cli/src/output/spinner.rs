//! A spinner on a terminal.

use std::io::{self, Write, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::streams::width_of_notes;

/// Columns for characters that a terminal may echo into the line of the spinner: `^C`.
const ECHO: u16 = 4;

pub(super) fn new_spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let target = ProgressDrawTarget::term_like(Box::new(Narrow::default()));
    ProgressBar::with_draw_target(None, target).with_style(style)
}

pub(super) fn tick(spinner: Option<&ProgressBar>, status: Option<String>) {
    if let Some(spinner) = spinner {
        if let Some(status) = status {
            spinner.set_message(status);
        }
        spinner.tick();
    }
}

/// Standard error with a smaller width: an echo after the line would begin another line, and the spinner would stay on
/// the first one. Each drawing is one write.
#[derive(Debug, Default)]
struct Narrow(Mutex<String>);

impl Narrow {
    fn draw(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        Ok(())
    }

    fn step(&self, count: usize, letter: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.draw(&format!("\x1b[{count}{letter}")) }
    }
}

impl TermLike for Narrow {
    fn width(&self) -> u16 {
        let columns = width_of_notes().and_then(|width| u16::try_from(width).ok());
        columns.unwrap_or(80).saturating_sub(ECHO)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.step(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.step(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.step(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.step(columns, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let drawn = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        stderr().write_all(drawn.as_bytes())
    }
}
