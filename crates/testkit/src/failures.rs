//! The rows of `wire/conformance.json` as bytes.
//!
//! Each row says in a small language of conditions what a body is like; [`samples`] makes such
//! bodies, in the shape of their provider. A row it does not understand is a panic, not a gap.
//! OpenAI has two protocols: [`responses_samples`] makes the bodies of the second.

mod bedrock;
mod gemini;
mod responses;
mod sample;

use std::time::Duration;

use layer0::code;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::Reply;

pub use responses::{responses_samples, responses_stop_reasons, responses_stopped};
pub use sample::{Sample, Verdict};

const ROWS: &str = include_str!("../wire/conformance.json");

/// One way a provider can fail.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct Row {
    /// The provider.
    pub provider: String,
    /// The HTTP status.
    pub http: u16,
    /// The condition on body or headers.
    #[serde(rename = "match")]
    pub condition: String,
    /// Does it arrive after a 200?
    pub in_stream: bool,
    /// The class.
    pub cls: String,
    /// `true`, `false` or `"as row"`.
    pub retry: Value,
    /// What the wait depends on.
    pub delay: Option<String>,
    /// What else there is to know.
    #[serde(default)]
    pub note: String,
}

/// Returns what these providers can answer when they fail, at least one sample a row. Those of
/// OpenAI Responses are left out, for which there is [`responses_samples`], and rows without a status,
/// which no server can answer with.
///
/// # Panics
///
/// When the file is not what it should be, and when a row's condition is in no known form.
#[must_use]
pub fn samples(providers: &[&str]) -> Vec<Sample> {
    let samples = |row: &Row| {
        let samples = row.samples();
        assert!(!samples.is_empty(), "{row:?}");
        samples
    };
    rows(providers).iter().flat_map(samples).collect()
}

/// Returns the file as it is.
///
/// # Panics
///
/// When it is no array.
#[must_use]
pub fn file() -> Vec<Value> {
    serde_json::from_str(ROWS).expect("conformance.json is an array")
}

fn rows(providers: &[&str]) -> Vec<Row> {
    let mut rows = rows_of(providers);
    rows.retain(|row| !row.condition.starts_with("responses"));
    rows
}

fn rows_of(providers: &[&str]) -> Vec<Row> {
    file()
        .into_iter()
        .filter(|row| providers.iter().any(|provider| row["provider"] == *provider))
        .filter(|row| !row["http"].is_null())
        .map(|row| serde_json::from_value(row).expect("a row has the fields of `Row`"))
        .collect()
}

impl Row {
    /// Returns replies this row speaks of.
    fn samples(&self) -> Vec<Sample> {
        if self.provider == "gemini" {
            return gemini::samples(self);
        }
        match self.condition.as_str() {
            "EOF before message_stop" => {
                let body = ANTHROPIC_HEAD.to_owned();
                vec![self.sample("", Reply::events(body), None)]
            }
            condition if condition.starts_with("chat SSE EOF before [DONE]") => {
                vec![self.sample("", Reply::events(OPENAI_HEAD), None)]
            }
            r#"NDJSON line {"error":"..."} (no done field)"# => {
                let body = format!("{OLLAMA_HEAD}{}\n", json!({ "error": "what went wrong" }));
                vec![self.sample("", Reply::lines(body), None)]
            }
            r#"{"error":"text"}"# => {
                let error = json!({ "error": "what went wrong" });
                let signin = json!({ "error": "unauthorized", "signin_url": "https://…" });
                let bodies = if self.http == 401 { vec![error, signin] } else { vec![error] };
                let sample = |body: Value| {
                    self.sample(&body.to_string(), Reply::json(self.http, &body), None)
                };
                bodies.into_iter().map(sample).collect()
            }
            "content-type text/html" => vec![self.sample("", Reply::html(200), None)],
            _ if self.provider == "bedrock" => bedrock::samples(self),
            condition if self.in_stream && condition.contains("SSE") => self.inside_a_stream(),
            _ => self.refusals(),
        }
    }

    /// Puts each failure that a body alone can tell into a stream.
    fn inside_a_stream(&self) -> Vec<Sample> {
        rows(&[&self.provider])
            .iter()
            .filter(|row| !row.in_stream && row.http != 200)
            .flat_map(|row| row.bodies().into_iter().map(move |body| (row.clone(), body)))
            .filter(|(_, body)| body.kind.is_some() || body.code.is_some())
            .map(|(row, body)| {
                let wire = body.wire(&row);
                let stream = match self.provider.as_str() {
                    "anthropic" => format!("{ANTHROPIC_HEAD}event: error\ndata: {wire}\n\n"),
                    _ => format!("{OPENAI_HEAD}data: {wire}\n\n"),
                };
                let label = format!("in a stream: {}", body.label());
                let inside = Some(self.condition.clone());
                let sample = row.sample(&label, Reply::events(stream), None);
                Sample { streamed: true, inside, ..sample }
            })
            .collect()
    }

    fn refusals(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for body in self.bodies() {
            for hint in self.hints() {
                let wire = body.wire(self);
                let reply = if wire.is_null() {
                    Reply::new(self.http, "text/plain", "")
                } else {
                    Reply::json(self.http, &wire)
                };
                samples.push(self.sample(&body.label(), reply, hint));
            }
        }
        samples
    }

    /// Returns the hints to try: with and without where the row knows both.
    fn hints(&self) -> Vec<Option<(&'static str, &'static str, Duration)>> {
        const MS: (&str, &str, Duration) = ("retry-after-ms", "1500", Duration::from_millis(1_500));
        const SECONDS: (&str, &str, Duration) = ("retry-after", "7", Duration::from_secs(7));
        match self.delay.as_deref() {
            Some("retry-after") => vec![Some(SECONDS)],
            Some("retry-after-ms|retry-after") => vec![Some(MS), Some(SECONDS)],
            Some(delay) if delay.starts_with("retry-after") => vec![Some(SECONDS), None],
            Some(_) | None => vec![None],
        }
    }

    fn sample(
        &self,
        label: &str,
        reply: Reply,
        hint: Option<(&'static str, &'static str, Duration)>,
    ) -> Sample {
        let label = match label {
            "" => self.condition.as_str(),
            label => label,
        };
        let reply = match hint {
            Some((name, value, _)) => reply.header(name, value),
            None => reply,
        };
        let code = match self.cls.as_str() {
            // What is not tried again is not transient, whatever it is called.
            "conflict" if self.retry == false => code::PROVIDER_INVALID_REQUEST,
            class => code_of(class),
        };
        let header = hint.map(|(name, value, _)| format!("{name}: {value}"));
        let hinted = header.as_ref().map_or(String::new(), |header| format!(" [{header}]"));
        Sample {
            label: format!("{} {} {label}{hinted}", self.provider, self.http),
            row: self.clone(),
            says: self.condition.clone(),
            inside: None,
            reply,
            streamed: self.in_stream,
            stops: None,
            code,
            retryable: self.retry == true,
            hint: header,
            retry_after: hint.map(|(_, _, wait)| wait),
        }
    }

    /// Reads the condition: alternatives of conjunctions.
    fn bodies(&self) -> Vec<Body> {
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

/// What the body of a failure holds.
#[derive(Debug, Clone, Default)]
struct Body {
    kind: Option<String>,
    code: Option<String>,
    inner: Option<String>,
    message: Option<String>,
}

impl Body {
    fn label(&self) -> String {
        let named = [("type", &self.kind), ("code", &self.code), ("message", &self.message)];
        let parts: Vec<String> = named
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            .collect();
        if parts.is_empty() { "no body".into() } else { parts.join(" ") }
    }

    /// Returns it in the shape of the row's provider; `Null` where it is empty.
    fn wire(&self, row: &Row) -> Value {
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

/// Returns the type that comes with a status, for rows that name a finer code only.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Reads `type=a & code in (b,c) & message~"d"|"e"`; every choice gives a body.
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

fn term_of(term: &str) -> (&str, Vec<String>) {
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
        // `type=x, y, z` names further fields that the shape has anyway.
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
fn code_of(class: &str) -> &'static str {
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
        // No failure.
        "stop" => "",
        other => panic!("class `{other}` has no code yet"),
    }
}

/// A stream that has said something and is not over.
const ANTHROPIC_HEAD: &str = concat!(
    "event: message_start\n",
    r#"data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}"#,
    "\n\nevent: content_block_start\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    "\n\nevent: content_block_delta\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"grüß"}}"#,
    "\n\n",
);

/// A stream that has said something and is not over.
const OPENAI_HEAD: &str = concat!(
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"grüß"},"finish_reason":null}]}"#,
    "\n\n",
);

/// A stream that has said something and is not over.
const OLLAMA_HEAD: &str = concat!(
    r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"grüß"},"done":false}"#,
    "\n",
);
