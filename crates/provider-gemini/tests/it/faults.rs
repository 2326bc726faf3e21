use std::net::TcpListener;
use std::time::Duration;

use layer0::failure::{Effect, Failure, Retry};
use layer0::message::StopReason;
use provider::{ProviderError, ScriptedAnswer};
use provider_http::{ApiKey, Timeouts};
use serde_json::json;
use testkit::{Ending, Loopback, Reply};

use super::ask::{KEY, ask, hello, patient, provider, send, to};

const SHORT: Duration = Duration::from_millis(100);

fn reply(streamed: bool) -> Reply {
    let answer = ScriptedAnswer {
        text: Some("one two three four five six".into()),
        ..ScriptedAnswer::default()
    };
    testkit::gemini::reply(&answer, &json!({}), streamed)
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
        let hung = to("model-1", &server.url()).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out waiting for the first byte after 100ms", Effect::Unknown);

        let server = Loopback::replying([reply(streamed).ending(Ending::HangAt(20))]);
        let timeouts = Timeouts { idle: SHORT, ..patient() };
        let hung = to("model-1", &server.url()).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out waiting for the next chunk after 100ms", Effect::Unknown);

        // It accepts, and never answers the TLS handshake, which belongs to connecting.
        let server = Loopback::replying([]);
        let timeouts = Timeouts { connect: SHORT, ..patient() };
        let url = server.url().replace("http:", "https:");
        let hung = to("model-1", &url).timeouts(timeouts).build().unwrap();
        let error = send(&hung, &hello(), streamed).await.unwrap_err();
        check(&error, "timed out while connecting after 100ms", Effect::None);
    }
}

/// Spec: P3
#[tokio::test]
async fn no_part_of_an_answer_is_taken_for_the_whole() {
    for streamed in [false, true] {
        let length = reply(streamed).body.len();
        // The last byte of a stream ends the finish reason's event; of a body, it is its closing brace.
        let cuts = (0..length - 1).map(|at| reply(streamed).ending(Ending::CutAt(at)));
        let server = Loopback::replying(cuts);
        let provider = provider(&server.url());
        for at in 0..length - 1 {
            let error = send(&provider, &hello(), streamed).await.unwrap_err();
            let context = format!("cut at {at}, streamed: {streamed}: {error:?}");
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

/// Spec: P3
#[tokio::test]
async fn an_answer_without_a_finish_reason_is_not_over() {
    for streamed in [false, true] {
        let Reply { body, headers, .. } = reply(streamed);
        let body = String::from_utf8(body).unwrap().replace("\"STOP\"", "null");
        let reply = Reply::new(200, &headers[0].1, body);
        let error = ask(reply, streamed).await.unwrap_err();
        assert_eq!(error.to_string(), "stream ended before a finish reason");
    }
}

/// Some models say with every piece that they stop.
#[tokio::test]
async fn a_finish_reason_in_the_middle_of_a_stream_ends_nothing() {
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
async fn a_blocked_prompt_says_why_and_a_malformed_answer_is_one() {
    let feedback = json!({ "blockReason": "OTHER", "blockReasonMessage": "Not today." });
    let blocked = json!({ "promptFeedback": feedback });
    // The loop asks once more; a transport that asked again would hide that.
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
            Reply::json(200, &json!({ "candidates": 3 })),
            false,
            "not the expected JSON: invalid type: integer `3`, expected a sequence at line 1 column 15",
        ),
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid type: integer `1`, expected a sequence at line 1 column 2",
        ),
        (
            Reply::events("data: pardon?\n\n"),
            true,
            "not the expected JSON: expected value at line 1 column 1",
        ),
    ] {
        let error = ask(reply, streamed).await.unwrap_err();
        assert_eq!(error.to_string(), format!("invalid response: {expected}"));
        assert_eq!(error.retry(), Retry::Backoff);
    }
}

/// Spec: P4
#[tokio::test]
async fn a_failure_inside_a_200_that_names_no_number_is_what_its_status_says() {
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
    let json_error = json!({ "error": { "message": told, "status": told, "code": told } });
    let replies = [
        Reply::json(401, &json_error),
        Reply::json(499, &json_error),
        Reply::json(503, &json_error),
        Reply::new(500, "text/plain", told.as_str()),
        Reply::json(200, &json_error),
        Reply::json(200, &json!({ "candidates": told })),
        Reply::json(200, &json!({ "candidates": [{ "finishReason": told }] })),
        Reply::json(200, &json!({ "promptFeedback": { "blockReason": told } })),
        Reply::events(format!("data: {json_error}\n\n")),
        Reply::events(format!("data: {{\"candidates\": \"{KEY}\"}}\n\n")),
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
        assert!(!shown.contains(KEY), "{context}: {shown}");
        assert!(!error.to_string().contains('\n'), "{context}");
    }
    let server = Loopback::replying([]);
    let setup = to("model-1", &server.url()).api_key(ApiKey::new(KEY));
    assert!(!format!("{setup:?} {:?}", setup.clone().build().unwrap()).contains(KEY));
}
