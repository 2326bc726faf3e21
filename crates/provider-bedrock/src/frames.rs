//! Frames of `application/vnd.amazon.eventstream`, however they are chunked,
//! <https://smithy.io/2.0/aws/amazon-eventstream.html>.

use std::ops::Range;

use aws_smithy_eventstream::frame::read_message_from;
use backstop_provider_http::{FrameError, Framing, MAX_ANSWER_BYTES, MAX_STREAM_BYTES};
use serde_json::{Value, json};

/// The length of a prelude: total length, length of the headers, and the checksum of both.
const PRELUDE_BYTES: usize = 12;

/// A splitter of a body into frames. Unknown kinds of frames are skipped.
#[derive(Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// The end of the bytes read so far.
    taken: usize,
    of_stream: usize,
}

/// A decoded frame.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// An event, with its type and its data, which is JSON.
    Event { kind: String, payload: String },
    /// A failure, as the body it would have had with a status.
    Failure(Value),
}

impl Framing for Frames {
    type Frame = Frame;

    fn push(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        self.of_stream = self.of_stream.saturating_add(chunk.len());
        if self.of_stream > MAX_STREAM_BYTES {
            return Err(invalid(format!("stream is larger than {MAX_STREAM_BYTES} bytes")));
        }
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        while let Some(frame) = self.next_range()? {
            let message = read_message_from(&self.bytes[frame]);
            let message = message.map_err(|error| invalid(error.to_string()))?;
            let header = |name: &str| {
                let header = message.headers().iter().find(|it| it.name().as_str() == name)?;
                Some(header.value().as_string().ok()?.as_str())
            };
            let payload = message.payload();
            return Ok(Some(match header(":message-type") {
                Some("event") => Frame::Event {
                    kind: header(":event-type").unwrap_or_default().to_owned(),
                    payload: String::from_utf8_lossy(payload).into_owned(),
                },
                Some("exception") => Frame::Failure(failure(header(":exception-type"), payload)),
                Some("error") => Frame::Failure(json!({
                    "type": header(":error-code"),
                    "message": header(":error-message"),
                })),
                _ => continue,
            }));
        }
        Ok(None)
    }

    fn rest(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.bytes.len() == self.taken {
            return Ok(None);
        }
        Err(FrameError::Truncated("the end of a frame"))
    }

    fn json(frame: &mut Frame) -> Option<&mut String> {
        match frame {
            Frame::Event { payload, .. } => Some(payload),
            Frame::Failure(_) => None,
        }
    }
}

impl Frames {
    /// Returns the range of the next complete frame, and advances past it.
    fn next_range(&mut self) -> Result<Option<Range<usize>>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some(prelude) = rest.first_chunk::<PRELUDE_BYTES>() else { return Ok(None) };
        // Checked before the rest is waited for: a corrupted length may ask for bytes that never come.
        let [length @ .., _, _, _, _, c0, c1, c2, c3] = *prelude;
        if crc32fast::hash(&prelude[..8]) != u32::from_be_bytes([c0, c1, c2, c3]) {
            return Err(invalid("a frame whose head does not match its checksum"));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_ANSWER_BYTES {
            return Err(invalid(format!("a frame is larger than {MAX_ANSWER_BYTES} bytes")));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = self.taken..self.taken + length;
        self.taken = frame.end;
        Ok(Some(frame))
    }
}

fn invalid(why: impl Into<String>) -> FrameError {
    FrameError::Invalid(why.into())
}

/// Returns the body of an exception with its type, as if it had a status.
fn failure(kind: Option<&str>, payload: &[u8]) -> Value {
    match serde_json::from_slice(payload) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("type".into(), json!(kind));
            Value::Object(fields)
        }
        _ => json!({ "type": kind, "message": String::from_utf8_lossy(payload) }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::num::u8::ANY;

    use super::*;

    /// Decodes a body in pieces of this size; returns its contents, and whether it ends with a frame.
    fn read(body: &[u8], size: usize) -> Result<(Vec<Frame>, bool), FrameError> {
        let mut buffer = Frames::default();
        let mut said = Vec::new();
        for piece in body.chunks(size) {
            buffer.push(piece)?;
            while let Some(next) = buffer.next()? {
                said.push(next);
            }
        }
        Ok((said, buffer.rest().is_ok()))
    }

    #[test]
    fn a_stream_does_not_grow_without_bound() {
        let mut buffer = Frames { of_stream: MAX_STREAM_BYTES, ..Frames::default() };
        assert!(buffer.push(b"x").is_err());

        let mut head = [0xff; PRELUDE_BYTES];
        let checksum = crc32fast::hash(&head[..8]);
        head[8..].copy_from_slice(&checksum.to_be_bytes());
        let why = read(&head, 1).unwrap_err();
        assert_eq!(why, invalid(format!("a frame is larger than {MAX_ANSWER_BYTES} bytes")));
    }

    proptest::proptest! {
        /// Spec: P7, E11
        #[test]
        fn no_bytes_panic_and_no_split_matters(
            frames in vec((vec(ANY, 0..24), vec(ANY, 0..12), -6..6_i32), 1..4),
            kinds in vec(proptest::sample::select(vec!["event", "exception", "error"]), 1..4),
            size in 1..9_usize,
        ) {
            let mut body = Vec::new();
            for kind in kinds {
                let headers = [(":message-type", kind), (":event-type", "x")];
                body.extend(backstop_testkit::bedrock::frame(&headers, b"{\"a\": 1}"));
            }
            // Invalid headers and wrong lengths, under correct checksums.
            for (headers, payload, off) in frames {
                let length = headers.len() + payload.len() + PRELUDE_BYTES + 4;
                let length = u32::try_from(length).unwrap();
                let of_headers = u32::try_from(headers.len()).unwrap();
                let mut frame = length.saturating_add_signed(off.min(0)).to_be_bytes().to_vec();
                frame.extend(of_headers.saturating_add_signed(off).to_be_bytes());
                frame.extend(crc32fast::hash(&frame).to_be_bytes());
                frame.extend(headers);
                frame.extend(payload);
                frame.extend(crc32fast::hash(&frame).to_be_bytes());
                body.extend(frame);
            }
            proptest::prop_assert_eq!(read(&body, size), read(&body, body.len()));
        }

        /// Spec: E11
        #[test]
        fn noise_does_not_panic(body in vec(ANY, 0..64), size in 1..9_usize) {
            proptest::prop_assert_eq!(read(&body, size), read(&body, body.len().max(1)));
        }
    }
}
