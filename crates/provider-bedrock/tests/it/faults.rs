use backstop_testkit::bedrock::{event, exception, frame, stream};
use backstop_testkit::{Ending, Reply};
use layer0::failure::{Failure, Retry};
use serde_json::json;

use super::ask::{ADAPTER, ask, billed};

fn text(index: u64, text: &str) -> Vec<u8> {
    event("contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": { "text": text } }))
}

/// Spec: P3
#[tokio::test]
async fn stream_without_a_stop_reason_is_truncated() {
    let stop = event("messageStop", &json!({ "stopReason": null }));
    let error = ask(stream([text(0, "x"), stop].concat()), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before a stop reason");
    let error = ask(stream([text(0, "x"), billed()].concat()), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before `messageStop`");
}

#[tokio::test]
async fn piece_of_another_block_is_invalid() {
    let input = |index: u64| {
        let delta = json!({ "toolUse": { "input": "{" } });
        event("contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": delta }))
    };
    let start = || {
        let start = json!({ "toolUse": { "toolUseId": "call-1", "name": "now" } });
        event("contentBlockStart", &json!({ "contentBlockIndex": 0, "start": start }))
    };
    let thought = || {
        let delta = json!({ "reasoningContent": { "text": "hm" } });
        event("contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": delta }))
    };
    for body in [
        [text(0, "x"), input(1)],
        [text(0, "x"), input(0)],
        [text(0, "x"), thought()],
        [text(0, "x"), start()],
        [start(), start()],
        [start(), text(0, "x")],
        [thought(), text(0, "x")],
    ] {
        let error = ask(stream(body.concat()), true).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid response: a piece of a block which is not of that type"
        );
    }
}

/// Spec: P1
#[tokio::test]
async fn cited_text_is_text() {
    let cited = |texts: &[&str]| {
        let content: Vec<_> = texts.iter().map(|text| json!({ "text": text })).collect();
        let citations = json!([{ "title": "t", "sourceContent": [{ "text": "not said" }] }]);
        json!({ "citationsContent": { "content": content, "citations": citations } })
    };
    let content = json!([{ "text": "It is " }, cited(&["blue", ", "]), cited(&["they say"])]);
    let body = json!({
        "output": { "message": { "role": "assistant", "content": content } },
        "stopReason": "end_turn",
    });
    for streamed in [false, true] {
        let answer = ask(Reply::json(200, &body), streamed).await.unwrap();
        assert_eq!(&*answer.text, "It is blue, they say");
    }
    let piece =
        |delta| event("contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": delta }));
    let body = [
        piece(json!({ "text": "It is blue" })),
        piece(json!({ "citation": { "title": "t", "sourceContent": [{ "text": "not said" }] } })),
        event("messageStop", &json!({ "stopReason": "end_turn" })),
        billed(),
    ];
    assert_eq!(&*ask(stream(body.concat()), true).await.unwrap().text, "It is blue");
}

#[tokio::test]
async fn what_may_come_to_be_is_passed_over() {
    let (piece, start) = (json!({ "ofTomorrow": { "a": 1 } }), json!({}));
    let body = [
        event("messageStart", &json!({ "role": "assistant", "p": "abcdef" })),
        event("contentBlockStart", &json!({ "contentBlockIndex": 0, "start": start })),
        text(0, "so "),
        event("contentBlockDelta", &json!({ "contentBlockIndex": 1, "delta": piece })),
        event("ofTomorrow", &json!(7)),
        frame(&[(":message-type", "of tomorrow")], b"\xff"),
        frame(&[], b""),
        text(0, "far"),
        event("messageStop", &json!({ "stopReason": "end_turn" })),
    ];
    assert_eq!(&*ask(stream(body.concat()), true).await.unwrap().text, "so far");
}

/// Spec: P4
#[tokio::test]
async fn a_garbled_frame_is_an_invalid_response() {
    let whole = ADAPTER.plain(true);
    for at in 0..whole.body.len() {
        let mut garbled = whole.body.clone();
        garbled[at] ^= 0x10;
        let error = (ADAPTER.read)(whole.content_type(), garbled).await;
        let error = error.expect_err(&format!("byte {at}"));
        assert_eq!(error.code(), "provider.invalid_response", "byte {at}: {error:?}");
        assert_eq!(error.retry(), Retry::Backoff);
    }
    let mut huge = frame(&[], b"");
    huge[..4].copy_from_slice(&u32::MAX.to_be_bytes());
    for body in [huge, b"HTTP/1.1 200 OK\r\n\r\n".to_vec()] {
        // The connection stays open: the bytes that the length asks for are not waited for.
        let length = body.len();
        let mut open = stream(body);
        open.body.push(0);
        let error = ask(open.ending(Ending::HangAt(length)), true).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid response: a frame whose head does not match its checksum"
        );
    }
}

/// Spec: P4
#[tokio::test]
async fn error_without_exception_type_is_classified() {
    let headers = [
        (":message-type", "error"),
        (":error-code", "InternalServerException"),
        (":error-message", "The server\nfailed."),
    ];
    let error = ask(stream(frame(&headers, b"")), true).await.unwrap_err();
    assert_eq!(error.to_string(), "provider failed with status 500: The server failed");
    let unknown = exception("ofTomorrowException", &json!("what went wrong"));
    let error = ask(stream(unknown), true).await.unwrap_err();
    assert_eq!((error.code(), error.retry()), ("provider.transient", Retry::Backoff));
}

/// Types that are not in the conformance rows.
#[tokio::test]
async fn conflict_and_expired_token_are_not_retried() {
    for (status, kind, code) in [
        (403, "ExpiredTokenException", "provider.auth_failed"),
        (403, "InvalidSignatureException", "provider.auth_failed"),
        (400, "ConflictException", "provider.invalid_request"),
        (429, "TooManyRequestsException", "provider.rate_limited"),
    ] {
        let reply = Reply::json(status, &json!({ "Message": "x" }));
        let error = ask(reply.header("x-amzn-errortype", kind), true).await.unwrap_err();
        assert_eq!(error.code(), code, "{kind}: {error:?}");
    }
}

/// Spec: P7
#[tokio::test]
async fn calls_of_the_server_are_none_of_ours() {
    let call = |id: &str, kind: Option<&str>| json!({ "toolUse": { "toolUseId": id, "name": "find", "type": kind } });
    let begin = |index: u64, start: serde_json::Value| {
        event("contentBlockStart", &json!({ "contentBlockIndex": index, "start": start }))
    };
    let input = |index: u64| {
        let delta = json!({ "toolUse": { "input": "{}" } });
        event("contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": delta }))
    };
    let body = [
        begin(0, call("a", Some("server_tool_use"))),
        input(0),
        begin(1, call("b", None)),
        input(1),
        event("messageStop", &json!({ "stopReason": "tool_use" })),
        billed(),
    ];
    let content = json!([call("a", Some("server_tool_use")), call("b", None)]);
    let whole =
        json!({ "output": { "message": { "content": content } }, "stopReason": "tool_use" });
    for reply in [stream(body.concat()), Reply::json(200, &whole)] {
        let answer = ask(reply, true).await.unwrap();
        let ids: Vec<&str> = answer.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["b"]);
    }
}
