use std::time::Duration;

use provider::ProviderError;
use serde::de::DeserializeOwned;

use crate::{Answer, Endpoint, MAX_ANSWER_BYTES, MAX_STREAM_BYTES};

/// The lines of an answer, each a JSON value of its own (NDJSON). Empty lines are passed over; what
/// the end of the body cut off is a line all the same, and no JSON.
#[derive(Debug)]
pub struct Lines<'e> {
    answer: Answer<'e>,
    buffer: LineBuffer,
}

impl<'e> Lines<'e> {
    pub(crate) fn new(answer: Answer<'e>) -> Self {
        Self { answer, buffer: LineBuffer::default() }
    }

    /// Waits for the next line, `None` at the end of the body. Bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamInterrupted`] when the connection breaks, [`ProviderError::Timeout`]
    /// when nothing comes, [`ProviderError::InvalidResponse`] when a line, or all together, is too
    /// large.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no line.
    pub async fn next(&mut self) -> Result<Option<String>, ProviderError> {
        loop {
            if let Some(line) = self.buffer.next() {
                return Ok(Some(line));
            }
            let pushed = match self.answer.chunk().await? {
                Some(chunk) => self.buffer.push(&chunk),
                None => return Ok(self.buffer.take_rest()),
            };
            if let Err(TooLarge) = pushed {
                return Err(self.answer.endpoint.invalid_response("stream is too large"));
            }
        }
    }

    /// Waits for the next line and decodes it, `None` at the end of the body. A value may go over
    /// several lines, as where an answer that is not streamed is written to be read by people.
    ///
    /// # Errors
    ///
    /// As [`Lines::next`]; whatever a failure in the line is; [`ProviderError::StreamTruncated`] when
    /// the body ends inside of its JSON; [`ProviderError::InvalidResponse`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the lines of a value that has not ended.
    pub async fn next_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ProviderError> {
        let endpoint = self.answer.endpoint;
        let Some(mut text) = self.next().await? else { return Ok(None) };
        loop {
            match endpoint.read(text.as_bytes(), self.retry_after())? {
                Err(error) if error.is_eof() && text.len() < MAX_ANSWER_BYTES => {
                    let Some(line) = self.next().await? else { break };
                    text.push('\n');
                    text.push_str(&line);
                }
                Ok(value) => return Ok(Some(value)),
                Err(_) => break,
            }
        }
        endpoint.decode_last(text.as_bytes(), self.retry_after()).map(Some)
    }

    /// Returns the endpoint the lines come from.
    #[must_use]
    pub const fn endpoint(&self) -> &'e Endpoint {
        self.answer.endpoint
    }

    /// Returns the wait that the head of the answer asked for.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.answer.retry_after()
    }
}

/// Puts lines together, so that it makes no difference where bytes were split.
#[derive(Debug, Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// How far lines were taken.
    taken: usize,
    /// How far no newline is, so that a long line is not searched again with every piece of it.
    searched: usize,
    of_stream: usize,
}

#[derive(Debug)]
struct TooLarge;

impl LineBuffer {
    /// Takes a piece of the body. The lines before it have all been taken.
    fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        let mut begun = self.bytes.len();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if begun + piece.len() > MAX_ANSWER_BYTES {
                return Err(TooLarge);
            }
            begun = 0;
        }
        self.bytes.extend_from_slice(chunk);
        if self.of_stream > MAX_STREAM_BYTES { Err(TooLarge) } else { Ok(()) }
    }

    /// Takes what stands after the last newline.
    fn take_rest(&mut self) -> Option<String> {
        let rest = text(&self.bytes[self.taken..]);
        self.taken = self.bytes.len();
        self.searched = self.taken;
        rest
    }
}

impl Iterator for LineBuffer {
    type Item = String;

    /// Takes the next complete line that is not empty.
    fn next(&mut self) -> Option<String> {
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
}

fn text(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    (!line.is_empty()).then(|| String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the pieces and returns the lines.
    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.push(piece).unwrap();
            lines.extend(buffer.by_ref());
        }
        lines.extend(buffer.take_rest());
        assert_eq!(buffer.take_rest(), None);
        lines
    }

    /// Spec: P7
    #[test]
    fn it_makes_no_difference_where_bytes_are_split() {
        #[track_caller]
        fn check(body: &[u8], expected: &[&str]) {
            assert_eq!(read(&[body]), expected);
            for at in 0..=body.len() {
                let (head, tail) = body.split_at(at);
                assert_eq!(read(&[head, tail]), expected, "split at {at}");
            }
            assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), expected);
        }
        check("{\"t\":\"grüße 👍\"}\n{}\n".as_bytes(), &[r#"{"t":"grüße 👍"}"#, "{}"]);
        check(b"\r\n {\"a\":1} \r\n\n\n{\"cut", &[r#"{"a":1}"#, r#"{"cut"#]);
        check(b"\"\xff\"\n\"\xf0\x9f", &["\"\u{fffd}\"", "\"\u{fffd}"]);
        check(b"", &[]);
        check(b" \n\t", &[]);
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
        let mut line = LineBuffer::default();
        for _ in 0..32 {
            line.push(&megabyte).unwrap();
            assert_eq!(line.next(), None);
        }
        assert!(line.push(&megabyte).is_err());

        let mut stream = LineBuffer { of_stream: MAX_STREAM_BYTES - 1, ..LineBuffer::default() };
        assert!(stream.push(b"\n").is_ok());
        assert!(stream.push(b"\n").is_err());
    }
}
