use std::net::TcpListener;
use std::time::Duration;

use layer0::failure::{Effect, Failure, Retry};
use provider::{ProviderError, ScriptedAnswer};
use provider_http::{ApiKey, Timeouts};
use serde_json::json;
use testkit::bedrock::{event, exception, frame, stream};
use testkit::{Ending, Loopback, Reply};

use super::ask::{KEY, TOKEN, ask, hello, patient, provider, send, to};

const SHORT: Duration = Duration::from_millis(100);

fn reply(streamed: bool) -> Reply {
    let answer = ScriptedAnswer {
        text: Some("one two three four five six".into()),
        ..ScriptedAnswer::default()
    };
    testkit::bedrock::reply(&answer, &json!({}), streamed)
}

/// Spec: P8
#[tokio::test]
async fn a_hung_peer_is_a_timeout_of_its_phase() {
    #[track_caller]
    fn check(error: &ProviderError, expected: &str, effect: Effect) {
        assert_eq!(error.to_string(), expected);
        assert_eq!((error.code(), error.retry()), ("provider.timeout", Retry::Backoff));
        assert_eq!(error.effect(), effect);
    }
    for streamed in [false, true] {
        let server = Loopback::replying([reply(streamed).ending(Ending::HangBeforeHead)]);
        let timeouts = Timeouts { first_byte: SHORT, ..patient() };
        let hung = to(&server.url()).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out waiting for the first byte after 100ms", Effect::Unknown);

        let server = Loopback::replying([reply(streamed).ending(Ending::HangAt(20))]);
        let timeouts = Timeouts { idle: SHORT, ..patient() };
        let hung = to(&server.url()).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out waiting for the next chunk after 100ms", Effect::Unknown);

        // It accepts, and never answers the TLS handshake, which belongs to connecting.
        let server = Loopback::replying([]);
        let timeouts = Timeouts { connect: SHORT, ..patient() };
        let url = server.url().replace("http:", "https:");
        let hung = to(&url).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out while connecting after 100ms", Effect::None);
    }
}

/// Spec: P3
#[tokio::test]
async fn no_part_of_an_answer_is_taken_for_the_whole() {
    for streamed in [false, true] {
        let length = reply(streamed).body.len();
        // A stream is whole with its `messageStop`; what was billed follows.
        let whole = |at: usize| streamed && at == length - billed().len();
        let cuts = (0..length - 1).map(|at| reply(streamed).ending(Ending::CutAt(at)));
        let server = Loopback::replying(cuts);
        let provider = provider(&server.url());
        for at in 0..length - 1 {
            let answer = send(&provider, &hello(), streamed).await;
            let context = format!("cut at {at}, streamed: {streamed}: {answer:?}");
            if whole(at) {
                assert_eq!(&*answer.expect(&context).text, "one two three four five six");
                continue;
            }
            let error = answer.expect_err(&context);
            assert_eq!(error.code(), "provider.stream_truncated", "{context}");
            assert_eq!(error.retry(), Retry::Backoff, "{context}");
        }
        for at in [0, 1, length / 2, length - 1] {
            for ending in [Ending::CloseAt(at), Ending::ResetAt(at)] {
                let error = ask(reply(streamed).ending(ending), streamed).await.unwrap_err();
                let context = format!("{ending:?}, streamed: {streamed}: {error:?}");
                assert_eq!(error.code(), "provider.stream_interrupted", "{context}");
                assert_eq!(error.retry(), Retry::Backoff, "{context}");
            }
        }
    }
}

/// Returns the frame that ends what [`reply`] streams.
fn billed() -> Vec<u8> {
    let usage = json!({
        "inputTokens": 0, "outputTokens": 0, "totalTokens": 0,
        "cacheReadInputTokens": 0, "cacheWriteInputTokens": 0,
    });
    event("metadata", &json!({ "usage": usage, "metrics": { "latencyMs": 1 } }))
}

fn text(index: u64, text: &str) -> Vec<u8> {
    event("contentBlockDelta", &json!({ "contentBlockIndex": index, "delta": { "text": text } }))
}

/// Spec: P3
#[tokio::test]
async fn a_stream_without_a_stop_reason_is_not_over() {
    let stop = event("messageStop", &json!({ "stopReason": null }));
    let error = ask(stream([text(0, "x"), stop].concat()), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before a stop reason");
    let error = ask(stream([text(0, "x"), billed()].concat()), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before `messageStop`");
}

#[tokio::test]
async fn a_piece_of_a_block_that_is_another_is_an_invalid_response() {
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
    let whole = reply(true).body;
    let read = provider("http://127.0.0.1:9");
    for at in 0..whole.len() {
        let mut garbled = whole.clone();
        garbled[at] ^= 0x10;
        let error = read.read("application/vnd.amazon.eventstream", garbled).await;
        let error = error.expect_err(&format!("byte {at}"));
        assert_eq!(error.code(), "provider.invalid_response", "byte {at}: {error:?}");
        assert_eq!(error.retry(), Retry::Backoff);
    }
    let mut huge = frame(&[], b"");
    huge[..4].copy_from_slice(&u32::MAX.to_be_bytes());
    for body in [huge, b"HTTP/1.1 200 OK\r\n\r\n".to_vec()] {
        // The connection stays open: it is not waited for bytes that the length asks for.
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
async fn an_error_that_is_no_exception_is_classified_too() {
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

/// Types that the conformance rows do not name.
#[tokio::test]
async fn a_conflict_is_not_tried_again_and_an_expired_token_is_no_access() {
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

#[tokio::test]
async fn a_refused_connection_is_transient_and_names_the_place() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gone = provider(&format!("http://127.0.0.1:{port}"));
    let error = send(&gone, &hello(), true).await.unwrap_err();
    assert_eq!(error.to_string(), format!("no connection to `127.0.0.1:{port}`"));
    assert_eq!((error.code(), error.retry()), ("provider.transient", Retry::Backoff));
    assert!(std::error::Error::source(&error).is_some());
}

/// Spec: P4
#[tokio::test]
async fn what_is_no_answer_is_an_invalid_response() {
    for (reply, streamed, expected) in [
        (Reply::html(200), false, "an HTML page instead of JSON"),
        (Reply::html(200), true, "an HTML page instead of JSON"),
        (Reply::new(200, "application/json", " <!doctype>"), false, "an HTML page instead of JSON"),
        (
            Reply::json(200, &json!({})),
            false,
            "not the expected JSON: missing field `output` at line 1 column 2",
        ),
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid type: integer `1`, expected struct WireOutput at line 1 column 2",
        ),
        (
            stream(frame(
                &[(":message-type", "event"), (":event-type", "messageStop")],
                b"pardon?",
            )),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ] {
        let error = ask(reply, streamed).await.unwrap_err();
        assert_eq!(error.to_string(), format!("invalid response: {expected}"));
        assert_eq!(error.retry(), Retry::Backoff);
    }
}

/// A redirect would carry the key to where it was not meant to go.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Loopback::replying([]);
    let reply = Reply::new(307, "text/plain", "").header("location", elsewhere.url());
    let error = ask(reply, false).await.unwrap_err();
    assert_eq!(error.to_string(), "invalid request: status 307 without a message");
    assert_eq!(elsewhere.count(), 0);
}

/// Spec: R9
#[tokio::test]
async fn nothing_is_asked_twice() {
    let busy = || Reply::json(503, &json!({})).header("retry-after", "1");
    let server = Loopback::replying([busy(), busy(), busy()]);
    let error = send(&provider(&server.url()), &hello(), true).await.unwrap_err();
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(1)));
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn a_failure_whose_body_breaks_off_is_still_what_its_status_says() {
    let body = json!({ "error": { "message": "x" } });
    for ending in [Ending::CloseAt(5), Ending::ResetAt(5), Ending::CutAt(5)] {
        let error = ask(Reply::json(429, &body).ending(ending), true).await.unwrap_err();
        assert_eq!(error.code(), "provider.rate_limited");
    }
}

/// Spec: E10
#[tokio::test]
async fn no_error_shows_the_key() {
    let told = format!("Incorrect API key provided: {KEY}.\nAsk for another one.");
    let json_error = json!({ "error": { "message": told, "type": told, "code": told } });
    let replies = [
        Reply::json(401, &json_error),
        Reply::json(499, &json_error),
        Reply::json(503, &json_error),
        Reply::new(500, "text/plain", told.as_str()),
        Reply::json(200, &json_error),
        Reply::json(400, &json!({ "__type": told, "message": told })),
        Reply::json(400, &json!({ "message": format!("it was signed with {TOKEN}") })),
        Reply::json(200, &json!({ "output": told })),
        Reply::json(200, &json!({ "output": {}, "stopReason": told })),
        stream(exception(KEY, &json!({ "message": told }))),
        stream(frame(&[(":message-type", "error"), (":error-message", &told)], b"")),
        stream(event("messageStop", &json!({ "stopReason": told }))),
        stream(event("messageStop", &json!(told))),
        Reply::json(307, &json_error).header("location", format!("http://127.0.0.1/{KEY}")),
        Reply::html(200).ending(Ending::CloseAt(3)),
    ];
    for reply in replies {
        let context = String::from_utf8_lossy(&reply.body).into_owned();
        let error = ask(reply, true).await.unwrap_err();
        let mut shown = format!("{error:?} {}", layer0::failure::Chain(&error));
        for source in layer0::failure::sources(&error) {
            shown += &format!("{source:?} {source}");
        }
        assert!(!shown.contains(KEY) && !shown.contains(TOKEN), "{context}: {shown}");
        assert!(!error.to_string().contains('\n'), "{context}");
    }
    let server = Loopback::replying([]);
    let setup = to(&server.url());
    let shown = format!("{setup:?} {:?}", setup.clone().build().unwrap());
    assert!(!shown.contains(KEY) && !shown.contains(TOKEN), "{shown}");
    let setup = setup.api_key(ApiKey::new(KEY));
    assert!(!format!("{setup:?} {:?}", setup.clone().build().unwrap()).contains(KEY));
}
