/// A scanner of brackets and strings of one JSON text in pieces, which reads each byte once. It
/// does not check the grammar: it only determines whether more bytes are needed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct JsonScan {
    depth: u32,
    is_in_string: bool,
    is_behind_backslash: bool,
    has_closed: bool,
}

impl JsonScan {
    /// Reads the next bytes of the text.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push_byte(*byte);
        }
    }

    /// Returns whether a bracket or a string is open.
    pub(crate) const fn is_open(&self) -> bool {
        self.depth > 0 || self.is_in_string
    }

    /// Returns whether a string is open; no line may end in one.
    pub(crate) const fn is_in_string(&self) -> bool {
        self.is_in_string
    }

    /// Returns whether an object or a list was closed, and nothing is open after it.
    pub(crate) const fn is_whole(&self) -> bool {
        self.has_closed && !self.is_open()
    }

    fn push_byte(&mut self, byte: u8) {
        if self.is_in_string {
            self.is_in_string = byte != b'"' || self.is_behind_backslash;
            self.is_behind_backslash = byte == b'\\' && !self.is_behind_backslash;
            return;
        }
        match byte {
            b'"' => self.is_in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.has_closed |= self.depth == 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_open_nothing() {
        #[track_caller]
        fn check(json: &str, is_open: bool, is_whole: bool) {
            let mut scan = JsonScan::default();
            json.as_bytes().chunks(3).for_each(|piece| scan.push(piece));
            assert_eq!((scan.is_open(), scan.is_whole()), (is_open, is_whole), "{json}");
        }
        check("", false, false);
        check("12", false, false);
        check(r#""{"#, true, false);
        check(r#""{""#, false, false);
        check(r#"{"a": "}"#, true, false);
        check(r#"{"a": "}\"}"#, true, false);
        check(r#"{"a": "}\\"}"#, false, true);
        check(r#"{"a": [1, {}]"#, true, false);
        check(r#"{"a": [1, {}]} "#, false, true);
        check("{}{", true, false);
        check("}", false, true);
    }
}
