use std::borrow::Cow;
use std::time::Duration;

use provider::ProviderError;
use serde::de::DeserializeOwned;

use crate::{Answer, Endpoint, MAX_ANSWER_BYTES, MAX_STREAM_BYTES};

/// The server-sent events of an answer. An event that the end of the body cut off is no event.
#[derive(Debug)]
pub struct Events<'e> {
    answer: Answer<'e>,
    buffer: EventBuffer,
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Its type; `message` where the stream does not say.
    pub kind: String,
    /// Its data.
    pub data: String,
}

impl<'e> Events<'e> {
    pub(crate) fn new(answer: Answer<'e>) -> Self {
        Self { answer, buffer: EventBuffer::default() }
    }

    /// Waits for the next event, `None` at the end of the body. Bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamInterrupted`] when the connection breaks, [`ProviderError::Timeout`]
    /// when nothing comes, [`ProviderError::InvalidResponse`] when an event, or all together, is too
    /// large.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Option<Event>, ProviderError> {
        loop {
            if let Some(event) = self.buffer.next() {
                return Ok(Some(event));
            }
            let Some(chunk) = self.answer.chunk().await? else { return Ok(None) };
            if let Err(TooLarge) = self.buffer.push(&chunk) {
                return Err(self.endpoint().invalid_response("stream is too large"));
            }
        }
    }

    /// Decodes the data of an event, as [`Endpoint::decode`] does.
    ///
    /// # Errors
    ///
    /// Whatever a failure in the data is; [`ProviderError::InvalidResponse`].
    pub fn decode<T: DeserializeOwned>(&self, event: &Event) -> Result<T, ProviderError> {
        self.endpoint().decode(event.data.as_bytes(), self.retry_after())
    }

    /// Returns the endpoint the events come from.
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

/// Puts events together as the [HTML standard] says, so that it makes no difference where bytes were
/// split. Ids and waits before a new connection are passed over: nobody asks for them here.
///
/// `eventsource-stream` 0.2.3 needs as much code around it, because it panics on a byte order mark and
/// reads long lines again with every piece of them, and takes ten times as long.
///
/// [HTML standard]: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
#[derive(Debug, Default)]
struct EventBuffer {
    bytes: Vec<u8>,
    /// How far lines were taken.
    taken: usize,
    /// How far lines are complete. A carriage return at the end of a piece may be half of a line's
    /// end, so that only a newline completes what stands before it.
    complete: usize,
    /// Was the first line taken?
    begun: bool,
    of_stream: usize,
    draft: Draft,
}

/// The event that is being put together.
#[derive(Debug, Default)]
struct Draft {
    kind: String,
    /// Its data, each line with a newline.
    data: String,
    /// How long its lines are.
    bytes: usize,
}

#[derive(Debug)]
struct TooLarge;

impl EventBuffer {
    /// Takes a piece of the body. The events before it have all been taken.
    fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        let of_event = self.draft.bytes + self.bytes.len() + chunk.len();
        if self.of_stream > MAX_STREAM_BYTES || of_event > MAX_ANSWER_BYTES {
            return Err(TooLarge);
        }
        let newline = memchr::memrchr(b'\n', chunk);
        self.complete = newline.map_or(0, |at| self.bytes.len() + at + 1);
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

impl Iterator for EventBuffer {
    type Item = Event;

    /// Takes the next complete event.
    fn next(&mut self) -> Option<Event> {
        loop {
            let rest = self.bytes.get(self.taken..self.complete)?;
            let end = memchr::memchr2(b'\r', b'\n', rest)?;
            let (line, rest) = rest.split_at(end);
            let length = end + if rest.starts_with(b"\r\n") { 2 } else { 1 };
            self.taken += length;
            let begins = !std::mem::replace(&mut self.begun, true);
            let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| begins).unwrap_or(line);
            if !line.is_empty() {
                self.draft.take(line, length);
            } else if let Some(event) = std::mem::take(&mut self.draft).end() {
                return Some(event);
            }
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Draft {
    /// Takes in a line, `bytes` long with its end. What is no field that counts is a comment.
    fn take(&mut self, line: &[u8], bytes: usize) {
        self.bytes += bytes;
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // Several times as fast as looking for what to replace.
        let valid = str::from_utf8(value).map(Cow::Borrowed);
        let value = valid.unwrap_or_else(|_| String::from_utf8_lossy(value));
        match field {
            b"data" => {
                self.data.reserve(value.len() + 1);
                self.data.push_str(&value);
                self.data.push('\n');
            }
            b"event" => self.kind = value.into_owned(),
            _ => {}
        }
    }

    /// Returns the event; one without data is none.
    fn end(mut self) -> Option<Event> {
        self.data.pop()?;
        let kind = if self.kind.is_empty() { "message".to_owned() } else { self.kind };
        Some(Event { kind, data: self.data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the pieces and returns the events.
    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut buffer = EventBuffer::default();
        let mut read = Vec::new();
        for piece in pieces {
            buffer.push(piece).unwrap();
            read.extend(buffer.by_ref().map(|event| format!("{}|{}", event.kind, event.data)));
        }
        read
    }

    /// Spec: P7
    #[test]
    fn it_makes_no_difference_where_bytes_are_split() {
        let bodies: [&[u8]; 5] = [
            "event: a\ndata: {\"t\":\"grüße 👍\"}\n\n: comment\n\ndata: one\ndata: two\n\n"
                .as_bytes(),
            "\u{feff}event: a\r\ndata: é\r\n\r\ndata:b\r\n\r\ndata: cut off".as_bytes(),
            b"data: \xff\xfe broken \xf0\x9f\n\ndata: after\n\n",
            b"\n\n\ndata\n\nid\nretry: x\n:\n\xef\xbb\xbfdata: bom\n\n",
            b"id\n\xef\xbb\xbfdata: bom\n\ndata: after\n\n",
        ];
        for body in bodies {
            let whole = read(&[body]);
            for at in 0..=body.len() {
                let (head, tail) = body.split_at(at);
                assert_eq!(read(&[head, tail]), whole, "split at {at}");
            }
            assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole);
        }
        assert_eq!(read(&[bodies[1]]), ["a|é", "message|b"]);
        let mixed: &[u8] = b"id: 7\r\ndata: a\r\rdata: b\rid\n\n";
        assert_eq!(read(&[mixed]), ["message|a", "message|b"]);
    }

    #[test]
    fn events_are_what_the_standard_says() {
        #[track_caller]
        fn check(body: &str, expected: &[&str]) {
            assert_eq!(read(&[body.as_bytes()]), expected);
        }
        check("data: one\ndata:two\ndata:  three\n\n", &["message|one\ntwo\n three"]);
        check("data\n\ndata\ndata\n\ndata:\n", &["message|", "message|\n"]);
        check("event: void without data\n\ndata: a\n\n", &["message|a"]);
        check("event: a\nevent: b\ndata: x: y\n\ndata: z\n\n", &["b|x: y", "message|z"]);
        check(": data\n data: a\nDATA: b\nid: 1\nretry: 1\n\n", &[]);
        check("data: a\n\u{feff}data: b\n\n", &["message|a"]);
        check("data: cut off\n", &[]);
    }

    proptest::proptest! {
        /// Spec: P7, E11
        #[test]
        fn no_bytes_panic_and_no_split_matters(
            lines in proptest::collection::vec("(data|event|:|id|\u{feff}data)?:? ?\\PC{0,6}", 0..8),
            newline in proptest::sample::select(vec!["\n", "\r\n", "\n\n", "\r"]),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..8),
            size in 1..9_usize,
        ) {
            let mut body = lines.join(newline).into_bytes();
            body.extend(noise);
            body.extend(b"\n\ndata: end\n\n");
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            proptest::prop_assert_eq!(read(&pieces), read(&[&body]));
        }
    }

    #[test]
    fn neither_a_line_nor_an_event_grows_without_bound() {
        for end in [b'x', b'\n'] {
            let mut megabyte = vec![b'x'; 1024 * 1024];
            megabyte.push(end);
            let mut buffer = EventBuffer::default();
            for _ in 0..31 {
                buffer.push(&megabyte).unwrap();
                assert_eq!(buffer.next(), None);
            }
            assert!(buffer.push(&megabyte).is_err());
        }
        let mut stream = EventBuffer { of_stream: MAX_STREAM_BYTES - 1, ..EventBuffer::default() };
        assert!(stream.push(b"\n").is_ok());
        assert!(stream.push(b"\n").is_err());
    }
}
