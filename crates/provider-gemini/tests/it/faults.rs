use backstop_testkit::Reply;
use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::json;

use super::ask::{ADAPTER, ask};

/// Spec: P3
#[tokio::test]
async fn answer_without_a_finish_reason_is_truncated() {
    for streamed in [false, true] {
        let whole = ADAPTER.plain(streamed);
        let body = String::from_utf8(whole.body.clone()).unwrap().replace("\"STOP\"", "null");
        let reply = Reply::new(200, whole.content_type(), body);
        let error = ask(reply, streamed).await.unwrap_err();
        assert_eq!(error.to_string(), "stream ended before a finish reason");
    }
}

/// Some models send a finish reason with every piece.
#[tokio::test]
async fn finish_reason_in_midstream_ends_nothing() {
    let piece = |text: &str, reason: &str| {
        let content = json!({ "parts": [{ "text": text }], "role": "model" });
        let candidate = json!({ "content": content, "finishReason": reason });
        format!("data: {}\n\n", json!({ "candidates": [candidate] }))
    };
    let stream = format!("{}{}", piece("half an ", "STOP"), piece("answer", "MAX_TOKENS"));
    let response = ask(Reply::events(stream), true).await.unwrap();
    assert_eq!((&*response.text, response.stop_reason), ("half an answer", StopReason::MaxTokens));

    let broken = format!("{}data: {}\n\n", piece("half an ", "STOP"), json!({ "error": {} }));
    let error = ask(Reply::events(broken), true).await.unwrap_err();
    assert_eq!(error.code(), "provider.transient");
}

/// Spec: P4, P9
#[tokio::test]
async fn blocked_prompts_and_malformed_answers_are_classified() {
    let feedback = json!({ "blockReason": "OTHER", "blockReasonMessage": "Not today." });
    let blocked = json!({ "promptFeedback": feedback });
    // The loop requests the answer once more; a transport that retried would hide that.
    let candidate =
        json!({ "finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed: add(" });
    let malformed = json!({ "candidates": [candidate] });
    for streamed in [false, true] {
        let error = ask(Reply::json(200, &blocked), streamed).await.unwrap_err();
        let expected = "content blocked: the prompt was blocked: `OTHER`: Not today";
        assert_eq!(error.to_string(), expected);
        let answer = ask(Reply::json(200, &malformed), streamed).await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::Malformed);
    }
}

/// Spec: P4
#[tokio::test]
async fn failure_inside_a_200_is_classified_by_status() {
    for (status, code) in [
        ("ABORTED", "provider.transient"),
        ("CANCELLED", "provider.other"),
        ("DEADLINE_EXCEEDED", "provider.timeout"),
        ("FAILED_PRECONDITION", "provider.invalid_request"),
        ("INTERNAL", "provider.transient"),
        ("INVALID_ARGUMENT", "provider.invalid_request"),
        ("NOT_FOUND", "provider.not_found"),
        ("OUT_OF_RANGE", "provider.invalid_request"),
        ("PERMISSION_DENIED", "provider.auth_failed"),
        ("RESOURCE_EXHAUSTED", "provider.rate_limited"),
        ("UNAUTHENTICATED", "provider.auth_failed"),
        ("UNAVAILABLE", "provider.transient"),
    ] {
        let body = json!({ "error": { "status": status, "message": "x" } });
        for streamed in [false, true] {
            let error = ask(Reply::json(200, &body), streamed).await.unwrap_err();
            assert_eq!(error.code(), code, "{status}: {error:?}");
        }
    }
}
