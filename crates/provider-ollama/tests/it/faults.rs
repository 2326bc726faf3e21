use std::net::TcpListener;
use std::time::Duration;

use layer0::failure::{Effect, Failure, Retry};
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
    testkit::ollama::reply(&answer, &json!({ "stream": streamed }))
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
        // Without the newline after its closing brace, a stream is whole.
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
async fn done_without_a_reason_is_no_end_and_neither_is_a_reason_without_done() {
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

/// A conversation that has nothing to answer stays one.
#[tokio::test]
async fn a_model_that_was_only_loaded_is_not_asked_again() {
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

/// What no row of the shared table has: an error is a text, so the text decides.
///
/// Spec: P4, P5, P6
#[tokio::test]
async fn the_text_of_an_error_tells_overflow_and_quota() {
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

/// A model that writes about errors is not one.
#[tokio::test]
async fn the_word_error_in_an_answer_is_no_failure() {
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

/// The row that no server can answer with.
///
/// Spec: P2
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
        (Reply::json(200, &json!({})), false, "an answer without a message"),
        (
            Reply::json(200, &json!("?")),
            true,
            "not the expected JSON: invalid type: string \"?\", expected struct Chunk at line 1 column 3",
        ),
        (
            Reply::lines("pardon?\n"),
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
        Reply::json(401, &json!({ "error": told })),
        Reply::json(200, &json!({ "message": told })),
        Reply::json(200, &json!({ "done": true, "done_reason": told })),
        Reply::lines(format!("{json_error}\n")),
        Reply::lines(format!("{}\n", json!({ "error": told }))),
        Reply::lines(format!("{{\"message\": \"{KEY}\"}}\n")),
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
    let setup = to(&server.url()).api_key(ApiKey::new(KEY));
    assert!(!format!("{setup:?} {:?}", setup.clone().build().unwrap()).contains(KEY));
}
