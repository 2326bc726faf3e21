//! The rows of Bedrock as bytes: a type in a header, in the body or in a frame of a stream.

use std::time::Duration;

use serde_json::json;

use super::row::{FailureRow, term_of};
use super::sample::Sample;
use crate::server::Reply;
use crate::wire::bedrock::{event, exception, stream};

const HINT: (&str, &str, Duration) = ("x-amz-retry-after", "1500", Duration::from_millis(1_500));

pub(super) fn samples(row: &FailureRow) -> Vec<Sample> {
    if let Some(kind) = row.condition.strip_prefix("ConverseStream event :exception-type=") {
        return vec![row.sample("", in_a_stream(kind), None)];
    }
    let (kind, messages) = match row.condition.split_once(" & ") {
        Some((kind, message)) => (kind, term_of(message).1),
        None => (row.condition.as_str(), vec!["what went wrong".to_owned()]),
    };
    let kind = kind
        .strip_prefix("x-amzn-ErrorType/__type=")
        .unwrap_or_else(|| panic!("condition `{}` has no bytes yet", row.condition));
    let hints = match row.delay.as_deref() {
        Some(delay) if delay.starts_with(HINT.0) => vec![Some(HINT), None],
        Some(_) | None => vec![None],
    };
    let mut samples = Vec::new();
    for message in messages {
        let told = Reply::json(row.http, &json!({ "message": message }))
            .header("x-amzn-errortype", format!("{kind}:http://internal.amazon.com/coral/"));
        let body =
            json!({ "__type": format!("com.amazon.coral.service#{kind}"), "message": message });
        let untold = Reply::json(row.http, &body);
        for (place, reply) in [("x-amzn-errortype", told), ("__type", untold)] {
            for hint in &hints {
                let label = format!("{place}={kind} message={message}");
                samples.push(row.sample(&label, reply.clone(), *hint));
            }
        }
    }
    samples
}

/// Returns a stream that fails after some text.
fn in_a_stream(kind: &str) -> Reply {
    let mut body = event("messageStart", &json!({ "role": "assistant" }));
    let delta = json!({ "contentBlockIndex": 0, "delta": { "text": "grüß" } });
    body.extend(event("contentBlockDelta", &delta));
    body.extend(exception(kind, &json!({ "message": "what went wrong" })));
    stream(body)
}
