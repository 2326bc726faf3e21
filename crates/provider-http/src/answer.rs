use std::collections::VecDeque;

use backstop_provider::{ProviderError, TimeoutPhase};
use bytes::Bytes;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderValue};

use crate::decode::BYTE_ORDER_MARK;
use crate::endpoint::Endpoint;
use crate::error_body::looks_like_html;
use crate::limits::MAX_ANSWER_BYTES;

/// The most blank bytes read before the kind of a body is known, so that a server that sends
/// nothing else is not read forever.
const MAX_BLANK_BYTES: usize = 64 * 1024;

/// The number of bytes read before other tasks may run.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// The possible beginnings of a server-sent event.
const FIELDS: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b":"];

/// A response with a success status. Its body may still be a failure.
#[derive(Debug)]
pub(crate) struct HttpAnswer<'e> {
    endpoint: &'e Endpoint,
    response: Response,
    /// Chunks read ahead to determine the kind of the body.
    begun: VecDeque<Bytes>,
    /// The number of bytes returned since the last yield to other tasks.
    since_yield: usize,
}

impl<'e> HttpAnswer<'e> {
    pub(crate) const fn new(endpoint: &'e Endpoint, response: Response) -> Self {
        Self { endpoint, response, begun: VecDeque::new(), since_yield: 0 }
    }

    /// Makes a response from a body that was received before, with a success status and this
    /// content type. A content type that no header can carry is left out.
    pub(crate) fn from_recording(
        endpoint: &'e Endpoint,
        content_type: &str,
        body: Vec<u8>,
    ) -> Self {
        let mut response = http::Response::new(body);
        if let Ok(value) = HeaderValue::from_str(content_type) {
            response.headers_mut().insert(CONTENT_TYPE, value);
        }
        Self::new(endpoint, response.into())
    }

    /// Returns whether the body is a stream of events. JSON and HTML are not, whatever was requested.
    ///
    /// Gateways label streams as JSON and the other way round, so the first bytes decide where they
    /// are conclusive, and the content type elsewhere.
    ///
    /// # Errors
    ///
    /// As [`HttpAnswer::chunk`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing of the body.
    pub(crate) async fn is_event_stream(&mut self) -> Result<bool, ProviderError> {
        let is_labelled = !self.has_content_type("application/json") && !self.is_html();
        let mut head = Vec::new();
        let mut blank_bytes = 0;
        loop {
            match BodyKind::beginning_with(&head) {
                BodyKind::Whole => return Ok(false),
                BodyKind::Stream => return Ok(true),
                BodyKind::Other => return Ok(is_labelled),
                BodyKind::Undecided if blank_bytes > MAX_BLANK_BYTES => return Ok(is_labelled),
                BodyKind::Undecided => {}
            }
            // Blank bytes are examined once, whatever the number of chunks.
            if head.iter().all(u8::is_ascii_whitespace) {
                blank_bytes += head.len();
                head.clear();
            }
            let Some(chunk) = self.next_chunk().await? else { return Ok(is_labelled) };
            head.extend_from_slice(&chunk);
            self.begun.push_back(chunk);
        }
    }

    /// Returns whether the body is an HTML page: labelled as HTML, and without the first byte of JSON.
    ///
    /// # Errors
    ///
    /// As [`HttpAnswer::chunk`].
    pub(crate) async fn is_page(&mut self) -> Result<bool, ProviderError> {
        if !self.is_html() {
            return Ok(false);
        }
        let _ = self.is_event_stream().await?;
        let mut head = self.begun.iter().flat_map(|chunk| chunk.iter().copied());
        let begin =
            head.find(|byte| !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.contains(byte));
        Ok(!matches!(begin, Some(b'{' | b'[')))
    }

    fn is_html(&self) -> bool {
        self.has_content_type("text/html")
    }

    /// Reads the whole body, which must not be an HTML page.
    ///
    /// Frameworks label JSON as HTML if no content type is set, so the label counts only without
    /// the first byte of JSON.
    ///
    /// # Errors
    ///
    /// As [`HttpAnswer::chunk`]; [`ProviderError::InvalidResponse`] when it is HTML or too large.
    pub(crate) async fn whole(mut self) -> Result<Vec<u8>, ProviderError> {
        let is_html = self.is_html();
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                let why = format!("answer is larger than {MAX_ANSWER_BYTES} bytes");
                return Err(self.endpoint.invalid_response(&why));
            }
            body.extend_from_slice(&chunk);
        }
        if body.starts_with(BYTE_ORDER_MARK) {
            body.drain(..BYTE_ORDER_MARK.len());
        }
        let is_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        if (is_html && !is_json) || looks_like_html(&body) {
            return Err(self.endpoint.invalid_response("an HTML page instead of JSON"));
        }
        Ok(body)
    }

    /// Waits for the next chunk of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamInterrupted`] when the connection breaks, [`ProviderError::Timeout`]
    /// when nothing comes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no piece.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        match self.begun.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None => self.next_chunk().await,
        }
    }

    /// Waits for the next chunk of the body like [`HttpAnswer::chunk`], in pieces of limited size, and
    /// lets other tasks run between large ones: reading buffered data must not keep a timer from
    /// firing.
    ///
    /// # Errors
    ///
    /// As [`HttpAnswer::chunk`].
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, ProviderError> {
        if self.since_yield >= MAX_PIECE_BYTES {
            self.since_yield = 0;
            tokio::task::yield_now().await;
        }
        let Some(mut piece) = self.chunk().await? else { return Ok(None) };
        if piece.len() > MAX_PIECE_BYTES {
            self.begun.push_front(piece.split_off(MAX_PIECE_BYTES));
        }
        self.since_yield += piece.len();
        Ok(Some(piece))
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let idle = self.endpoint.timeouts().idle;
        self.endpoint
            .within(idle, TimeoutPhase::Idle, self.response.chunk())
            .await?
            .map_err(|error| ProviderError::stream_interrupted(error.without_url()))
    }

    fn has_content_type(&self, expected: &str) -> bool {
        let value = self.response.headers().get(CONTENT_TYPE);
        let kind = value.and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
        kind.is_some_and(|kind| kind.trim_ascii().eq_ignore_ascii_case(expected.as_bytes()))
    }
}

/// The kind of a body, by its first bytes.
#[derive(Debug, PartialEq)]
enum BodyKind {
    /// JSON or an HTML page.
    Whole,
    /// Server-sent events, or AWS frames, whose length begins with a zero byte.
    Stream,
    /// Anything else.
    Other,
    /// Not known without more bytes.
    Undecided,
}

impl BodyKind {
    fn beginning_with(head: &[u8]) -> Self {
        if head.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(head) {
            return Self::Undecided;
        }
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
        match head.first() {
            None => Self::Undecided,
            Some(b'{' | b'[' | b'<') => Self::Whole,
            Some(0) => Self::Stream,
            Some(_) if FIELDS.iter().any(|field| head.starts_with(field)) => Self::Stream,
            Some(_) if FIELDS.iter().any(|field| field.starts_with(head)) => Self::Undecided,
            Some(_) => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_a_stream_from_json() {
        #[track_caller]
        fn check(body: &[u8], expected: BodyKind) {
            let told = (0..=body.len()).map(|at| BodyKind::beginning_with(&body[..at]));
            let told = told.into_iter().find(|told| *told != BodyKind::Undecided);
            assert_eq!(told.unwrap_or(BodyKind::Undecided), expected, "{body:?}");
        }
        check(b"", BodyKind::Undecided);
        check(b" \r\n", BodyKind::Undecided);
        check(b" {", BodyKind::Whole);
        check(b"\xef\xbb\xbf[1]", BodyKind::Whole);
        check(b"<html>", BodyKind::Whole);
        check(b"data: x", BodyKind::Stream);
        check(b"\xef\xbb\xbfevent:x", BodyKind::Stream);
        check(b"\n\r: ping", BodyKind::Stream);
        check(b"\0\0\0\x10", BodyKind::Stream);
        check(b"pardon?", BodyKind::Other);
        check(b"dada", BodyKind::Other);
        check(b"\xef\xbb", BodyKind::Undecided);
    }
}
