//! What stands before a part of a text.

use crate::escapes::ends_escape;
use crate::layer::{Layer, MAX_LAYERS};

/// What a reader has to know of the text before the part it reads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Context {
    /// The last two bytes of the text, and of each layer below it: a fold joins what stands on both
    /// sides of it in the layer below only.
    before: [[u8; 2]; MAX_LAYERS + 1],
    pub(crate) json: JsonContext,
}

impl Context {
    /// Does a word go on that stood before, with so many layers taken off?
    pub(crate) fn is_within_word(&self, depth: usize) -> bool {
        let [before, last] = self.before[depth];
        last.is_ascii_alphanumeric() && !(before == b'\\' && ends_escape(last))
    }

    /// Reads on to `cut`. `layers` are those of the text.
    pub(crate) fn advance(&mut self, text: &str, layers: &[Layer], cut: usize) {
        let mut read = &text.as_bytes()[..cut];
        self.json.advance(read);
        let mut at = cut;
        for (depth, before) in self.before.iter_mut().enumerate() {
            // Below the last layer, all layers are the same.
            if let Some(layer) = depth.checked_sub(1).and_then(|above| layers.get(above)) {
                at = layer.out_of(at);
                read = &layer.bytes[..at];
            }
            *before = match *read {
                [] => *before,
                [last] => [before[1], last],
                [.., before, last] => [before, last],
            };
        }
    }
}

/// Where in a text of JSON a reader is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JsonContext {
    /// Does the text begin as an object or array? `None` before its first character.
    is_json: Option<bool>,
    in_string: bool,
    is_escaped: bool,
}

impl JsonContext {
    /// Is this a place where a value stands that is no string?
    pub(crate) fn is_outside_strings(self) -> bool {
        self.is_json == Some(true) && !self.in_string
    }

    /// Reads on.
    pub(crate) fn advance(&mut self, text: &[u8]) {
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
