//! The rows of `wire/conformance.json` as bytes.
//!
//! Each row describes a body in a small language of conditions; [`samples`] makes such bodies, in the shape of their
//! provider. A row that it does not understand is a panic, not a gap. OpenAI has two protocols: [`responses_samples`]
//! makes the bodies of the second.

mod bedrock;
mod gemini;
mod responses;
mod row;
mod sample;

use std::time::Duration;

use serde_json::{Value, json};

use self::row::rows;
use crate::server::Reply;

pub use responses::{responses_samples, responses_stop_reasons, responses_stopped};
pub use row::{FailureRow, file};
pub use sample::{Sample, Verdict};

/// Returns the failures of these providers, at least one sample for each row. Those of OpenAI Responses are left out,
/// see [`responses_samples`], and so are rows without a status, which no server can send.
///
/// # Panics
///
/// If the file is not as expected, or a row's condition has an unknown form.
#[must_use]
pub fn samples(providers: &[&str]) -> Vec<Sample> {
    let samples = |row: &FailureRow| {
        let samples = row.samples();
        assert!(!samples.is_empty(), "{row:?}");
        samples
    };
    rows(providers).iter().flat_map(samples).collect()
}

impl FailureRow {
    /// Returns the replies of this row.
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

    /// Puts each failure that is identified by its body into a stream.
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

    /// Returns the hints to try: with and without one if the row knows both.
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
}

/// The beginning of a stream with some text.
const ANTHROPIC_HEAD: &str = concat!(
    "event: message_start\n",
    r#"data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}"#,
    "\n\nevent: content_block_start\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    "\n\nevent: content_block_delta\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"grüß"}}"#,
    "\n\n",
);

/// The beginning of a stream with some text.
const OPENAI_HEAD: &str = concat!(
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"grüß"},"finish_reason":null}]}"#,
    "\n\n",
);

/// The beginning of a stream with some text.
const OLLAMA_HEAD: &str = concat!(
    r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"grüß"},"done":false}"#,
    "\n",
);
