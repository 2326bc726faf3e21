use backstop_testkit::Reply;
use layer0::failure::{Failure, Retry};
use serde_json::json;

use super::ask::ask;

/// Spec: P3
#[tokio::test]
async fn end_needs_done_and_a_reason() {
    let done = |done: bool, reason: serde_json::Value| json!({ "message": { "content": "so far" }, "done": done, "done_reason": reason });
    for (last, expected) in [
        (done(false, json!("stop")), "stream ended before `done: true`"),
        (done(true, json!(null)), "stream ended before a done reason"),
        (done(true, json!("")), "stream ended before a done reason"),
    ] {
        for (reply, streamed) in
            [(Reply::lines(format!("{last}\n")), true), (Reply::json(200, &last), false)]
        {
            let error = ask(reply, streamed).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.retry(), Retry::Backoff);
        }
    }
    let reason_before = format!("{}\n{}", done(false, json!("stop")), json!({ "done": true }));
    assert_eq!(&*ask(Reply::lines(reason_before), true).await.unwrap().text, "so far");
}

/// A conversation with nothing to answer has no answer.
#[tokio::test]
async fn loaded_model_is_not_asked_again() {
    for reason in ["load", "unload"] {
        let body = json!({ "message": { "content": "" }, "done": true, "done_reason": reason });
        for streamed in [false, true] {
            let error = ask(Reply::json(200, &body), streamed).await.unwrap_err();
            let said = format!(
                "invalid request: there was nothing to answer, the model did only `{reason}`"
            );
            assert_eq!((error.to_string(), error.retry()), (said, Retry::Never));
        }
    }
}

/// Failures that no row of the shared table has: an error is only text, so the text decides.
///
/// Spec: P4, P5, P6
#[tokio::test]
async fn error_text_tells_overflow_and_quota() {
    let overflow = "provider.context_overflow";
    for (status, text, code) in [
        (400, "the input length exceeds the context length", overflow),
        (500, "the input length exceeds the context length", overflow),
        (400, "prompt too long; exceeded max context length by 42 tokens (ref: 1)", overflow),
        (400, "the request exceeds the available context size, try increasing it", overflow),
        (200, "the input length exceeds the context length", overflow),
        (429, "you (ada) have reached your weekly usage limit", "provider.quota_exhausted"),
        (429, "you've reached your hourly usage limit", "provider.quota_exhausted"),
        (429, "too many concurrent requests", "provider.rate_limited"),
        (503, "server busy, please try again", "provider.transient"),
        (200, "an error was encountered while running the model", "provider.transient"),
    ] {
        let body = json!({ "error": text });
        for streamed in [false, true] {
            let error = ask(Reply::json(status, &body), streamed).await.unwrap_err();
            assert_eq!(error.code(), code, "{status} {text}");
        }
        if status == 200 {
            let error = ask(Reply::lines(format!("{body}\n")), true).await.unwrap_err();
            assert_eq!(error.code(), code, "{text}");
        }
    }
}

/// A model that writes about errors is not a failure.
#[tokio::test]
async fn word_error_in_an_answer_is_no_failure() {
    let call = json!({ "function": { "name": "f", "arguments": { "error": "e" } } });
    let message = json!({ "content": "\"error\": {", "tool_calls": [call] });
    let body = json!({ "error": null, "message": message, "done": true, "done_reason": "stop" });
    for (reply, streamed) in
        [(Reply::lines(body.to_string()), true), (Reply::json(200, &body), false)]
    {
        let response = ask(reply, streamed).await.unwrap();
        assert_eq!(response.tool_calls[0].arguments, json!({ "error": "e" }));
    }
}
