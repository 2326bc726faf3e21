use std::time::Duration;

use serde_json::{Value, json};

/// What a server does with one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case. Length and encoding are added.
    pub headers: Vec<(String, String)>,
    /// The whole body, also where [`Ending`] keeps some of it back.
    pub body: Vec<u8>,
    /// How long it waits before the head.
    pub delay: Duration,
    /// The size of the pieces the body is written in; in one piece where `None`.
    pub piece_bytes: Option<usize>,
    /// How long it waits before each piece.
    pub piece_delay: Duration,
    /// How it ends.
    pub ending: Ending,
}

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Whole.
    Whole,
    /// The body ends properly after this many bytes.
    CutAt(usize),
    /// The connection is closed after this many bytes of the body, before its announced end.
    CloseAt(usize),
    /// The connection is reset after this many bytes of the body.
    ResetAt(usize),
    /// Nothing more comes after this many bytes of the body, and the connection stays open.
    HangAt(usize),
    /// Nothing comes at all, and the connection stays open.
    HangBeforeHead,
}

impl Reply {
    /// Makes a reply with a body of this content type.
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

    /// Makes a JSON reply.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Makes a stream of events, in status 200.
    pub fn events(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    /// Makes a stream of JSON lines, in status 200.
    pub fn lines(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "application/x-ndjson", body)
    }

    /// Makes the page that a gateway shows to people.
    #[must_use]
    pub fn html(status: u16) -> Self {
        Self::new(status, "text/html; charset=utf-8", "<html><body>Bad gateway</body></html>")
    }

    /// Makes the answer of a server that cannot do what was asked, which says so.
    #[must_use]
    pub fn refusal(why: &str) -> Self {
        let error = json!({ "type": "invalid_request_error", "code": "testkit", "message": why });
        Self::json(400, &json!({ "type": "error", "error": error }))
    }

    /// Returns the content type; empty where there is none.
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

    /// Waits before the head.
    #[must_use]
    pub const fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Writes the body in pieces of this many bytes, each a chunk of its own, so that the client
    /// sees them one by one.
    #[must_use]
    pub const fn split(mut self, piece_bytes: usize) -> Self {
        self.piece_bytes = Some(piece_bytes);
        self
    }

    /// Waits before each piece of the body.
    #[must_use]
    pub const fn piece_delay(mut self, delay: Duration) -> Self {
        self.piece_delay = delay;
        self
    }

    /// Ends like this.
    #[must_use]
    pub const fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
}
