//! Checks that answers arrive unchanged.

use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelResponse};
use layer0::failure::{Failure, Retry};
use layer0::message::{Message, StopReason, ToolCall, Transcript};
use layer0::usage::TokenUsage;
use serde_json::json;

use super::{Adapter, failing, scripted};
use crate::server::patient;
use crate::server::{Heard, Loopback, hello, send};
use crate::wire::Cannot;

/// Text, thinking, calls with their ids, stop reason and usage arrive, in whatever way they are sent.
///
/// Spec: P1, P7
pub async fn an_answer_is_the_same_whole_streamed_and_split(adapter: &Adapter) {
    let rich = adapter.rich();
    let whole = adapter.serve(&rich, false).await.expect("an answer");
    assert_eq!(&*whole.text, "Grüße 👍 an alle");
    assert_eq!(whole.thinking.as_deref(), Some("hm, let me see"));
    let ids: Vec<_> = whole.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call-1", "call-2"]);
    let names: Vec<_> = whole.tool_calls.iter().map(|call| &*call.name).collect();
    assert_eq!(names, ["fs_read", "now"]);
    assert_eq!(whole.tool_calls[0].arguments, json!({ "path": "äöü 👍" }));
    assert_eq!(whole.tool_calls[1].arguments, json!({}));
    assert_eq!(whole.stop_reason, StopReason::ToolUse);
    let cached_tokens = if adapter.wire.can(Cannot::CountCached) { 5 } else { 0 };
    let usage = TokenUsage::new(12, 7).cached_tokens(cached_tokens);
    assert_eq!(whole.usage, Some(usage));

    let whole = anywhere(whole);
    assert_eq!(anywhere(adapter.serve(&rich, true).await.expect("a stream")), whole);
    for streamed in [false, true] {
        let reply = adapter.wire.says(&rich, streamed);
        for piece_bytes in [1, 2, 3, 7] {
            let split = adapter.wire.ask(reply.clone().split(piece_bytes), streamed).await;
            let context = format!("streamed: {streamed}, pieces of {piece_bytes} bytes");
            assert_eq!(anywhere(split.expect(&context)), whole, "{context}");
        }
    }
}

/// Removes the port of the endpoint from an answer.
fn anywhere(mut answer: ModelResponse) -> ModelResponse {
    if let Some(state) = &mut answer.provider_state {
        state.endpoint = Arc::default();
    }
    answer
}

/// A recording is decoded like a response on the wire, and half of one is not an answer.
pub async fn a_recorded_answer_is_read_as_one_from_the_wire(adapter: &Adapter) {
    for streamed in [false, true] {
        let reply = adapter.wire.says(&adapter.rich(), streamed);
        let content_type = reply.content_type();
        let read = (adapter.read)(content_type, reply.body.clone()).await.expect(content_type);
        let asked = adapter.wire.ask(reply.clone(), true).await.expect(content_type);
        assert_eq!(anywhere(read), anywhere(asked));

        let half = reply.body[..reply.body.len() / 2].to_vec();
        let error = (adapter.read)(content_type, half).await.expect_err(content_type);
        assert_eq!(error.code(), "provider.stream_truncated", "{error:?}");
    }
}

/// Streams text, thinking and usage as they are in the response.
pub async fn a_listener_hears_what_the_answer_says(adapter: &Adapter) {
    let server = (adapter.endpoint)(vec![adapter.rich()]);
    let heard = Arc::new(Heard::default());
    let request = hello().sink(heard.clone());
    let provider = (adapter.wire.provider)(&server.base_url(), patient());
    let response = send(&*provider, &request, true).await.expect("an answer");
    assert_eq!(heard.text(), *response.text);
    assert_eq!(Some(heard.thinking().as_str()), response.thinking.as_deref());
    assert_eq!(heard.usage().last(), response.usage.as_ref());
}

/// A proxy may answer a request to stream in one piece.
pub async fn an_endpoint_that_cannot_stream_is_read_whole(adapter: &Adapter) {
    let server = Loopback::replying([adapter.wire.says(&adapter.rich(), false)]);
    let heard = Arc::new(Heard::default());
    let request = hello().sink(heard.clone());
    let provider = (adapter.wire.provider)(&server.url(), patient());
    let response = send(&*provider, &request, true).await.expect("an answer");
    assert_eq!(heard.text(), *response.text);
}

/// The reasons of [`Adapter::reasons`]; an unknown one is not mistaken for another.
///
/// Spec: P2, P9
pub async fn stop_reasons_of_the_wire_are_read_without_loss(adapter: &Adapter) {
    for (name, stop_reason) in adapter.reasons {
        for (reply, streamed) in (adapter.stopped)(name) {
            let context = format!("{name}, streamed: {streamed}");
            let response = adapter.wire.ask(reply, streamed).await.expect(&context);
            let seen = (&response.stop_reason, &*response.text);
            assert_eq!(seen, (stop_reason, "so far"), "{context}");
        }
    }
    for word in ["abducted", "OTHER", "a word of four"] {
        for (reply, streamed) in (adapter.stopped)(word) {
            let context = format!("{word}, streamed: {streamed}");
            let response = adapter.wire.ask(reply, streamed).await.expect(&context);
            assert_eq!(response.stop_reason, StopReason::Unknown(word.into()), "{context}");
            assert_eq!(&*response.text, "so far", "{context}");
        }
    }
}

/// The model needs its own words to correct them.
///
/// Spec: P7
pub async fn arguments_that_are_no_json_are_given_back_as_they_are(adapter: &Adapter) {
    let broken = [json!(r#"{"path": "#), json!("<tool>é👍")];
    let kept = broken.into_iter().map(|written| (written.clone(), written));
    let none = (adapter.no_arguments)().into_iter().map(|written| (written, json!({})));
    for (written, read) in kept.chain(none) {
        let answer = scripted(json!({
            "tool_calls": [{ "id": "call-1", "name": "fs_read", "arguments": written }],
        }));
        for streamed in [false, true] {
            let context = format!("{written}, streamed: {streamed}");
            let response = adapter.serve(&answer, streamed).await.expect(&context);
            assert_eq!(response.tool_calls[0].arguments, read, "{context}");
        }
    }
}

/// An answer may be cut before its first byte of arguments, or inside of them.
///
/// Spec: P7, P9
pub async fn arguments_of_a_cut_answer_stay_as_written(adapter: &Adapter) {
    let cut = [
        StopReason::MaxTokens,
        StopReason::Refusal,
        StopReason::ContentFilter,
        StopReason::Pause,
        StopReason::ContextExceeded,
        StopReason::Malformed,
        StopReason::from_word("abducted"),
    ];
    let sayable = |reason: &StopReason| adapter.wire.can(Cannot::Stop(reason.clone()));
    for reason in cut.into_iter().filter(sayable) {
        for written in ["", " ", r#"{"path": "/t"#] {
            let answer = scripted(json!({
                "text": "so far",
                "tool_calls": [
                    { "id": "call-1", "name": "fs_read", "arguments": { "path": "a" } },
                    { "id": "call-2", "name": "fs_delete", "arguments": written },
                ],
                "stop_reason": reason,
            }));
            for streamed in [false, true] {
                for piece_bytes in [1, 7, usize::MAX] {
                    let context = format!("`{written}`, {reason:?}, streamed: {streamed}");
                    let reply = adapter.wire.says(&answer, streamed).split(piece_bytes);
                    let response = adapter.wire.ask(reply, streamed).await.expect(&context);
                    assert_eq!(response.stop_reason, reason, "{context}");
                    let [whole, cut] = &*response.tool_calls else { panic!("{context}") };
                    assert_eq!(whole.arguments, json!({ "path": "a" }), "{context}");
                    assert_eq!(cut.arguments, json!(written), "{context}");
                }
            }
        }
    }
}

/// Billed tokens count, also for an answer that breaks off.
pub async fn tokens_of_a_failed_stream_are_heard(adapter: &Adapter) {
    let Some(status) = adapter.transient_inside else { return };
    let server = (adapter.endpoint)(vec![failing(status)]);
    let heard = Arc::new(Heard::default());
    let request = hello().sink(heard.clone());
    let provider = (adapter.wire.provider)(&server.base_url(), patient());
    let error = send(&*provider, &request, true).await.expect_err("a failure");
    assert_eq!((error.status(), error.retry()), (Some(status), Retry::Backoff));
    assert_eq!(heard.usage()[0].input_tokens, 9);
}

/// The scripted endpoint finds ids in requests of this protocol.
pub async fn a_script_fills_ids_and_says_its_end(adapter: &Adapter) {
    let server = (adapter.endpoint)(vec![scripted(json!({
        "tool_calls": [{
            "id": "call-2",
            "name": "get_error_detail",
            "arguments": { "error_id": "${error_id.1}" },
        }],
    }))]);
    let call = ToolCall::new("call-1", "add", json!({}));
    let failed = "Tool failed [Error ID: err_20260101_000000_00ff00]";
    let mut messages = Transcript::default();
    messages.push(Message::user("go on"));
    messages.push(Message::assistant("", Arc::new([call])));
    messages.push(Message::tool("call-1".into(), failed, true));
    let request = ModelRequest::new(messages);
    let provider = (adapter.wire.provider)(&server.base_url(), patient());
    let response = send(&*provider, &request, true).await.expect("an answer");
    let id = &response.tool_calls[0].arguments.value()["error_id"];
    assert_eq!(id, "err_20260101_000000_00ff00");

    let error = send(&*provider, &request, true).await.expect_err("the script is over");
    assert_eq!(
        error.to_string(),
        "invalid request: script exhausted: it has 1 answers and this is request 2"
    );
    assert_eq!(server.count(), 2);
}
