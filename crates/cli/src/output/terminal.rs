//! What a prompt needs of a terminal, real or scripted.

use std::io;

use super::escape;

/// A screen and a keyboard.
pub(super) trait Terminal {
    /// Throws away what was typed so far.
    fn forget(&mut self) -> io::Result<()>;
    fn read(&mut self) -> io::Result<Typed>;
    fn write(&mut self, text: &str) -> io::Result<()>;
}

/// What came from the keyboard.
pub(super) enum Typed {
    End,
    Line(String),
    /// Nothing: the prompt is withdrawn.
    Withdrawn,
}

/// Reads a line; `None` when there is none.
pub(super) fn heard(terminal: &mut impl Terminal) -> io::Result<Option<String>> {
    match terminal.read()? {
        Typed::Line(line) => Ok(Some(line.trim().to_owned())),
        Typed::End => {
            terminal.write("\n")?;
            Ok(None)
        }
        Typed::Withdrawn => {
            // What was begun is no command for the shell either.
            terminal.forget()?;
            terminal.write(&escape::text("\n  withdrawn: no answer is needed any more\n"))?;
            Ok(None)
        }
    }
}
