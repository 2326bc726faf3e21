use serde::de::IgnoredAny;

use crate::framing::{FrameError, Framing};
use crate::json_scan::JsonScan;
use crate::limits::{MAX_ANSWER_BYTES, MAX_STREAM_BYTES};

/// A splitter of a body into JSON values, each on a line of its own (NDJSON) or over several lines,
/// like a whole response that is formatted for people.
///
/// Empty lines are skipped; a line that is not JSON is a frame too. Invalid UTF-8 is replaced.
#[derive(Debug, Default)]
pub struct JsonSplitter {
    bytes: Vec<u8>,
    /// The end of the lines read so far.
    taken: usize,
    /// The offset before which there is no further newline, so that a long line is not searched
    /// again with every chunk.
    searched: usize,
    of_stream: usize,
    open: OpenValue,
}

/// The lines of a value that has not ended.
#[derive(Debug, Default)]
struct OpenValue {
    text: String,
    scan: JsonScan,
    /// The length of the text at the last check of its grammar.
    checked: usize,
    /// The total number of bytes checked.
    #[cfg(test)]
    checked_in_all: usize,
}

impl OpenValue {
    /// Adds a line; returns whether the value ends with it, well-formed or not.
    fn push(&mut self, line: &str) -> bool {
        let is_broken = self.scan.is_in_string();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.scan.push(line.as_bytes());
        is_broken || self.is_over()
    }

    /// Returns whether no further line belongs to the value. While a bracket is open, the grammar
    /// is checked again only once the text is twice as long, so that no byte is read more than a
    /// few times.
    fn is_over(&mut self) -> bool {
        if self.scan.is_open() && self.text.len() < self.checked.saturating_mul(2) {
            return false;
        }
        self.checked = self.text.len();
        #[cfg(test)]
        {
            self.checked_in_all += self.checked;
        }
        self.scan.is_whole() || !is_cut(&self.text)
    }
}

impl JsonSplitter {
    /// Returns the next complete line that is not empty.
    fn next_line(&mut self) -> Option<String> {
        while let Some(end) = memchr::memchr(b'\n', &self.bytes[self.searched..]) {
            let end = self.searched + end;
            let line = text(&self.bytes[self.taken..end]);
            self.taken = end + 1;
            self.searched = self.taken;
            if line.is_some() {
                return line;
            }
        }
        self.searched = self.bytes.len();
        None
    }

    /// Reads a line; returns the value that it ends.
    fn take_line(&mut self, line: String) -> Result<Option<String>, FrameError> {
        if self.open.text.len() + line.len() > MAX_ANSWER_BYTES {
            return Err(FrameError::too_large());
        }
        Ok(self.open.push(&line).then(|| std::mem::take(&mut self.open).text))
    }
}

impl Framing for JsonSplitter {
    type Frame = String;

    const IS_JSON: bool = true;

    fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        let mut begun = self.bytes.len();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if begun + piece.len() > MAX_ANSWER_BYTES {
                return Err(FrameError::too_large());
            }
            begun = 0;
        }
        self.bytes.extend_from_slice(chunk);
        if self.of_stream > MAX_STREAM_BYTES { Err(FrameError::too_large()) } else { Ok(()) }
    }

    fn next(&mut self) -> Result<Option<String>, FrameError> {
        while let Some(line) = self.next_line() {
            if let Some(value) = self.take_line(line)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    fn rest(&mut self) -> Result<Option<String>, FrameError> {
        let rest = text(&self.bytes[self.taken..]);
        self.taken = self.bytes.len();
        self.searched = self.taken;
        let value = rest.map_or(Ok(None), |line| self.take_line(line))?;
        match value {
            None if !self.open.text.is_empty() => Err(FrameError::Truncated("the end of the JSON")),
            value => Ok(value),
        }
    }

    fn json(value: &mut String) -> Option<&mut String> {
        Some(value)
    }
}

/// Returns whether a text is JSON without its end.
fn is_cut(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_err_and(|error| error.is_eof())
}

fn text(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes the pieces; returns the values, and whether the end of the body cut one off.
    fn read(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut buffer = JsonSplitter::default();
        let mut values = Vec::new();
        for piece in pieces {
            buffer.push(piece).unwrap();
            values.extend(std::iter::from_fn(|| buffer.next().unwrap()));
        }
        let rest = buffer.rest();
        let is_cut = rest.is_err();
        values.extend(rest.ok().flatten());
        (values, is_cut)
    }

    /// Spec: P7
    #[test]
    fn it_makes_no_difference_where_bytes_are_split() {
        #[track_caller]
        fn check(body: &[u8], expected: &[&str], is_cut: bool) {
            let expected = (expected.iter().map(ToString::to_string).collect(), is_cut);
            assert_eq!(read(&[body]), expected);
            for at in 0..=body.len() {
                let (head, tail) = body.split_at(at);
                assert_eq!(read(&[head, tail]), expected, "split at {at}");
            }
            assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), expected);
        }
        check("{\"t\":\"grüße 👍\"}\n{}\n".as_bytes(), &[r#"{"t":"grüße 👍"}"#, "{}"], false);
        check(b"\r\n {\"a\":1} \r\n\n\n{\"cut", &[r#"{"a":1}"#], true);
        check(b"{\n  \"a\": 1\n}\n{}", &["{\n\"a\": 1\n}", "{}"], false);
        check(b"pardon?\n{}\n", &["pardon?", "{}"], false);
        check(b"\"\xff\"\n\"\xf0\x9f\"", &["\"\u{fffd}\"", "\"\u{fffd}\""], false);
        check(
            b"{\n\"a\": [\n1,\n\"}\"\n]\n}\n[1]",
            &["{\n\"a\": [\n1,\n\"}\"\n]\n}", "[1]"],
            false,
        );
        check(b"{\n\"cut\": \"\n{}\n2", &["{\n\"cut\": \"\n{}", "2"], false);
        check(b"", &[], false);
        check(b" \n\t", &[], false);
    }

    proptest::proptest! {
        /// Spec: P7, E11
        #[test]
        fn no_bytes_panic_and_no_split_matters(
            lines in proptest::collection::vec("\\PC{0,6}", 0..8),
            newline in proptest::sample::select(vec!["\n", "\r\n", "\n\n", "\r"]),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..8),
            size in 1..9_usize,
        ) {
            let mut body = lines.join(newline).into_bytes();
            body.extend(noise);
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            proptest::prop_assert_eq!(read(&pieces), read(&[&body]));
        }
    }

    #[test]
    fn no_line_grows_without_bound() {
        let megabyte = vec![b'x'; 1024 * 1024];
        let mut line = JsonSplitter::default();
        for _ in 0..32 {
            line.push(&megabyte).unwrap();
            assert_eq!(line.next().unwrap(), None);
        }
        assert!(line.push(&megabyte).is_err());

        let mut stream =
            JsonSplitter { of_stream: MAX_STREAM_BYTES - 1, ..JsonSplitter::default() };
        assert!(stream.push(b"\n").is_ok());
        assert!(stream.push(b"\n").is_err());
    }

    /// Spec: P7
    #[test]
    fn each_byte_is_checked_a_few_times() {
        for begin in ["", "{\n", "[\n", "{\"a\": [\n", "\"\n"] {
            for unit in [
                "1,\n", "{\n", "[[\n", "\"\n", "\"a\":\n", "{}\n", "tru\n", "-\n", "x\n", "]\n",
                "\\\n",
            ] {
                let body = begin.to_owned() + &unit.repeat(64 * 1024 / unit.len());
                let mut values = JsonSplitter::default();
                let (mut lines, mut checked) = (0, 0);
                values.push(body.as_bytes()).unwrap();
                while let Some(line) = values.next_line() {
                    lines += line.len();
                    if values.open.push(&line) {
                        checked += std::mem::take(&mut values.open).checked_in_all;
                    }
                }
                checked += values.open.checked_in_all;
                // The newlines between them are read too.
                assert!(checked <= 4 * body.len(), "{begin:?} {unit:?}: {checked} of {lines}");
            }
        }
    }
}
