//! Checks of gateways between an adapter and a model.

use backstop_provider::ModelResponse;
use backstop_provider_http::phrases::{FILTERED, OVERFLOWS, Phrase, QUOTAS, UNKNOWN_MODELS};
use layer0::failure::{Failure, Retry};
use serde_json::json;

use super::Adapter;
use crate::server::patient;
use crate::server::{Loopback, Reply, hello, send};

/// A gateway repeats the message of another server: unchanged, in its own body, and inside a 200.
///
/// Spec: P4, P5, P6
pub async fn words_of_any_vendor_are_understood(adapter: &Adapter) {
    for (phrases, code) in [
        (OVERFLOWS, "provider.context_overflow"),
        (QUOTAS, "provider.quota_exhausted"),
        (FILTERED, "provider.content_blocked"),
        (UNKNOWN_MODELS, "provider.not_found"),
    ] {
        for Phrase { from, status, body, .. } in phrases {
            let message = format!("litellm.BadRequestError: XException - {body}. Model Group=m");
            let wrapped = json!({ "message": message, "type": null, "code": status.to_string() });
            let wrapped = json!({ "error": wrapped });
            let told = json!({ "error": { "message": format!("data: {body}\n\n") } });
            let replies = [
                Reply::new(*status, "application/json", *body),
                Reply::new(*status, "text/event-stream", format!("data: {body}\n\n")),
                Reply::json(*status, &wrapped),
                Reply::json(*status, &told),
                Reply::json(200, &wrapped),
            ];
            let count = replies.len();
            let server = Loopback::replying(replies);
            let provider = (adapter.wire.provider)(&server.url(), patient());
            for at in 0..count {
                let error = send(&*provider, &hello(), at % 2 == 0).await.expect_err(body);
                assert_eq!(
                    (error.code(), error.retry()),
                    (code, Retry::Never),
                    "{from}, {at}: {body}"
                );
            }
        }
    }
}

/// The header is read if the class allows both answers: a conflict, a rate limit, and a failure known only by its
/// status.
///
/// Spec: P2, P5
pub async fn a_word_on_retrying_counts_where_it_may(adapter: &Adapter) {
    for (status, should, code) in [
        (429, "false", "provider.quota_exhausted"),
        (429, "true", "provider.rate_limited"),
        (409, "false", "provider.invalid_request"),
        (409, "true", "provider.transient"),
        (418, "true", "provider.transient"),
        (418, "false", "provider.invalid_request"),
        (401, "true", "provider.auth_failed"),
        (503, "false", "provider.transient"),
        (503, "perhaps", "provider.transient"),
    ] {
        let body = json!({ "error": { "message": "no" } });
        let reply = Reply::json(status, &body).header("x-should-retry", should);
        let error = adapter.wire.ask(reply, true).await.expect_err(code);
        assert_eq!(error.code(), code, "{status} {should}");
    }
}

/// A gateway labels a stream as JSON, or sends a stream that was not requested.
///
/// Spec: P7
pub async fn a_mislabelled_stream_is_read_as_one(adapter: &Adapter) {
    for streamed in [true, false] {
        for pieces in [1, usize::MAX] {
            for label in ["application/json", "application/json; charset=utf-8"] {
                let plain = adapter.plain(true).split(pieces);
                let reply = Reply { headers: vec![("content-type".into(), label.into())], ..plain };
                let is_lines = adapter.plain(true).content_type().contains("ndjson");
                if is_lines && !streamed {
                    continue;
                }
                let answer = adapter.wire.ask(reply, streamed).await.expect(label);
                assert_eq!(&*answer.text, "one two three four five six");
            }
        }
    }
}

/// Lines end with either character, or both, and the last one may have no end.
///
/// Spec: P7
pub async fn lines_may_end_with_carriage_returns(adapter: &Adapter) {
    if adapter.plain(true).content_type() != "text/event-stream" {
        return;
    }
    for end in ["\r", "\r\n", "\n"] {
        for last in [end, ""] {
            for pieces in [1, 2, 3, usize::MAX] {
                let plain = adapter.plain(true).split(pieces);
                let text = String::from_utf8_lossy(&plain.body).into_owned();
                let body = text.trim_end().replace('\n', end) + last;
                let reply = Reply { body: body.into_bytes(), ..plain };
                let answer = adapter.wire.ask(reply, true).await.expect(end);
                assert_eq!(&*answer.text, "one two three four five six", "{end:?} {last:?}");
            }
        }
    }
}

/// Half of a surrogate pair is not a character, and no reason to drop an answer.
///
/// Spec: P7
pub async fn half_a_surrogate_pair_is_replaced(adapter: &Adapter) {
    for streamed in [false, true] {
        for pieces in [1, usize::MAX] {
            for (half, read) in [(r"\ud83d", "\u{fffd}"), (r"\udc4dx", "\u{fffd}x")] {
                let plain = adapter.plain(streamed).split(pieces);
                // The frames of AWS have checksums.
                let Some(text) = json_text(&plain) else { continue };
                let reply = Reply { body: text.replace("two", half).into_bytes(), ..plain };
                let answer = adapter.wire.ask(reply, streamed).await.expect(half);
                assert_eq!(*answer.text, format!("one {read} three four five six"));
            }
        }
    }
}

/// The two escapes of one character may come in two pieces of a text.
///
/// Spec: P7
pub async fn halves_of_a_character_are_joined(adapter: &Adapter) {
    const TEXT: &str = "one two three four five six";
    let plain = adapter.plain(true);
    // The frames of AWS have checksums.
    let Some(body) = json_text(&plain) else { return };
    let quoted = |piece: &str| format!("\"{piece}\"");
    let ends = |begin: usize| {
        let is_piece = |end: &usize| body.contains(&quoted(&TEXT[begin..*end]));
        (begin + 1..TEXT.len()).find(is_piece)
    };
    let first = ends(0).expect("the text comes in pieces");
    let second = ends(first).expect("the text comes in more than one piece");
    let (one, two) = (&TEXT[..first], &TEXT[first..second]);
    let joined = format!("{one}👍{}", &TEXT[first..]);
    let cut = body
        .replace(&quoted(TEXT), &quoted(&joined))
        .replace(&quoted(one), &quoted(&format!(r"{one}\ud83d")))
        .replace(&quoted(two), &quoted(&format!(r"\udc4d{two}")));
    for pieces in [1, 2, 3, usize::MAX] {
        let reply = Reply { body: cut.clone().into_bytes(), ..adapter.plain(true).split(pieces) };
        let answer = adapter.wire.ask(reply, true).await.expect("an answer");
        assert_eq!(*answer.text, joined);
    }
}

/// The chunks after it show that nothing was cut.
///
/// Spec: P3, P7
pub async fn a_malformed_piece_is_not_taken_for_a_cut(adapter: &Adapter) {
    let plain = adapter.plain(true);
    let malformed = match plain.content_type() {
        "text/event-stream" => "data: {\"cut\": \"\n\n",
        "application/x-ndjson" => "{\"cut\": \"\n",
        _ => return,
    };
    let is_lines = malformed.starts_with('{');
    for pieces in [1, usize::MAX] {
        let text = String::from_utf8_lossy(&plain.body).into_owned();
        let gaps = if is_lines { ["\n", "\n"] } else { ["\n\n", "\r\n\r\n"] };
        let middle = gaps.into_iter().find_map(|gap| Some(text.find(gap)? + gap.len()));
        let middle = middle.expect("a stream has several pieces");
        let body = format!("{}{malformed}{}", &text[..middle], &text[middle..]);
        let reply = Reply { body: body.into_bytes(), ..adapter.plain(true).split(pieces) };
        let error = adapter.wire.ask(reply, true).await.expect_err("it is malformed");
        assert_eq!(error.code(), "provider.invalid_response", "{error}");
    }
}

/// Counts that are not whole numbers, and ids that are not text, do not invalidate the answer.
///
/// Spec: P1
pub async fn what_stands_beside_an_answer_costs_no_answer(adapter: &Adapter) {
    let expected = adapter.serve(&adapter.rich(), false).await.expect("an answer");
    for (from, to) in [
        (":12", ":12.0"),
        (":7", ":7.0"),
        (":7", ":-1"),
        (":7", ":null"),
        (":12", ":\"12\""),
        (":7", ":{}"),
        ("\"call-1\"", "17"),
        ("\"call-2\"", "null"),
    ] {
        for streamed in [false, true] {
            let reply = adapter.wire.says(&adapter.rich(), streamed);
            let Some(text) = json_text(&reply) else { continue };
            let at = format!("{from} as {to}, streamed: {streamed}");
            let reply = Reply { body: text.replace(from, to).into_bytes(), ..reply };
            let answer = adapter.wire.ask(reply, streamed).await.expect(&at);
            let said = |answer: &ModelResponse| {
                let calls = answer.tool_calls.iter();
                let calls = calls.map(|call| (call.name.clone(), call.arguments.clone()));
                (answer.text.clone(), answer.stop_reason.clone(), calls.collect::<Vec<_>>())
            };
            assert_eq!(said(&answer), said(&expected), "{at}");
            if to == "17" {
                assert!(["17", ""].contains(&answer.tool_calls[0].id.as_str()), "{at}");
            }
        }
    }
}

fn json_text(reply: &Reply) -> Option<String> {
    let is_binary = reply.content_type().contains("amazon");
    (!is_binary).then(|| String::from_utf8_lossy(&reply.body).into_owned())
}
