//! The rows, and the bodies of their conditions.

use layer0::code;
use serde::Deserialize;
use serde_json::{Value, json};

const ROWS: &str = include_str!("../../wire/conformance.json");

/// One known failure of a provider.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct FailureRow {
    /// The provider.
    pub provider: String,
    /// The HTTP status.
    pub http: u16,
    /// The condition on body or headers.
    #[serde(rename = "match")]
    pub condition: String,
    /// Whether it arrives after a 200.
    pub in_stream: bool,
    /// The class.
    pub cls: String,
    /// `true`, `false` or `"as row"`.
    pub retry: Value,
    /// Source of the wait.
    pub delay: Option<String>,
    /// Further notes.
    #[serde(default)]
    pub note: String,
}

/// Returns the parsed file.
///
/// # Panics
///
/// If it is not an array.
#[must_use]
pub fn file() -> Vec<Value> {
    serde_json::from_str(ROWS).expect("conformance.json is an array")
}

pub(super) fn rows(providers: &[&str]) -> Vec<FailureRow> {
    let mut rows = rows_of(providers);
    rows.retain(|row| !row.condition.starts_with("responses"));
    rows
}

pub(super) fn rows_of(providers: &[&str]) -> Vec<FailureRow> {
    file()
        .into_iter()
        .filter(|row| providers.iter().any(|provider| row["provider"] == *provider))
        .filter(|row| !row["http"].is_null())
        .map(|row| serde_json::from_value(row).expect("a row has the fields of `FailureRow`"))
        .collect()
}

impl FailureRow {
    /// Parses the condition: alternatives of conjunctions.
    pub(super) fn bodies(&self) -> Vec<Body> {
        if self.condition == "*" {
            let other = Body { message: Some("something else".into()), ..Body::default() };
            return vec![Body::default(), other];
        }
        if let Some(azure) = self.condition.strip_prefix("azure: ") {
            assert!(azure.starts_with("error.code=content_filter"), "{azure}");
            let inner = Some("ResponsibleAIPolicyViolation".into());
            let code = Some("content_filter".into());
            return vec![Body { code, inner, ..Body::default() }];
        }
        self.condition.split(" | ").flat_map(conjunction).collect()
    }
}

/// The contents of a failure's body.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) kind: Option<String>,
    pub(super) code: Option<String>,
    pub(super) inner: Option<String>,
    pub(super) message: Option<String>,
}

impl Body {
    pub(super) fn label(&self) -> String {
        let named = [("type", &self.kind), ("code", &self.code), ("message", &self.message)];
        let parts: Vec<String> = named
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            .collect();
        if parts.is_empty() { "no body".into() } else { parts.join(" ") }
    }

    /// Returns it in the shape of the row's provider; `Null` if it is empty.
    pub(super) fn wire(&self, row: &FailureRow) -> Value {
        if self.kind.is_none() && self.code.is_none() && self.message.is_none() {
            return Value::Null;
        }
        let message = self.message.as_deref().unwrap_or("what went wrong");
        match row.provider.as_str() {
            "anthropic" => {
                let kind = self.kind.as_deref().unwrap_or(anthropic_type(row.http));
                let details = self.code.as_ref().map(|code| json!({ "error_code": code }));
                let error = json!({ "type": kind, "message": message, "details": details });
                json!({ "type": "error", "error": error, "request_id": "req_1" })
            }
            "llama.cpp" => json!({ "error": {
                "code": row.http, "type": self.kind, "message": message,
                "n_prompt_tokens": 9, "n_ctx": 8,
            }}),
            "mistral" => json!({
                "object": "error", "type": self.kind, "code": self.code, "message": message,
            }),
            "cohere" => json!({ "message": message }),
            _ => {
                let inner = self.inner.as_ref().map(|code| json!({ "code": code }));
                json!({ "error": {
                    "type": self.kind, "code": self.code, "message": message, "param": null,
                    "innererror": inner,
                }})
            }
        }
    }
}

/// Returns the type of a status, for rows that name only a finer code.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Parses `type=a & code in (b,c) & message~"d"|"e"`; every choice gives a body.
fn conjunction(text: &str) -> Vec<Body> {
    let mut bodies = vec![Body::default()];
    for term in text.split(" & ") {
        if term == "retry-after present" {
            continue;
        }
        let (name, values) = term_of(term);
        bodies = bodies
            .iter()
            .flat_map(|body| {
                values.iter().map(|value| {
                    let mut body = body.clone();
                    match name {
                        "type" => body.kind = Some(value.clone()),
                        "message" => body.message = Some(value.clone()),
                        "code" | "error_code" | "error.details.error_code" => {
                            body.code = Some(value.clone());
                        }
                        other => panic!("a condition on `{other}` has no bytes yet"),
                    }
                    body
                })
            })
            .collect();
    }
    bodies
}

pub(super) fn term_of(term: &str) -> (&str, Vec<String>) {
    if let Some((name, list)) = term.split_once(" in (") {
        let list = list.trim_end_matches(')');
        return (name, list.split(',').map(str::to_owned).collect());
    }
    if let Some((name, parts)) = term.split_once('~') {
        let parts = parts.split('|').map(|part| format!("It says: {}!", part.trim_matches('"')));
        return (name, parts.collect());
    }
    if let Some((name, start)) = term.split_once("^=") {
        return (name, optional_group(start.trim_matches('"')));
    }
    match term.split_once('=') {
        // `type=x, y, z` names further fields that the shape has in any case.
        Some((name, value)) => {
            let value = value.split(", ").next().unwrap_or(value);
            (name, vec![value.trim_matches('"').to_owned()])
        }
        None => panic!("condition `{term}` has no bytes yet"),
    }
}

/// Returns `a (b )?c` as `a c…` and `a b c…`.
fn optional_group(pattern: &str) -> Vec<String> {
    match pattern.split_once('(').and_then(|(head, rest)| Some((head, rest.split_once(")?")?))) {
        Some((head, (group, tail))) => {
            vec![format!("{head}{tail} and more"), format!("{head}{group}{tail} and more")]
        }
        None => vec![format!("{pattern} and more")],
    }
}

/// Maps the classes of the file to our codes.
pub(super) fn code_of(class: &str) -> &'static str {
    match class {
        "rate_limited" => code::PROVIDER_RATE_LIMITED,
        "quota" => code::PROVIDER_QUOTA_EXHAUSTED,
        "server" | "overloaded" | "unavailable" | "conflict" | "connection" => {
            code::PROVIDER_TRANSIENT
        }
        "overloaded if message~overloaded else unavailable" => code::PROVIDER_TRANSIENT,
        "timeout" => code::PROVIDER_TIMEOUT,
        "auth" | "permission" => code::PROVIDER_AUTH_FAILED,
        "invalid_request" | "too_large" => code::PROVIDER_INVALID_REQUEST,
        "context_overflow" => code::PROVIDER_CONTEXT_OVERFLOW,
        "content_filtered" => code::PROVIDER_CONTENT_BLOCKED,
        "stream_truncated" => code::PROVIDER_STREAM_TRUNCATED,
        "not_found" => code::PROVIDER_NOT_FOUND,
        "bad_gateway_body" | "malformed_model_output" => code::PROVIDER_INVALID_RESPONSE,
        "cancelled" => code::PROVIDER_OTHER,
        // Not a failure.
        "stop" => "",
        other => panic!("class `{other}` has no code yet"),
    }
}
