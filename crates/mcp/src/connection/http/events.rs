//! The stream of events in which a server answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use layer0::text::replace_lone_surrogates;
use reqwest::Response;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_client::SseError;
use serde::Deserialize;
use serde_json::value::RawValue;
use sse_stream::{Sse, SseStream};

use crate::MAX_MESSAGE_BYTES;
use crate::connection::wire::{Wire, is_cut_message, only_answer};
use crate::fault::McpFault;

/// The reason of a stream that ends within an answer.
const CUT: &str = "cut the stream of its answer";

/// Reads the events of a response. An unreadable event is recorded as the request's fault, and ends the stream.
pub(super) fn read(
    response: Response,
    id: Option<RequestId>,
    wire: Arc<Wire>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let noted = Noted { id, wire, is_elsewhere: Arc::default(), is_over: Arc::default() };
    let is_elsewhere = Arc::clone(&noted.is_elsewhere);
    let is_over = Arc::clone(&noted.is_over);
    let bytes = replace_invalid_utf8(limit_event_size(response.bytes_stream(), noted.clone()));
    // The last event need not have an end.
    let last = stream::once(async move {
        is_over.store(true, Ordering::Relaxed);
        Ok(Bytes::from_static(b"\n\n"))
    });
    let events = SseStream::from_bytes_stream(bytes.chain(last).boxed());
    let read = events.scan(noted, |noted, event| {
        std::future::ready(match event {
            Ok(event) => noted.read(event).map(Ok),
            Err(_) => {
                noted.fail(McpFault::Lost(CUT.to_owned()));
                None
            }
        })
    });
    // A stream that answers another request gives no answer, as with any other transport: the request keeps waiting.
    let end = stream::once(async move {
        if is_elsewhere.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        None
    });
    read.chain(end.filter_map(std::future::ready)).boxed()
}

/// The request that a stream answers.
#[derive(Clone)]
struct Noted {
    id: Option<RequestId>,
    wire: Arc<Wire>,
    /// Whether the stream answered another request.
    is_elsewhere: Arc<AtomicBool>,
    /// Whether all bytes were received.
    is_over: Arc<AtomicBool>,
}

impl Noted {
    /// Reads the message of an event as the server wrote it.
    fn read(&self, mut event: Sse) -> Option<Sse> {
        let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
        let is_error = event.event.as_deref() == Some("error");
        let is_read = |data: &mut String| (is_message || is_error) && !data.trim().is_empty();
        let Some(data) = event.data.take_if(is_read) else { return Some(event) };
        let data = replace_lone_surrogates(&data);
        let message = serde_json::from_str::<&RawValue>(&data);
        let message = message.map(|message| only_answer(message, self.id.as_ref()));
        let message = match message {
            Ok(message) if is_message || has_error(message) => message,
            // The reason is kept in case that no answer follows.
            _ if is_error => {
                let why = self.wire.excerpt(&data);
                self.fail(McpFault::Lost(format!("reported an error in its stream: {why}")));
                return Some(event);
            }
            _ if is_cut_message(&data) => {
                self.fail(match self.is_over.load(Ordering::Relaxed) {
                    true => McpFault::Lost(CUT.to_owned()),
                    false => self.wire.not_json(&data),
                });
                return None;
            }
            _ => {
                self.fail(self.wire.not_json(&data));
                return Some(event);
            }
        };
        event.event = None;
        // An event that answers nothing keeps its place, without data.
        let read =
            self.wire.unread(message, self.id.as_ref()).map(|message| message.get().to_owned());
        event.data = read;
        if event.data.is_none() {
            self.is_elsewhere.store(true, Ordering::Relaxed);
        }
        Some(event)
    }

    /// Records why there is no answer, if none follows.
    fn fail(&self, fault: McpFault) {
        if let Some(id) = &self.id {
            self.wire.fail(id, fault);
        }
    }
}

/// Returns whether a message is an error of the protocol.
fn has_error(message: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Head {
        jsonrpc: String,
        error: Box<RawValue>,
    }
    serde_json::from_str::<Head>(message.get())
        .is_ok_and(|head| head.jsonrpc == "2.0" && head.error.get().starts_with('{'))
}

/// Ends a stream at an event that is too large.
fn limit_event_size<E: Send + Sync + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    noted: Noted,
) -> impl Stream<Item = Result<Bytes, E>> + Send + 'static {
    let mut event = EventSize::default();
    pieces.take_while(move |piece| {
        let is_within = piece.as_ref().map_or(true, |piece| event.take(piece));
        if !is_within {
            let why = format!("the answer is larger than {MAX_MESSAGE_BYTES} bytes");
            noted.fail(McpFault::Unreadable(why));
        }
        std::future::ready(is_within)
    })
}

/// Replaces invalid UTF-8 by U+FFFD. A character that a piece cuts off is completed by the next one.
fn replace_invalid_utf8<E: Send + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, E>> + Send + 'static {
    let mut open = Vec::new();
    pieces.map(move |piece| {
        open.extend_from_slice(&piece?);
        let (mut text, mut rest) = (String::new(), 0);
        let end = open.len();
        let mut at = 0;
        for chunk in open.utf8_chunks() {
            text.push_str(chunk.valid());
            at += chunk.valid().len() + chunk.invalid().len();
            if at == end && is_cut_character(chunk.invalid()) {
                rest = chunk.invalid().len();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        open.drain(..end - rest);
        Ok(text.into())
    })
}

/// Returns whether bytes are the beginning of a character.
fn is_cut_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Counts the bytes since the last empty line.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line: usize,
}

impl EventSize {
    /// Counts a piece, and returns whether the event is within its limits.
    fn take(&mut self, piece: &[u8]) -> bool {
        piece.iter().all(|byte| {
            self.bytes += 1;
            match byte {
                b'\n' if self.line == 0 => (self.bytes, self.line) = (0, 0),
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => self.line += 1,
            }
            // The names of fields are no part of the message.
            self.bytes <= MAX_MESSAGE_BYTES + 1024
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q2
    #[test]
    fn events_are_bounded_and_streams_are_not() {
        let mut event = EventSize::default();
        let piece = [b"data: ".as_slice(), &[b'x'; 1024 * 1024], b"\r\n\r\n"].concat();
        assert!((0..40).all(|_| event.take(&piece)));
        let line = vec![b'x'; 1024 * 1024];
        assert!((0..16).all(|_| event.take(&line)));
        assert!(!event.take(&line));
    }
}
