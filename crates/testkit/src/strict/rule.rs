use serde_json::{Value, json};

use super::dialect::Dialect;
use super::json::Node;
use super::said::Said;

/// A rule of an endpoint: a request that breaks it is refused.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rule {
    /// Stable name, such as `anthropic.results_first`.
    pub id: &'static str,
    /// Endpoints that have it. Its sample is in the file of the first one.
    pub dialects: &'static [Dialect],
    /// HTTP status of the refusal.
    pub status: u16,
    /// Class of the error in the endpoint's terms: its `type`, `status` or exception.
    pub kind: &'static str,
    /// The `code` of the error, for endpoints that have one.
    pub code: Option<&'static str>,
    /// Message of the endpoint; each `{}` is a placeholder for a part of the request.
    pub message: &'static str,
    /// Address of the document or report that is its source.
    pub source: &'static str,
    /// Returns the parts for the message if the request breaks the rule.
    pub(super) find: fn(Asked<'_>) -> Found,
}

/// Parts of a request that a message names.
pub(super) type Found = Option<Vec<String>>;

/// A request to judge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) dialect: Dialect,
    pub(super) body: Node<'a>,
    pub(super) said: &'a Said,
}

/// A refused request, with the endpoint's answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Body of the answer.
    pub body: Value,
    /// The `id` of the rule that the request breaks.
    pub rule: &'static str,
    /// Class of the error.
    pub(super) kind: &'static str,
}

impl Rule {
    /// Returns a rule that is answered with status 400, with the usual class and code of its endpoints.
    pub(super) const fn new(
        id: &'static str,
        dialects: &'static [Dialect],
        message: &'static str,
        source: &'static str,
        find: fn(Asked<'_>) -> Found,
    ) -> Self {
        let kind = match dialects {
            [Dialect::Gemini | Dialect::GeminiCompatible, ..] => "INVALID_ARGUMENT",
            [Dialect::Bedrock, ..] => "ValidationException",
            _ => "invalid_request_error",
        };
        Self { id, dialects, status: 400, kind, code: None, message, source, find }
    }

    pub(super) const fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) const fn kind(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }

    pub(super) const fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Returns the answer to a request that breaks this rule.
    pub(super) fn refusal(&self, dialect: Dialect, parts: &[String]) -> Refusal {
        let message = fill(self.message, parts);
        let (kind, code) = (self.kind, self.code);
        let body = match dialect {
            Dialect::Anthropic => json!({
                "type": "error",
                "error": { "type": kind, "message": message },
                "request_id": "req_strict",
            }),
            Dialect::Bedrock => json!({ "message": message }),
            Dialect::Gemini | Dialect::GeminiCompatible => json!({
                "error": { "code": self.status, "message": message, "status": kind },
            }),
            Dialect::Mistral => json!({
                "object": "error", "message": message, "type": kind, "param": null, "code": code,
            }),
            Dialect::Ollama => json!({ "error": message }),
            _ => json!({
                "error": { "message": message, "type": kind, "param": null, "code": code },
            }),
        };
        Refusal { status: self.status, body, rule: self.id, kind }
    }
}

fn fill(message: &str, parts: &[String]) -> String {
    let mut parts = parts.iter();
    let mut pieces = message.split("{}");
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        filled.push_str(parts.next().map_or("", String::as_str));
        filled.push_str(piece);
    }
    filled
}

/// Lists the parts that a message names.
macro_rules! found {
    ($($part:expr),* $(,)?) => { vec![$($part.to_string()),*] };
}
pub(super) use found;
