use backstop_testkit::Reply;
use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::json;

use super::ask::ask;

/// A filter that cuts off an answer leaves no content at all.
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

/// Spec: P7. Gateways end each stream as one of OpenAI.
#[tokio::test]
async fn end_marker_of_another_protocol_is_an_end() {
    let parts = json!([{ "text": "hello" }]);
    let chunk =
        json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }] });
    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let response = ask(Reply::events(body), true).await.unwrap();
    assert_eq!((&*response.text, response.stop_reason), ("hello", StopReason::End));
    let cut = ask(Reply::events("data: [DONE]\n\n".to_owned()), true).await.unwrap_err();
    assert_eq!(cut.code(), "provider.stream_truncated");
}

fn chunks(chunks: &[serde_json::Value]) -> Reply {
    Reply::events(chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>())
}

/// Spec: P7
#[tokio::test]
async fn streamed_arguments_belong_to_the_call_before() {
    let call = |call: serde_json::Value, reason: Option<&str>| {
        let content = json!({ "parts": [{ "functionCall": call }] });
        json!({ "candidates": [{ "content": content, "finishReason": reason }] })
    };
    let begin = call(json!({ "name": "pay", "willContinue": true }), None);
    let to = json!([{ "jsonPath": "$.to", "stringValue": "Bo" }]);
    let more = json!([{ "jsonPath": "$.to", "stringValue": "nn" }, { "jsonPath": "$.n", "numberValue": 3.5 }]);
    let pieces = [
        call(json!({ "partialArgs": to, "willContinue": true }), None),
        call(json!({ "partialArgs": more, "willContinue": true }), None),
    ];
    let ends = [call(json!({}), None), call(json!({ "name": "now", "args": {} }), Some("STOP"))];
    let all: Vec<_> = [begin].into_iter().chain(pieces.clone()).chain(ends).collect();
    let answer = ask(chunks(&all), true).await.unwrap();
    let calls: Vec<_> =
        answer.tool_calls.iter().map(|it| format!("{}({})", it.name, it.arguments)).collect();
    assert_eq!(calls, [r#"pay({"n":3.5,"to":"Bonn"})"#, "now({})"]);

    for last in [json!({ "candidates": [{ "finishReason": "STOP" }] }), all[4].clone()] {
        let cut = [all[0].clone(), all[1].clone(), last];
        let error = ask(chunks(&cut), true).await.unwrap_err();
        assert_eq!(error.to_string(), "stream ended before the end of a call");
    }
    let error = ask(chunks(&pieces), true).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid response: a call without a name");
}

#[tokio::test]
async fn answer_of_images_alone_is_refused() {
    let image = json!({ "inlineData": { "mimeType": "image/png", "data": "aGk=" } });
    let file =
        json!({ "fileData": { "mimeType": "image/png", "fileUri": "https://files.example/1" } });
    for (parts, expected) in [
        (json!([image]), Err("provider.invalid_request")),
        (json!([file]), Err("provider.invalid_request")),
        (json!([{ "text": "here:" }, image]), Ok("here:")),
        (json!([{ "text": "here:" }, file]), Ok("here:")),
    ] {
        let body =
            json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }] });
        let answer = ask(Reply::json(200, &body), true).await;
        match (answer, expected) {
            (Ok(answer), Ok(text)) => assert_eq!(&*answer.text, text),
            (Err(error), Err(code)) => {
                assert_eq!((error.code(), error.is_retryable()), (code, false));
                assert!(error.to_string().contains("`image/png`"), "{error}");
            }
            (answer, _) => panic!("{answer:?}"),
        }
    }
}
