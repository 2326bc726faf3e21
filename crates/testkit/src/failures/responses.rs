//! The rows of OpenAI as the bytes of Responses.

use layer0::message::StopReason;
use serde_json::{Value, json};

use super::row::{Body, FailureRow, rows_of};
use super::sample::Sample;
use crate::server::Reply;

/// Returns the responses of OpenAI to a failing request of Responses: with its status, and each failure that is
/// identified by its body inside a 200, in every shape. Incomplete answers are included: they are not failures.
///
/// # Panics
///
/// If a row's condition has an unknown form.
#[must_use]
pub fn responses_samples() -> Vec<Sample> {
    let rows = rows_of(&["openai"]);
    rows.iter().flat_map(|row| samples(row, &rows)).collect()
}

/// Returns the reasons for which an answer can be incomplete; they are not failures.
///
/// # Panics
///
/// If no row names them.
#[must_use]
pub fn responses_stop_reasons() -> Vec<String> {
    let rows = rows_of(&["openai"]);
    let row = rows.iter().find(|row| row.condition.starts_with(STOPS)).expect("a row names them");
    listed(&row.condition).collect()
}

/// Returns answers with the text `so far` that are incomplete for this reason: in one piece, and at the end of a
/// stream. The flag is whether it is streamed.
#[must_use]
pub fn responses_stopped(reason: &str) -> Vec<(Reply, bool)> {
    let content = json!([{ "type": "output_text", "text": "so far" }]);
    let whole = json!({
        "status": "incomplete",
        "incomplete_details": { "reason": reason },
        "output": [{ "type": "message", "content": content }],
    });
    let end = json!({ "type": "response.incomplete", "response": whole });
    vec![(Reply::json(200, &whole), false), (Reply::events(format!("data: {end}\n\n")), true)]
}

const STOPS: &str = "responses: status=incomplete, incomplete_details.reason in (";

fn samples(row: &FailureRow, rows: &[FailureRow]) -> Vec<Sample> {
    match row.condition.as_str() {
        // Rows of the other protocol have their counterpart below.
        condition if condition.starts_with("chat SSE EOF") => {
            let says = "responses EOF before response.completed|failed|incomplete";
            let sample = row.sample(says, Reply::events(HEAD), None);
            vec![Sample { says: says.to_owned(), ..sample }]
        }
        condition if condition.starts_with("chat SSE") => Vec::new(),
        condition if condition.starts_with(STOPS) => {
            listed(condition).flat_map(|reason| incomplete(row, &reason)).collect()
        }
        condition if condition.starts_with("responses: response.failed") => {
            inside_a_stream(row, rows, "response.failed", |body, row| {
                body.code.as_ref()?;
                let error = &body.wire(row)["error"];
                let error = json!({ "code": error["code"], "message": error["message"] });
                let response = failed(&error);
                Some(json!({ "type": "response.failed", "response": response }))
            })
        }
        condition if condition.starts_with("responses: {\"type\":\"error\"") => {
            let flat = inside_a_stream(row, rows, "flat error", |body, row| {
                body.code.as_ref()?;
                let mut event = body.wire(row)["error"].clone();
                event["type"] = json!("error");
                Some(event)
            });
            let nested = inside_a_stream(row, rows, "nested error", |body, row| {
                Some(json!({ "type": "error", "error": body.wire(row)["error"] }))
            });
            flat.into_iter().chain(nested).collect()
        }
        condition if condition.starts_with("responses error.code in (") => listed(condition)
            .filter(|code| code != "...")
            .flat_map(|code| answers_that_failed(row, &code))
            .collect(),
        condition => {
            assert!(!condition.starts_with("responses"), "`{condition}` has no bytes yet");
            row.samples()
        }
    }
}

/// Puts each failure that is identified by its body into a stream.
fn inside_a_stream(
    inside: &FailureRow,
    rows: &[FailureRow],
    shape: &str,
    event: impl Fn(&Body, &FailureRow) -> Option<Value>,
) -> Vec<Sample> {
    rows.iter()
        .filter(|row| !row.in_stream && row.http != 200)
        .flat_map(|row| row.bodies().into_iter().map(move |body| (row, body)))
        .filter(|(_, body)| body.kind.is_some() || body.code.is_some())
        .filter_map(|(row, body)| {
            let event = event(&body, row)?;
            let stream = format!("{HEAD}{}", sse(&event));
            let label = format!("{shape}: {}", body.label());
            let sample = row.sample(&label, Reply::events(stream), None);
            Some(Sample { streamed: true, inside: Some(inside.condition.clone()), ..sample })
        })
        .collect()
}

/// Returns an answer that failed with this code: in one piece, and at the end of a stream.
fn answers_that_failed(row: &FailureRow, code: &str) -> [Sample; 2] {
    let response = failed(&json!({ "code": code, "message": "what went wrong" }));
    // The row has two classes; the code determines which one applies.
    let class = row.cls.split('/').nth(match code {
        "server_error" => 0,
        "rate_limit_exceeded" => 1,
        code if code.ends_with("_policy") || code.ends_with("_policy_violation") => 0,
        _ => 1,
    });
    let class = class.expect("the row has two classes");
    let event = json!({ "type": "response.failed", "response": response });
    let stream = Reply::events(format!("{HEAD}{}", sse(&event)));
    [(Reply::json(200, &response), "whole", false), (stream, "streamed", true)].map(
        |(reply, shape, streamed)| {
            let says = format!("responses error.code={code}");
            let row = FailureRow { cls: class.to_owned(), ..row.clone() };
            let sample = row.sample(&format!("{shape} {says}"), reply, None);
            Sample { says, streamed, ..sample }
        },
    )
}

fn incomplete(row: &FailureRow, reason: &str) -> Vec<Sample> {
    let stops = Some(match reason {
        "content_filter" => StopReason::ContentFilter,
        "steered" => StopReason::Pause,
        _ => StopReason::MaxTokens,
    });
    let says = format!("responses: incomplete_details.reason={reason}");
    let sample = |(reply, streamed)| {
        let sample = row.sample(&says, reply, None);
        Sample { says: says.clone(), stops: stops.clone(), streamed, ..sample }
    };
    responses_stopped(reason).into_iter().map(sample).collect()
}

fn failed(error: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "status": "failed", "error": error,
        "incomplete_details": null, "output": [], "usage": null,
    })
}

/// Returns the items between the brackets.
fn listed(condition: &str) -> impl Iterator<Item = String> {
    let list = condition.split_once(" in (").map_or("", |(_, list)| list).trim_end_matches(')');
    list.split(',').map(str::to_owned)
}

fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// The beginning of a stream with some text.
const HEAD: &str = concat!(
    "event: response.created\n",
    r#"data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}}"#,
    "\n\nevent: response.output_item.added\n",
    r#"data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
    "\n\nevent: response.output_text.delta\n",
    r#"data: {"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"grüß"}"#,
    "\n\n",
);
