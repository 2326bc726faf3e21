use std::pin::Pin;
use std::time::Duration;

use eventsource_stream::{EventStream, EventStreamError};
use futures_util::{Stream, StreamExt, stream};
use provider::ProviderError;
use serde::de::DeserializeOwned;

use crate::{Answer, Endpoint, MAX_ANSWER_BYTES, MAX_STREAM_BYTES};

/// The server-sent events of an answer. An event that the end of the body cut off is no event.
pub struct Events<'e> {
    endpoint: &'e Endpoint,
    retry_after: Option<Duration>,
    events: EventStream<Lines<'e>>,
}

type Lines<'e> = Pin<Box<dyn Stream<Item = Result<String, ProviderError>> + Send + 'e>>;

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
        let (endpoint, retry_after) = (answer.endpoint, answer.retry_after());
        let lines = stream::try_unfold(
            (answer, LineBuffer::default()),
            |(mut answer, mut buffer)| async move {
                loop {
                    if let Some(line) = buffer.next() {
                        return Ok(Some((line, (answer, buffer))));
                    }
                    let Some(chunk) = answer.chunk().await? else { return Ok(None) };
                    if let Err(TooLarge) = buffer.push(&chunk) {
                        return Err(answer.endpoint.invalid_response("stream is too large"));
                    }
                }
            },
        );
        Self { endpoint, retry_after, events: EventStream::new(Box::pin(lines)) }
    }

    /// Waits for the next event, `None` at the end of the body.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamInterrupted`] when the connection breaks, [`ProviderError::Timeout`]
    /// when nothing comes, [`ProviderError::InvalidResponse`] when an event is too large.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<Option<Event>, ProviderError> {
        match self.events.next().await.transpose() {
            Ok(event) => Ok(event.map(|event| Event { kind: event.event, data: event.data })),
            Err(EventStreamError::Transport(error)) => Err(error),
            Err(error @ (EventStreamError::Parser(_) | EventStreamError::Utf8(_))) => {
                Err(self.endpoint.invalid_response(&error.to_string()))
            }
        }
    }

    /// Decodes the data of an event, as [`Endpoint::decode`] does.
    ///
    /// # Errors
    ///
    /// Whatever a failure in the data is; [`ProviderError::InvalidResponse`].
    pub fn decode<T: DeserializeOwned>(&self, event: &Event) -> Result<T, ProviderError> {
        self.endpoint.decode(event.data.as_bytes(), self.retry_after)
    }

    /// Returns the endpoint the events come from.
    #[must_use]
    pub const fn endpoint(&self) -> &'e Endpoint {
        self.endpoint
    }

    /// Returns the wait that the head of the answer asked for.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("endpoint", self.endpoint).finish_non_exhaustive()
    }
}

/// Passes whole lines on, one by one, so that it makes no difference where bytes were split.
///
/// `eventsource-stream` 0.2.3 alone panics on a byte order mark, holds everything back after one
/// invalid byte, reads a long line again with every piece of it, moves all that follows with every
/// line it takes, and copies the last id with every event.
#[derive(Default)]
struct LineBuffer {
    /// The beginning of a line.
    bytes: Vec<u8>,
    /// Complete lines.
    lines: String,
    /// How far the complete lines were taken.
    taken: usize,
    begun: bool,
    of_event: usize,
    of_stream: usize,
}

#[derive(Debug)]
struct TooLarge;

impl LineBuffer {
    /// Takes a piece of the body. The lines before it have all been taken.
    fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        if self.of_stream > MAX_STREAM_BYTES || self.bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(TooLarge);
        }
        let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.bytes.extend_from_slice(chunk);
            return Ok(());
        };
        let (complete, rest) = chunk.split_at(end + 1);
        let mut lines = std::mem::replace(&mut self.bytes, rest.to_vec());
        lines.extend_from_slice(complete);
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let ends_event = matches!(line, b"\n" | b"\r\n");
            self.of_event = if ends_event { 0 } else { self.of_event + line.len() };
            if self.of_event > MAX_ANSWER_BYTES {
                return Err(TooLarge);
            }
        }
        let text = String::from_utf8_lossy(&lines);
        let text = if self.begun { &text } else { text.trim_start_matches('\u{feff}') };
        self.begun = true;
        self.lines = text.to_owned();
        self.taken = 0;
        Ok(())
    }
}

impl Iterator for LineBuffer {
    type Item = String;

    /// Takes the next complete line. Its end is a newline, whatever it was.
    fn next(&mut self) -> Option<String> {
        let rest = self.lines.get(self.taken..)?;
        let end = rest.find(['\r', '\n'])?;
        self.taken += end + if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        // Nobody asks for ids, so they become comments. No other field begins like this.
        let line = if rest.starts_with("id") { ":" } else { &rest[..end] };
        Some(format!("{line}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the pieces and returns what an `EventStream` makes of them.
    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut buffer = LineBuffer::default();
        let mut lines: Vec<Result<String, ProviderError>> = Vec::new();
        for piece in pieces {
            buffer.push(piece).unwrap();
            lines.extend(buffer.by_ref().map(Ok));
        }
        let mut events = EventStream::new(stream::iter(lines));
        let mut read = Vec::new();
        while let Some(event) = futures_util::FutureExt::now_or_never(events.next()).unwrap() {
            let event = event.unwrap();
            read.push(format!("{}|{}", event.event, event.data));
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
    fn lines_are_passed_on_one_by_one() {
        let mut buffer = LineBuffer::default();
        buffer.push(b"a\r\nb\rc\n\nid: 7\r\n\r\rd").unwrap();
        let lines: Vec<String> = buffer.by_ref().collect();
        assert_eq!(lines, ["a\n", "b\n", "c\n", "\n", ":\n"]);
        buffer.push(b"\n").unwrap();
        let lines: Vec<String> = buffer.collect();
        assert_eq!(lines, ["\n", "\n", "d\n"]);
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
        let megabyte = vec![b'x'; 1024 * 1024];
        let mut line = LineBuffer::default();
        assert!((0..32).all(|_| line.push(&megabyte).is_ok()));
        assert!(line.push(&megabyte).is_err());

        let mut event = LineBuffer::default();
        let mut data = megabyte;
        data.push(b'\n');
        assert!((0..31).all(|_| event.push(&data).is_ok()));
        assert!(event.push(&data).is_err());
    }
}
