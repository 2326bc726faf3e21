//! What stands before a part of a text.

use crate::byte_lists::ends_escape;

/// What a reader has to know of the text before the part it reads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Context {
    /// The last two bytes.
    before: [u8; 2],
    /// Does the text begin as an object or array of JSON? `None` before its first character.
    is_json: Option<bool>,
    in_string: bool,
    is_escaped: bool,
}

impl Context {
    /// Does a word go on that stood before?
    pub(crate) fn is_within_word(self) -> bool {
        let [before, last] = self.before;
        last.is_ascii_alphanumeric() && !(before == b'\\' && ends_escape(last))
    }

    /// Is this a place in JSON where a value stands that is no string?
    pub(crate) fn is_outside_strings(self) -> bool {
        self.is_json == Some(true) && !self.in_string
    }

    /// Reads on.
    pub(crate) fn advance(&mut self, text: &[u8]) {
        self.before = match *text {
            [] => self.before,
            [last] => [self.before[1], last],
            [.., before, last] => [before, last],
        };
        for byte in text {
            match self.is_json {
                Some(true) => {}
                Some(false) => return,
                None if byte.is_ascii_whitespace() => continue,
                None => self.is_json = Some(matches!(byte, b'{' | b'[')),
            }
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ => {}
            }
        }
    }
}
