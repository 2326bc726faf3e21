use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;

use crate::decode::BYTE_ORDER_MARK;
use crate::framing::{FrameError, Framing};
use crate::limits::{MAX_ANSWER_BYTES, MAX_STREAM_BYTES};

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseEvent {
    /// The type; `message` if the stream names none.
    pub kind: String,
    /// The data.
    pub data: String,
}

impl SseEvent {
    /// Returns the event inside this one's data: some proxies wrap a stream in another.
    fn into_inner(mut self) -> Self {
        for _ in 0..MAX_WRAPPINGS {
            if !["data:", "event:"].iter().any(|field| self.data.starts_with(field)) {
                break;
            }
            let mut draft = EventDraft::default();
            self.data.lines().for_each(|line| draft.take(line.as_bytes(), 0));
            let Some(inner) = draft.end() else { break };
            self = inner;
        }
        self
    }
}

/// Types of events that only keep the connection open, whatever their data is. No protocol has them for anything else.
const KEEPALIVES: [&str; 4] = ["heartbeat", "keep-alive", "keepalive", "ping"];

/// The maximum depth of events inside events.
const MAX_WRAPPINGS: usize = 3;

/// A splitter of a body into server-sent events, following the [HTML standard].
///
/// An event that the end of the body cuts off is dropped, unless only its closing empty line is
/// missing. Invalid UTF-8 is replaced; ids and reconnection times are ignored.
///
/// `eventsource-stream` 0.2.3 would need as much code around it: it panics on a byte order mark,
/// reads long lines again with every chunk, and takes ten times as long.
///
/// [HTML standard]: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
#[derive(Debug, Default)]
pub struct Events {
    bytes: Vec<u8>,
    /// The end of the lines read so far.
    taken: usize,
    /// The offset before which no unread line ends, so that a long line is not searched again with
    /// every chunk.
    searched: usize,
    /// Whether the last line ended with a carriage return; a newline after it belongs to it.
    is_behind_return: bool,
    /// Whether the first line was read.
    begun: bool,
    of_stream: usize,
    draft: EventDraft,
    /// The total number of bytes read or moved.
    #[cfg(test)]
    handled: usize,
}

/// An event that is being assembled.
#[derive(Debug, Default)]
struct EventDraft {
    kind: String,
    /// The data, with a newline after each line.
    data: String,
    /// The total length of its lines.
    bytes: usize,
}

impl Events {
    /// Returns the range of the next complete line, without its end, and advances past it.
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.is_behind_return {
            // The second half of a line end.
            if *self.bytes.get(self.taken)? == b'\n' {
                self.taken += 1;
                self.searched = self.searched.max(self.taken);
            }
            self.is_behind_return = false;
        }
        let found = memchr::memchr2(b'\r', b'\n', &self.bytes[self.searched..]);
        let end = found.map_or(self.bytes.len(), |end| self.searched + end);
        #[cfg(test)]
        {
            self.handled += end - self.searched + 1;
        }
        if found.is_none() {
            self.searched = end;
            return None;
        }
        let line = self.taken..end;
        self.is_behind_return = self.bytes[line.end] == b'\r';
        self.taken = line.end + 1;
        self.searched = self.taken;
        Some(line)
    }

    /// Reads a line; returns the event that it ends.
    fn take_line(&mut self, line: Range<usize>) -> Option<SseEvent> {
        let begins = !std::mem::replace(&mut self.begun, true);
        #[cfg(test)]
        {
            self.handled += line.len() + self.draft.data.len() * usize::from(line.is_empty());
        }
        let line = &self.bytes[line];
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| begins).unwrap_or(line);
        if line.is_empty() {
            return std::mem::take(&mut self.draft).end();
        }
        self.draft.take(line, line.len() + 1);
        None
    }

    /// Returns the next complete event.
    fn next_event(&mut self) -> Option<SseEvent> {
        loop {
            let line = self.next_line()?;
            let event = self.take_line(line);
            if event.is_some() {
                return event;
            }
        }
    }
}

impl Framing for Events {
    type Frame = SseEvent;

    fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        #[cfg(test)]
        if self.taken > 0 {
            self.handled += self.bytes.len() - self.taken;
        }
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        let of_event = self.draft.bytes + self.bytes.len() + chunk.len();
        if self.of_stream > MAX_STREAM_BYTES || of_event > MAX_ANSWER_BYTES {
            return Err(FrameError::too_large());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<SseEvent>, FrameError> {
        Ok(self.next_event().map(SseEvent::into_inner))
    }

    /// Returns an event without its closing empty line, if its data is complete: the end marker, or
    /// an object.
    fn rest(&mut self) -> Result<Option<SseEvent>, FrameError> {
        let rest = self.taken..self.bytes.len();
        self.taken = rest.end;
        self.searched = rest.end;
        let ended = self.take_line(rest);
        let Some(event) = ended.or_else(|| std::mem::take(&mut self.draft).end()) else {
            return Ok(None);
        };
        let data = event.data.trim();
        let is_object = || serde_json::from_str::<IgnoredAny>(data).is_ok();
        let is_whole = data == "[DONE]" || (data.starts_with('{') && is_object());
        Ok(is_whole.then(|| event.into_inner()))
    }

    fn json(event: &mut SseEvent) -> Option<&mut String> {
        Some(&mut event.data)
    }
}

impl EventDraft {
    /// Reads a line; `bytes` is its length with its end. Other fields are treated as comments.
    fn take(&mut self, line: &[u8], bytes: usize) {
        self.bytes += bytes;
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // Several times as fast as a search for invalid bytes.
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

    /// Returns the event; `None` without data, and for an event that only keeps the connection open.
    fn end(mut self) -> Option<SseEvent> {
        self.data.pop()?;
        if self.data.trim().is_empty() || KEEPALIVES.contains(&&*self.kind) {
            return None;
        }
        let kind = if self.kind.is_empty() { "message".to_owned() } else { self.kind };
        Some(SseEvent { kind, data: self.data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes the pieces and returns the events.
    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut buffer = Events::default();
        let mut read = Vec::new();
        for piece in pieces {
            buffer.push(piece).unwrap();
            read.extend(std::iter::from_fn(|| buffer.next().unwrap()));
        }
        read.extend(buffer.rest().unwrap());
        read.iter().map(|event| format!("{}|{}", event.kind, event.data)).collect()
    }

    /// Spec: P7
    #[test]
    fn keepalives_are_no_events() {
        let kept_open = "data:\n\ndata: \n\nevent: ping\ndata: 5\n\nevent: keepalive\ndata: {}\n\n";
        let body = format!("{kept_open}event: a\ndata: 1\n\n{kept_open}data: 2\n\n{kept_open}");
        assert_eq!(read(&[body.as_bytes()]), ["a|1", "message|2"]);
    }

    /// Spec: P7
    #[test]
    fn it_makes_no_difference_where_bytes_are_split() {
        let bodies: [&[u8]; 8] = [
            "event: a\ndata: {\"t\":\"grüße 👍\"}\n\n: comment\n\ndata: one\ndata: two\n\n"
                .as_bytes(),
            "\u{feff}event: a\r\ndata: é\r\n\r\ndata:b\r\n\r\ndata: cut off".as_bytes(),
            b"data: \xff\xfe broken \xf0\x9f\n\ndata: after\n\n",
            b"\n\n\ndata\n\nid\nretry: x\n:\n\xef\xbb\xbfdata: bom\n\n",
            b"id\n\xef\xbb\xbfdata: bom\n\ndata: after\n\n",
            "event: a\rdata: é\r\rdata: b\rdata: c\r\r: d\r\r\rdata: e\r\r".as_bytes(),
            b"data: a\r\rdata: b\r\n\r\ndata: c\n\n\rdata: {}\r",
            b"data: {\"a\": 1}\n\ndata: [DONE]",
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
        assert_eq!(read(&[bodies[5]]), ["a|é", "message|b\nc", "message|e"]);
        assert_eq!(read(&[bodies[6]]), ["message|a", "message|b", "message|c", "message|{}"]);
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
        // The standard has events for these; to every endpoint they only keep the connection open.
        check("data\n\ndata\ndata\n\ndata:\n", &[]);
        check("event: void without data\n\ndata: a\n\n", &["message|a"]);
        check("event: a\nevent: b\ndata: x: y\n\ndata: z\n\n", &["b|x: y", "message|z"]);
        check(": data\n data: a\nDATA: b\nid: 1\nretry: 1\n\n", &[]);
        check("data: a\n\u{feff}data: b\n\n", &["message|a"]);
        check("data: cut off\n", &[]);
    }

    /// Spec: P3, P7
    #[test]
    fn event_without_empty_line_counts_when_whole() {
        #[track_caller]
        fn check(body: &str, expected: &[&str]) {
            assert_eq!(read(&[body.as_bytes()]), expected, "{body}");
        }
        for end in ["", "\n", "\r\n", "\r"] {
            check(&format!("data: [DONE]{end}"), &["message|[DONE]"]);
            check(&format!("event: a\ndata: {{\"b\":1}}{end}"), &[r#"a|{"b":1}"#]);
            check(&format!("data: {{\"b\":{end}"), &[]);
            check(&format!("data: 1{end}"), &[]);
            check(&format!("event: a{end}"), &[]);
        }
        check("data: [DONE", &[]);
    }

    #[test]
    fn an_event_inside_an_event_is_unwrapped() {
        #[track_caller]
        fn check(body: &str, expected: &[&str]) {
            assert_eq!(read(&[body.as_bytes()]), expected, "{body}");
        }
        check(
            "data: data: {\"a\":1}\n\ndata: data: [DONE]\n\n",
            &["message|{\"a\":1}", "message|[DONE]"],
        );
        check("data: event: b\ndata: data: {}\n\n", &["b|{}"]);
        check("data: data: data: {}\n\n", &["message|{}"]);
        check("data: event: alone\n\n", &["message|event: alone"]);
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

    /// Spec: P7
    #[test]
    fn each_byte_is_handled_a_few_times() {
        let fields = ["data", "event", "id", ":", "", " ", "\u{feff}", "\u{fffd}"];
        let values = ["", ":", ": ", ": x", ":data: x", ": {}", ": [DONE]"];
        let ends = ["", "\n", "\r", "\r\n", "\n\n", "\r\r", "\n\r"];
        let units = fields.iter().flat_map(|field| {
            values.iter().flat_map(move |value| ends.map(|end| format!("{field}{value}{end}")))
        });
        for unit in units.filter(|unit| !unit.is_empty()) {
            for begin in ["", "data: x", "data: x\n"] {
                let body = begin.to_owned() + &unit.repeat(8 * 1024 / unit.len());
                for size in [1, 7, 1024, body.len()] {
                    let mut events = Events::default();
                    for piece in body.as_bytes().chunks(size) {
                        events.push(piece).unwrap();
                        while events.next().unwrap().is_some() {}
                    }
                    let handled = events.handled;
                    // One more for the end of each search.
                    let most = 4 * body.len() + body.len().div_ceil(size);
                    assert!(handled <= most, "{begin:?} {unit:?} by {size}: {handled} of {most}");
                }
            }
        }
    }

    #[test]
    fn lines_and_events_are_bounded() {
        for end in [b'x', b'\n'] {
            let mut megabyte = vec![b'x'; 1024 * 1024];
            megabyte.push(end);
            let mut buffer = Events::default();
            for _ in 0..31 {
                buffer.push(&megabyte).unwrap();
                assert_eq!(buffer.next().unwrap(), None);
            }
            assert!(buffer.push(&megabyte).is_err());
        }
        let mut stream = Events { of_stream: MAX_STREAM_BYTES - 1, ..Events::default() };
        assert!(stream.push(b"\n").is_ok());
        assert!(stream.push(b"\n").is_err());
    }
}
