//! The rows of Gemini as bytes.

use std::time::Duration;

use layer0::message::StopReason;
use serde_json::{Value, json};

use super::row::{FailureRow, code_of};
use super::sample::Sample;
use crate::server::Reply;
use crate::wire::gemini::{candidate, data, failure};

/// Returns the replies of this row: with its status, and inside an answer of status 200.
pub(super) fn samples(row: &FailureRow) -> Vec<Sample> {
    if row.http == 200 {
        return unusable(row);
    }
    let mut samples = Vec::new();
    for body in bodies(row) {
        samples.push(body.sample(row, "", Reply::json(row.http, &body.wire)));
        samples.push(body.sample(row, " in a 200", Reply::json(200, &body.wire)));
        let said = data(&candidate(&[json!({ "text": "grüß" })], None));
        let stream = Reply::events(format!("{said}{}", data(&body.wire)));
        let in_stream = body.sample(row, " in a stream", stream);
        samples.push(Sample { streamed: true, ..in_stream });
    }
    samples
}

struct GeminiBody {
    label: String,
    wire: Value,
    /// The wait in the response.
    hint: Option<&'static str>,
    /// The resulting wait.
    retry_after: Option<Duration>,
}

impl GeminiBody {
    fn sample(&self, row: &FailureRow, place: &str, reply: Reply) -> Sample {
        let (retry_after, hint) = (self.retry_after, self.hint.map(str::to_owned));
        Sample { retry_after, hint, ..sample(row, &format!("{}{place}", self.label), reply) }
    }
}

fn sample(row: &FailureRow, label: &str, reply: Reply) -> Sample {
    Sample {
        label: format!("gemini {} {label}", row.http),
        row: row.clone(),
        says: row.condition.clone(),
        inside: None,
        reply,
        streamed: row.in_stream,
        // The loop asks again, and uses this code if that does not help.
        stops: (row.retry == "model retry").then_some(StopReason::Malformed),
        code: code_of(&row.cls),
        retryable: row.retry == true,
        hint: None,
        retry_after: None,
    }
}

/// Parses the condition: a status, then a condition on its message or its details.
fn bodies(row: &FailureRow) -> Vec<GeminiBody> {
    let (status, condition) = match row.condition.split_once(" & ") {
        Some((status, condition)) => (status, condition),
        None => (row.condition.as_str(), ""),
    };
    let status = status.trim_start_matches("status=");
    let status = status.strip_suffix(" (prepaid credits gone)").unwrap_or(status);
    assert!(status.chars().all(|c| c.is_ascii_uppercase() || c == '_'), "{row:?}");
    let body = |label: &str, message: &str, details: &[Value], retry_after| GeminiBody {
        label: format!("{status} {label}").trim_end().to_owned(),
        wire: failure(row.http, status, message, details),
        hint: details.contains(&wait("14s")).then_some("retryDelay: 14s"),
        retry_after,
    };
    let plain = "what went wrong";
    if let Some(parts) = condition.strip_prefix("message~") {
        let parts = parts.split('|').map(|part| part.trim_matches('"'));
        let says = |part| body(&format!("message={part}"), &format!("It says: {part}!"), &[], None);
        return parts.map(says).collect();
    }
    if let Some(reason) = condition.strip_prefix("details ErrorInfo.reason=") {
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "googleapis.com",
        });
        return vec![body(&format!("reason={reason}"), plain, &[info], None)];
    }
    if let Some(part) = condition.strip_prefix("QuotaFailure.violations[].quotaId~") {
        // The response also names a wait, after which the request would be refused again.
        let details = [quota(&format!("GenerateRequests{part}PerProjectPerModel")), wait("14s")];
        return vec![body(&format!("quotaId={part}"), plain, &details, None)];
    }
    assert_eq!(condition, "", "a condition that has no bytes yet");
    let mut bodies = vec![body("", plain, &[], None)];
    if row.delay.as_deref().is_some_and(|delay| delay.contains("RetryInfo.retryDelay")) {
        let details = [quota("GenerateRequestsPerMinutePerProjectPerModel"), wait("14s")];
        let hint = Some(Duration::from_secs(14));
        bodies.push(body("[retryDelay: 14s]", plain, &details, hint));
    }
    if row.cls.contains("if message~overloaded") {
        let message = "The model is overloaded. Please try again later.";
        bodies.push(body("message=overloaded", message, &[], None));
    }
    bodies
}

fn quota(id: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{ "quotaId": id, "quotaValue": "10" }],
    })
}

fn wait(delay: &str) -> Value {
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay })
}

/// Returns replies with status 200 that are not usable answers.
fn unusable(row: &FailureRow) -> Vec<Sample> {
    if row.condition == "promptFeedback.blockReason" {
        let reasons = row.note.split_whitespace();
        return reasons
            .flat_map(|reason| {
                let wire = json!({ "promptFeedback": { "blockReason": reason } });
                both(row, &format!("blockReason={reason}"), &wire)
            })
            .collect();
    }
    let list = row.condition.strip_prefix("finishReason in (").and_then(|it| it.strip_suffix(')'));
    let list = list.unwrap_or_else(|| panic!("condition `{}` has no bytes yet", row.condition));
    let reasons = list.split(',');
    reasons
        .flat_map(|reason| {
            both(row, &format!("finishReason={reason}"), &candidate(&[], Some(reason)))
        })
        .collect()
}

/// Returns an answer as a whole and as a stream.
fn both(row: &FailureRow, label: &str, wire: &Value) -> [Sample; 2] {
    let streamed = sample(row, &format!("{label} in a stream"), Reply::events(data(wire)));
    [sample(row, label, Reply::json(200, wire)), Sample { streamed: true, ..streamed }]
}
