use backstop_testkit::Reply;
use layer0::message::StopReason;
use serde_json::json;

use super::ask::ask;

/// A filter that cuts an answer leaves no content at all.
#[tokio::test]
async fn candidate_without_content_has_no_text() {
    let body = json!({ "candidates": [{ "finishReason": "SAFETY", "index": 0 }] });
    for streamed in [false, true] {
        let response = ask(Reply::json(200, &body), streamed).await.unwrap();
        assert_eq!((&*response.text, response.stop_reason), ("", StopReason::ContentFilter));
    }
}

/// Most models give their calls no id; the machine does.
#[tokio::test]
async fn calls_without_an_id_keep_their_order() {
    let parts = json!([
        { "functionCall": { "name": "a", "args": { "x": 1 } }, "thoughtSignature": "c2ln" },
        { "functionCall": { "name": "a" } },
        { "functionCall": { "name": "b", "args": null } },
    ]);
    let candidate = json!({ "content": { "parts": parts }, "finishReason": "STOP" });
    let body = json!({ "candidates": [candidate] });
    let response = ask(Reply::json(200, &body), true).await.unwrap();
    let calls: Vec<_> =
        response.tool_calls.iter().map(|call| (call.id.as_str(), &*call.name)).collect();
    assert_eq!(calls, [("", "a"), ("", "a"), ("", "b")]);
    assert_eq!(response.tool_calls[0].arguments, json!({ "x": 1 }));
    assert_eq!(response.tool_calls[2].arguments, json!({}));
    assert_eq!(response.stop_reason, StopReason::ToolUse);
}
