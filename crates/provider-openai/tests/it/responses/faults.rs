use serde_json::json;
use testkit::{Reply, conformance};

use super::ask::{ADAPTER, ask};

#[test]
fn every_known_reason_of_an_incomplete_answer_is_read() {
    let read: Vec<_> = ADAPTER.reasons.iter().map(|(name, _)| *name).collect();
    assert_eq!(conformance::responses_stop_reasons(), read);
}

/// Spec: P9
#[tokio::test]
async fn a_status_that_is_not_final_is_no_answer() {
    for (body, expected) in [
        (json!({ "status": "in_progress" }), "stream ended before a final status"),
        (json!({ "status": "queued" }), "stream ended before a final status"),
        (json!({ "output": [] }), "stream ended before a final status"),
        (json!({ "status": "abducted" }), "invalid response: unknown status: `abducted`"),
        (
            json!({ "status": "incomplete", "incomplete_details": { "reason": "abducted" } }),
            "invalid response: unknown reason of an incomplete answer: `abducted`",
        ),
        (
            json!({ "status": "incomplete" }),
            "invalid response: unknown reason of an incomplete answer: `none`",
        ),
        (json!({ "status": "failed" }), "provider failed: an error without a message"),
        (json!({ "status": "cancelled" }), "provider failed in an unclassified way"),
    ] {
        let end = json!({ "type": "response.completed", "response": body });
        let is_event = body.get("status").is_some();
        let error = ask(Reply::json(200, &body), false).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        if is_event {
            let reply = Reply::events(format!("data: {end}\n\n"));
            assert_eq!(ask(reply, true).await.unwrap_err().to_string(), expected);
        }
        assert_eq!(error.is_retryable(), body["status"] != "cancelled", "{body}");
    }
}
