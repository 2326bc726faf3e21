//! Checks of network and server faults during a call.

use std::error::Error;
use std::time::Duration;

use backstop_provider::ProviderError;
use backstop_provider_http::Timeouts;
use layer0::failure::{Effect, Failure, Retry};
use serde_json::json;

use super::Adapter;
use crate::server::patient;
use crate::server::{ClosedPort, Ending, Loopback, Reply, hello, send};

const SHORT: Duration = Duration::from_millis(100);

/// While connecting, while waiting for the first byte, while waiting for the next chunk.
///
/// Spec: P8
pub async fn a_hung_peer_is_a_timeout_of_its_phase(adapter: &Adapter) {
    for streamed in [false, true] {
        let plain = || adapter.plain(streamed);

        let server = Loopback::replying([plain().ending(Ending::HangBeforeHead)]);
        let timeouts = patient().first_byte(SHORT);
        let expected = "timed out waiting for the first byte after 100ms";
        times_out(adapter, &server.url(), timeouts, streamed, expected, Effect::Unknown).await;

        let server = Loopback::replying([plain().ending(Ending::HangAt(20))]);
        let timeouts = patient().idle(SHORT);
        let expected = "timed out waiting for the next chunk after 100ms";
        times_out(adapter, &server.url(), timeouts, streamed, expected, Effect::Unknown).await;

        // The server accepts, and never answers the TLS handshake, which is part of connecting.
        let server = Loopback::replying([]);
        let timeouts = patient().connect(SHORT);
        let url = server.url().replace("http:", "https:");
        let expected = "timed out while connecting after 100ms";
        times_out(adapter, &url, timeouts, streamed, expected, Effect::None).await;
    }
}

async fn times_out(
    adapter: &Adapter,
    url: &str,
    timeouts: Timeouts,
    streamed: bool,
    expected: &str,
    effect: Effect,
) {
    let hung = (adapter.wire.provider)(url, timeouts);
    let error = send(&*hung, &hello(), streamed).await.expect_err("a timeout");
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.code(), error.retry()), ("provider.timeout", Retry::Backoff));
    assert_eq!(error.effect(), effect, "{error:?}");
}

/// An answer that is cut anywhere, or whose connection is closed or reset, is not an answer.
///
/// Spec: P3
pub async fn no_part_of_an_answer_is_taken_for_the_whole(adapter: &Adapter) {
    for streamed in [false, true] {
        let plain = || adapter.plain(streamed);
        let length = plain().body.len();
        // An answer that is cut before this is incomplete. The last byte of a stream may be an end of line without
        // content; that of a body is its closing brace.
        let whole = if streamed { length - (adapter.after_the_end)().max(1) } else { length - 1 };
        let cuts = (0..length - 1).map(|at| plain().ending(Ending::CutAt(at)));
        let server = Loopback::replying(cuts);
        let provider = (adapter.wire.provider)(&server.url(), patient());
        for at in 0..length - 1 {
            let result = send(&*provider, &hello(), streamed).await;
            let context = format!("cut at {at}, streamed: {streamed}: {result:?}");
            match result {
                Ok(answer) if at >= whole => {
                    assert_eq!(&*answer.text, "one two three four five six", "{context}");
                }
                // Bytes after this may be cut too, if they have content.
                Err(error) if at != whole => check(&error, "provider.stream_truncated", &context),
                _ => panic!("{context}"),
            }
        }
        for at in [0, 1, length / 2, length - 1] {
            for ending in [Ending::CloseAt(at), Ending::ResetAt(at)] {
                let result = adapter.wire.ask(plain().ending(ending), streamed).await;
                let context = format!("{ending:?}, streamed: {streamed}: {result:?}");
                check(&result.expect_err(&context), "provider.stream_interrupted", &context);
            }
        }
    }

    fn check(error: &ProviderError, code: &str, context: &str) {
        assert_eq!((error.code(), error.retry()), (code, Retry::Backoff), "{context}");
    }
}

/// The port has no listener.
///
/// Spec: P2
pub async fn a_refused_connection_is_transient_and_names_the_place(adapter: &Adapter) {
    let closed = ClosedPort::bind();
    for streamed in [false, true] {
        let gone = (adapter.wire.provider)(&closed.url(), patient());
        let error = send(&*gone, &hello(), streamed).await.expect_err("nothing listens");
        assert_eq!(error.to_string(), format!("no connection to `{}`", closed.address()));
        assert_eq!((error.code(), error.retry()), ("provider.transient", Retry::Backoff));
        assert!(error.source().is_some(), "{error:?}");
    }
}

/// A redirect would send the key to another place.
pub async fn a_redirect_is_not_followed(adapter: &Adapter) {
    let elsewhere = Loopback::replying([]);
    let reply = Reply::new(307, "text/plain", "").header("location", elsewhere.url());
    let error = adapter.wire.ask(reply, false).await.expect_err("a redirect is no answer");
    assert_eq!(error.to_string(), "invalid request: status 307 without a message");
    assert_eq!(elsewhere.count(), 0);
}

/// Retries are the work of the layers around.
///
/// Spec: R9
pub async fn nothing_is_asked_twice(adapter: &Adapter) {
    let busy = || Reply::json(503, &json!({})).header("retry-after", "1");
    let server = Loopback::replying([busy(), busy(), busy()]);
    let provider = (adapter.wire.provider)(&server.url(), patient());
    let error = send(&*provider, &hello(), true).await.expect_err("a failure");
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(1)));
    assert_eq!(server.count(), 1);
}

/// The head of a failed response is enough to classify it.
pub async fn a_failure_whose_body_breaks_off_is_still_what_its_status_says(adapter: &Adapter) {
    let body = json!({ "error": { "message": "x" } });
    for ending in [Ending::CloseAt(5), Ending::ResetAt(5), Ending::CutAt(5)] {
        let reply = Reply::json(429, &body).ending(ending);
        let error = adapter.wire.ask(reply, true).await.expect_err("a failure");
        assert_eq!(error.code(), "provider.rate_limited", "{ending:?}: {error:?}");
    }
}

/// Each byte of an answer is replaced by bytes with and without a meaning in its format.
///
/// Spec: E11
pub async fn no_broken_byte_panics(adapter: &Adapter) {
    for streamed in [false, true] {
        let reply = adapter.plain(streamed);
        for at in 0..reply.body.len() {
            let mut body = reply.body.clone();
            body[at] = [0xff, b'"', b'0', b'{', b'\n'][at % 5];
            if let Err(error) = (adapter.read)(reply.content_type(), body).await {
                assert!(!error.to_string().contains('\n'), "at {at}: {error}");
            }
        }
    }
}
