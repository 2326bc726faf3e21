use std::time::Duration;

use serde_json::{Value, json};

/// The reply of a server to one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case. Length and encoding are added.
    pub headers: Vec<(String, String)>,
    /// The whole body, also if [`Ending`] withholds a part.
    pub body: Vec<u8>,
    /// Delay before the head.
    pub delay: Duration,
    /// Size of the chunks of the body; one piece if `None`.
    pub piece_bytes: Option<usize>,
    /// Delay before each chunk.
    pub piece_delay: Duration,
    /// End of the reply.
    pub ending: Ending,
}

/// The end of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The reply is complete.
    Whole,
    /// The body ends properly after this many bytes.
    CutAt(usize),
    /// The connection is closed after this many bytes of the body, before its announced end.
    CloseAt(usize),
    /// The connection is reset after this many bytes of the body.
    ResetAt(usize),
    /// Nothing more is sent after this many bytes of the body, and the connection stays open.
    HangAt(usize),
    /// Nothing is sent at all, and the connection stays open.
    HangBeforeHead,
}

impl Reply {
    /// Returns a reply with a body of this content type.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into(),
            delay: Duration::ZERO,
            piece_bytes: None,
            piece_delay: Duration::ZERO,
            ending: Ending::Whole,
        }
    }

    /// Returns a JSON reply.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Returns a stream of events, with status 200.
    pub fn events(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    /// Returns a stream of JSON lines, with status 200.
    pub fn lines(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "application/x-ndjson", body)
    }

    /// Returns the page of a gateway for people.
    #[must_use]
    pub fn html(status: u16) -> Self {
        Self::new(status, "text/html; charset=utf-8", "<html><body>Bad gateway</body></html>")
    }

    /// Returns the refusal of a server that does not support the request, with the reason.
    #[must_use]
    pub fn refusal(why: &str) -> Self {
        let error = json!({ "type": "invalid_request_error", "code": "testkit", "message": why });
        Self::json(400, &json!({ "type": "error", "error": error }))
    }

    /// Returns the content type; empty if there is none.
    #[must_use]
    pub fn content_type(&self) -> &str {
        let named = self.headers.iter().find(|(name, _)| name == "content-type");
        named.map_or("", |(_, value)| value.as_str())
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Sets the delay before the head.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Writes the body in chunks of this many bytes, so that the client receives them one by one.
    #[must_use]
    pub const fn split(mut self, piece_bytes: usize) -> Self {
        self.piece_bytes = Some(piece_bytes);
        self
    }

    /// Sets the delay before each chunk of the body.
    #[must_use]
    pub const fn piece_delay(mut self, delay: Duration) -> Self {
        self.piece_delay = delay;
        self
    }

    /// Sets the end of the reply.
    #[must_use]
    pub const fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
}
