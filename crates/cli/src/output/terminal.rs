//! What a prompt needs of a terminal, real or scripted.

use std::io;

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
