use std::time::Duration;

use layer0::failure::{Effect, Failure, Retry};
use provider::{ProviderError, ScriptedAnswer};
use provider_http::{ApiKey, Timeouts};
use serde_json::json;
use testkit::{Ending, Loopback, Reply};

use super::ask::{ask, provider, to};
use crate::it::ask::{KEY, hello, patient, send};

const SHORT: Duration = Duration::from_millis(100);

fn reply(streamed: bool) -> Reply {
    let answer = ScriptedAnswer {
        text: Some("one two three four five six".into()),
        ..ScriptedAnswer::default()
    };
    testkit::responses::reply(&answer, &json!({ "stream": streamed }))
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
        // The last bytes of a stream end its last event; of a body, its closing brace.
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

/// Spec: P4
#[tokio::test]
async fn what_is_no_answer_is_an_invalid_response() {
    for (reply, streamed, expected) in [
        (Reply::html(200), false, "an HTML page instead of JSON"),
        (Reply::html(200), true, "an HTML page instead of JSON"),
        (Reply::new(200, "application/json", " <!doctype>"), false, "an HTML page instead of JSON"),
        (
            Reply::json(200, &json!([1])),
            true,
            "not the expected JSON: invalid type: integer `1`, expected a string at line 1 column 2",
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

/// Spec: R9
#[tokio::test]
async fn nothing_is_asked_twice() {
    let busy = || Reply::json(503, &json!({})).header("retry-after", "1");
    let server = Loopback::replying([busy(), busy(), busy()]);
    let error = send(&provider(&server.url()), &hello(), true).await.unwrap_err();
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(1)));
    assert_eq!(server.count(), 1);
}

/// Spec: E11
#[tokio::test]
async fn no_broken_byte_panics() {
    let provider = provider("http://127.0.0.1:9");
    for streamed in [false, true] {
        let body = reply(streamed).body;
        let content_type = if streamed { "text/event-stream" } else { "application/json" };
        for at in 0..body.len() {
            let mut body = body.clone();
            body[at] = [0xff, b'"', b'0', b'{', b'\n'][at % 5];
            if let Err(error) = provider.read(content_type, body).await {
                assert!(!error.to_string().contains('\n'), "at {at}: {error}");
            }
        }
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
        Reply::json(200, &json!({ "output": told })),
        Reply::json(200, &json!({ "status": told })),
        Reply::events(format!("data: {}\n\n", json!({ "type": "error", "message": told }))),
        Reply::events(format!(
            "data: {}\n\n",
            json!({
                "type": "response.failed", "response": json_error,
            })
        )),
        Reply::events(format!("data: {json_error}\n\n")),
        Reply::events(format!("data: {{\"item\": \"{KEY}\"}}\n\n")),
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
