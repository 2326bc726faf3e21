use backstop_testkit::{Reply, failures};
use layer0::message::StopReason;
use serde_json::json;

use super::ask::{ADAPTER, ask};

#[test]
fn incomplete_reasons_are_read() {
    let read: Vec<_> = ADAPTER.reasons.iter().map(|(name, _)| *name).collect();
    assert_eq!(failures::responses_stop_reasons(), read);
}

/// Spec: P9
#[tokio::test]
async fn an_unknown_status_keeps_the_text() {
    let output = json!([{ "type": "message", "content": [{ "text": "so far" }] }]);
    let why = json!({ "reason": "abducted" });
    for (body, word) in [
        (json!({ "output": output, "status": "abducted" }), "abducted"),
        (json!({ "output": output, "status": "incomplete" }), "incomplete"),
        (
            json!({ "output": output, "status": "incomplete", "incomplete_details": why }),
            "abducted",
        ),
    ] {
        let end = json!({ "type": "response.completed", "response": body });
        let replies =
            [(Reply::json(200, &body), false), (Reply::events(format!("data: {end}\n\n")), true)];
        for (reply, streamed) in replies {
            let answer = ask(reply, streamed).await.unwrap();
            assert_eq!(answer.stop_reason, StopReason::from_word(word), "{body}");
            assert_eq!(&*answer.text, "so far", "{body}");
        }
    }
}

/// Spec: P9
#[tokio::test]
async fn informational_status_is_no_answer() {
    for (body, expected) in [
        (json!({ "status": "in_progress" }), "stream ended before a final status"),
        (json!({ "status": "queued" }), "stream ended before a final status"),
        (json!({ "output": [] }), "stream ended before a final status"),
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
