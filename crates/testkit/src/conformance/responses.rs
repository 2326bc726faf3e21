//! The rows of OpenAI as the bytes of Responses.

use serde_json::{Value, json};

use super::{Body, Row, Sample, rows_of};
use crate::Reply;

/// Returns what OpenAI can answer to a request of Responses when it fails: with its status, and
/// each failure that a body alone can tell inside a 200, in every shape it comes in.
///
/// # Panics
///
/// When a row's condition is in no known form.
#[must_use]
pub fn responses_samples() -> Vec<Sample> {
    let rows = rows_of(&["openai"]);
    rows.iter().flat_map(|row| samples(row, &rows)).collect()
}

/// Returns the reasons for which an answer can be incomplete; they are no failures.
///
/// # Panics
///
/// When no row names them.
#[must_use]
pub fn responses_stop_reasons() -> Vec<String> {
    let rows = rows_of(&["openai"]);
    let row = rows.iter().find(|row| row.condition.starts_with(STOPS)).expect("a row names them");
    listed(&row.condition).collect()
}

const STOPS: &str = "responses: status=incomplete, incomplete_details.reason in (";

fn samples(row: &Row, rows: &[Row]) -> Vec<Sample> {
    match row.condition.as_str() {
        // What is said of the other protocol has its counterpart below.
        condition if condition.starts_with("chat SSE EOF") => {
            let label = "responses EOF before response.completed|failed|incomplete";
            vec![row.sample(label, Reply::events(HEAD), None)]
        }
        condition if condition.starts_with("chat SSE") => Vec::new(),
        condition if condition.starts_with(STOPS) => Vec::new(),
        condition if condition.starts_with("responses: response.failed") => {
            inside_a_stream(rows, "response.failed", |body, row| {
                body.code.as_ref()?;
                let error = &body.wire(row)["error"];
                let error = json!({ "code": error["code"], "message": error["message"] });
                let response = failed(&error);
                Some(json!({ "type": "response.failed", "response": response }))
            })
        }
        condition if condition.starts_with("responses: {\"type\":\"error\"") => {
            let flat = inside_a_stream(rows, "flat error", |body, row| {
                body.code.as_ref()?;
                let mut event = body.wire(row)["error"].clone();
                event["type"] = json!("error");
                Some(event)
            });
            let nested = inside_a_stream(rows, "nested error", |body, row| {
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

/// Puts each failure that a body alone can tell into a stream.
fn inside_a_stream(
    rows: &[Row],
    shape: &str,
    event: impl Fn(&Body, &Row) -> Option<Value>,
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
            Some(Sample { streamed: true, ..sample })
        })
        .collect()
}

/// Makes an answer that failed with this code: in one piece, and at the end of a stream.
fn answers_that_failed(row: &Row, code: &str) -> [Sample; 2] {
    let response = failed(&json!({ "code": code, "message": "what went wrong" }));
    // The row has two classes, and says of each code which it is by its name.
    let class = row.cls.split('/').nth(match code {
        "server_error" => 0,
        "rate_limit_exceeded" => 1,
        code if code.ends_with("_policy") || code.ends_with("_policy_violation") => 0,
        _ => 1,
    });
    let class = class.expect("the row has two classes");
    let row = Row { cls: class.to_owned(), ..row.clone() };
    let event = json!({ "type": "response.failed", "response": response });
    let stream = Reply::events(format!("{HEAD}{}", sse(&event)));
    [(Reply::json(200, &response), "whole", false), (stream, "streamed", true)].map(
        |(reply, shape, streamed)| {
            let sample = row.sample(&format!("{shape} error.code={code}"), reply, None);
            Sample { streamed, ..sample }
        },
    )
}

fn failed(error: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "status": "failed", "error": error,
        "incomplete_details": null, "output": [], "usage": null,
    })
}

/// Returns what stands between the brackets.
fn listed(condition: &str) -> impl Iterator<Item = String> {
    let list = condition.split_once(" in (").map_or("", |(_, list)| list).trim_end_matches(')');
    list.split(',').map(str::to_owned)
}

fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// A stream that has said something and is not over.
const HEAD: &str = concat!(
    "event: response.created\n",
    r#"data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}}"#,
    "\n\nevent: response.output_item.added\n",
    r#"data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
    "\n\nevent: response.output_text.delta\n",
    r#"data: {"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"grüß"}"#,
    "\n\n",
);
