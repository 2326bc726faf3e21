//! Checks of faults of the network and the server during a call, and of dropped calls.

use std::time::Duration;

use backstop_provider::ScriptedAnswer;
use layer0::code;
use layer0::failure::{Failure, Retry};
use serde_json::json;

use super::exchange::{SHORT, answer, ask, ask_at, calls};
use crate::server::patient;
use crate::server::{ClosedPort, Ending, Loopback, Reply, hello, send};
use crate::wire::{Cannot, Wire};

/// A proxy, a gateway or a firewall answers in a format of its own.
///
/// Spec: P2
pub(super) async fn foreign_failures_are_what_their_status_says(wire: Wire) {
    let statuses = [
        (401, code::PROVIDER_AUTH_FAILED),
        (403, code::PROVIDER_AUTH_FAILED),
        (404, code::PROVIDER_NOT_FOUND),
        (429, code::PROVIDER_RATE_LIMITED),
        (502, code::PROVIDER_TRANSIENT),
    ];
    let bodies = [
        ("text/plain", ""),
        ("text/plain", "no"),
        ("text/html", "<html><body>no</body></html>"),
        ("application/json", "[]"),
        ("application/json", "null"),
        ("application/json", r#"{"detail": "no"}"#),
        ("application/json", r#"{"error": "no"}"#),
        ("application/json", r#"{"error": {"reason": ["no"]}}"#),
        ("application/json", r#"{"error": "#),
    ];
    for (status, code) in statuses {
        for (content_type, body) in bodies {
            for streamed in wire.stream_modes() {
                let at = format!("status {status}, `{body}` (streamed: {streamed})");
                let (result, _) =
                    ask(&wire, Reply::new(status, content_type, body), streamed).await;
                let error = result.err().unwrap_or_else(|| panic!("no failure: {at}"));
                assert_eq!(error.code(), code, "{at}: {error:?}");
            }
        }
    }
}

/// Length of a body that no client may read whole. It is larger than the largest answer and the buffers of both sockets:
/// 32 MiB, and on Linux up to 32 and 4 MiB.
const ENDLESS_BYTES: usize = 96 * 1024 * 1024;

/// An endless body is not read to its end.
pub(super) async fn bodies_are_bounded(wire: Wire) {
    for (status, byte) in [(200, b' '), (200, b'1'), (500, b'1')] {
        let endless = Reply::new(status, "application/json", vec![byte; ENDLESS_BYTES]);
        let server = Loopback::replying([endless.ending(Ending::HangAt(ENDLESS_BYTES))]);
        let url = server.url();
        tokio::select! {
            biased;
            () = server.hangs(1) => panic!("{ENDLESS_BYTES} bytes of status {status} were read"),
            (result, _) = ask_at(&wire, &url, false, patient()) => {
                assert!(result.is_err(), "no answer is that long");
            }
        }
    }
}

/// An answer without an end is refused too, however small its pieces are.
pub(super) async fn streams_are_bounded(wire: Wire) {
    if !wire.can(Cannot::Stream) {
        return;
    }
    let piece = "x".repeat(64 * 1024 - 1) + " ";
    let script = ScriptedAnswer::saying(piece.repeat(ENDLESS_BYTES / piece.len()));
    let endless = wire.says(&script, true);
    let length = endless.body.len();
    let server = Loopback::replying([endless.ending(Ending::HangAt(length))]);
    let url = server.url();
    tokio::select! {
        biased;
        () = server.hangs(1) => panic!("an answer of {ENDLESS_BYTES} bytes was read"),
        (result, _) = ask_at(&wire, &url, true, patient()) => {
            assert!(result.is_err(), "no answer is that long");
        }
    }
}

pub(super) async fn no_part_is_taken_for_the_whole(wire: Wire) {
    let wire = &wire;
    for streamed in wire.stream_modes() {
        for answer in [answer(wire), calls()] {
            let whole = wire.says(&answer, streamed);
            let length = whole.body.len();
            // The last bytes may be an end of line without content.
            let cuts = (0..length.saturating_sub(4)).step_by(length / 40 + 1);
            let cut = |at| whole.clone().ending(Ending::CutAt(at));
            let server = Loopback::replying(cuts.clone().map(cut));
            let provider = (wire.provider)(&server.url(), patient());
            for at in cuts {
                let result = send(&*provider, &hello(), streamed).await;
                assert!(
                    result.is_err(),
                    "{at} of {length} bytes were taken for an answer (streamed: {streamed})"
                );
            }
        }
    }
}

pub(super) async fn nothing_is_asked_but_once(wire: Wire) {
    let wire = &wire;
    for streamed in wire.stream_modes() {
        for status in [429, 500, 503] {
            let busy = || Reply::json(status, &json!({})).header("retry-after", "1");
            let server = Loopback::replying([busy(), busy(), busy()]);
            let (result, _) = ask_at(wire, &server.url(), streamed, patient()).await;
            let error = result.expect_err("a server that is busy does not answer");
            assert!(error.is_retryable(), "{error}");
            let hint = Retry::After(Duration::from_secs(1));
            assert_eq!(error.retry(), hint, "status {status}: the wait it asks for");
            assert_eq!(server.count(), 1, "trying again is the caller's (streamed: {streamed})");
        }

        let elsewhere = Loopback::replying([]);
        let moved = Reply::new(307, "text/plain", "").header("location", elsewhere.url());
        let (result, _) = ask(wire, moved, streamed).await;
        let error = result.expect_err("a redirect is no answer");
        assert_eq!(error.retry(), Retry::Never, "a redirect leads where it led before: {error}");
        assert_eq!(elsewhere.count(), 0, "a redirect is not followed (streamed: {streamed})");
    }
}

/// No caller waits for the answer any more, so the server need not produce the rest.
#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
pub(super) async fn a_dropped_call_closes_its_connection(wire: Wire) {
    let wire = &wire;
    let limit = Duration::from_secs(10);
    for streamed in wire.stream_modes() {
        let whole = wire.says(&answer(wire), streamed);
        for ending in [Ending::HangBeforeHead, Ending::HangAt(whole.body.len() / 2)] {
            let server = Loopback::replying([whole.clone().ending(ending)]);
            let provider = (wire.provider)(&server.url(), patient());
            let (hello, at) = (hello(), format!("{ending:?} (streamed: {streamed})"));
            tokio::select! {
                biased;
                result = send(&*provider, &hello, streamed) => panic!("{at}: {result:?}"),
                () = server.hangs(1) => {}
            }
            let closed = tokio::time::timeout(limit, server.is_left(1)).await;
            assert!(closed.is_ok(), "a dropped call closes its connection: {at}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
pub(super) async fn what_breaks_may_be_tried_again(wire: Wire) {
    let wire = &wire;
    let limit = Duration::from_secs(20);
    for streamed in wire.stream_modes() {
        let whole = wire.says(&answer(wire), streamed);
        let half = whole.body.len() / 2;
        for (name, broken, timeouts) in [
            ("a reset", whole.clone().ending(Ending::ResetAt(half)), patient()),
            ("a hang inside the answer", whole.clone().ending(Ending::HangAt(half)), SHORT),
            ("a hang before the answer", whole.clone().ending(Ending::HangBeforeHead), SHORT),
            ("a page with status 502", Reply::html(502), patient()),
            ("a page with status 200", Reply::html(200), patient()),
        ] {
            let server = Loopback::replying([broken]);
            let url = server.url();
            let asked = ask_at(wire, &url, streamed, timeouts);
            let asked = tokio::time::timeout(limit, asked).await;
            let Ok((result, _)) = asked else { panic!("{name} hangs the call") };
            match result {
                Ok(_) => panic!("{name} is no answer (streamed: {streamed})"),
                Err(error) => assert!(error.is_retryable(), "{name}: {error}"),
            }
        }
        let closed = ClosedPort::bind();
        let (result, _) = ask_at(wire, &closed.url(), streamed, patient()).await;
        let error = result.expect_err("nothing listens");
        assert!(error.is_retryable(), "a refused connection: {error}");
    }
}
