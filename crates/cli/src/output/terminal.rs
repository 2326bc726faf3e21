//! The terminal of a prompt, real or scripted.

use std::io;

use super::escape;

/// A screen and a keyboard.
pub(super) trait Terminal {
    /// Discards the text that was typed so far.
    fn forget(&mut self) -> io::Result<()>;
    fn read(&mut self) -> io::Result<Typed>;
    fn write(&mut self, text: &str) -> io::Result<()>;
}

/// Input from the keyboard.
pub(super) enum Typed {
    End,
    Line(String),
    /// No input: the prompt is withdrawn.
    Withdrawn,
}

/// Reads a line; returns `None` if there is none.
pub(super) fn read_line(terminal: &mut impl Terminal) -> io::Result<Option<String>> {
    match terminal.read()? {
        Typed::Line(line) => Ok(Some(line.trim().to_owned())),
        Typed::End => {
            terminal.write("\n")?;
            Ok(None)
        }
        Typed::Withdrawn => {
            // A partly typed answer must not become a command of the shell.
            terminal.forget()?;
            terminal.write(&escape::text("\n  withdrawn: no answer is needed any more\n"))?;
            Ok(None)
        }
    }
}
