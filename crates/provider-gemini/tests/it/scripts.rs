use std::sync::Arc;

use layer0::failure::{Failure, Retry};
use layer0::message::{Message, StopReason, ToolCall, Transcript};
use layer0::usage::TokenUsage;
use provider::{ModelRequest, ModelResponse, ScriptedAnswer};
use serde_json::json;
use testkit::{Loopback, Reply, ScriptedEndpoint};

use super::ask::{Listener, ask, hello, provider, send};

fn answer(value: serde_json::Value) -> ScriptedAnswer {
    serde_json::from_value(value).unwrap()
}

/// Serves one scripted answer over HTTP.
async fn serve(
    answer: &ScriptedAnswer,
    streamed: bool,
) -> Result<ModelResponse, provider::ProviderError> {
    let server = ScriptedEndpoint::gemini(vec![answer.clone()]);
    send(&provider(&server.base_url()), &hello(), streamed).await
}

fn rich() -> ScriptedAnswer {
    answer(json!({
        "text": "Grüße 👍 an alle",
        "thinking": "hm, let me see",
        "tool_calls": [
            { "id": "call-1", "name": "fs_read", "arguments": { "path": "äöü 👍" } },
            { "id": "call-2", "name": "now" },
        ],
        "usage": { "input_tokens": 12, "output_tokens": 7, "cached_tokens": 5 },
    }))
}

/// Spec: P1, P7
#[tokio::test]
async fn an_answer_is_the_same_whole_streamed_and_split() {
    let whole = serve(&rich(), false).await.unwrap();
    assert_eq!(&*whole.text, "Grüße 👍 an alle");
    assert_eq!(whole.thinking.as_deref(), Some("hm, let me see"));
    assert_eq!(whole.tool_calls.len(), 2);
    assert_eq!(whole.tool_calls[0].arguments, json!({ "path": "äöü 👍" }));
    assert_eq!(whole.tool_calls[1].arguments, json!({}));
    assert_eq!(whole.tool_calls[1].id.as_str(), "call-2");
    assert_eq!(whole.stop_reason, StopReason::ToolUse);
    let usage = TokenUsage { input_tokens: 12, output_tokens: 7, cached_tokens: 5 };
    assert_eq!(whole.usage, usage);

    assert_eq!(serve(&rich(), true).await.unwrap(), whole);
    for streamed in [false, true] {
        let reply = testkit::gemini::reply(&rich(), &json!({}), streamed);
        for piece_bytes in [1, 2, 3, 7] {
            assert_eq!(ask(reply.clone().split(piece_bytes), streamed).await.unwrap(), whole);
        }
    }
}

#[tokio::test]
async fn a_recorded_answer_is_read_as_one_from_the_wire() {
    let provider = provider("http://127.0.0.1:9");
    for streamed in [false, true] {
        let reply = testkit::gemini::reply(&rich(), &json!({}), streamed);
        let content_type = if streamed { "text/event-stream" } else { "application/json" };
        let read = provider.read(content_type, reply.body.clone()).await.unwrap();
        assert_eq!(read, ask(reply.clone(), true).await.unwrap());

        let half = &reply.body[..reply.body.len() / 2];
        let error = provider.read(content_type, half).await.unwrap_err();
        assert_eq!(error.code(), "provider.stream_truncated");
    }
}

#[tokio::test]
async fn a_listener_hears_what_the_answer_says() {
    let server = ScriptedEndpoint::gemini(vec![rich()]);
    let listener = Arc::new(Listener::default());
    let request = ModelRequest { sink: Some(listener.clone()), ..hello() };
    let response = send(&provider(&server.base_url()), &request, true).await.unwrap();
    assert_eq!(*listener.text.lock().unwrap(), *response.text);
    assert_eq!(*listener.thinking.lock().unwrap(), *response.thinking.unwrap());
    assert_eq!(listener.usage.lock().unwrap().last(), Some(&response.usage));
}

/// Spec: P9
#[tokio::test]
async fn every_stop_reason_arrives() {
    let sayable = [StopReason::End, StopReason::MaxTokens, StopReason::ContentFilter];
    for stop_reason in sayable {
        let answer = ScriptedAnswer {
            text: Some("so far".into()),
            stop_reason: Some(stop_reason),
            ..ScriptedAnswer::default()
        };
        for streamed in [false, true] {
            let response = serve(&answer, streamed).await.unwrap();
            assert_eq!((response.stop_reason, &*response.text), (stop_reason, "so far"));
        }
    }
}

/// Spec: P9
#[tokio::test]
async fn finish_reasons_of_the_wire_are_read_without_loss() {
    let filtered = [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
    ];
    let reasons = [("STOP", Some(StopReason::End)), ("MAX_TOKENS", Some(StopReason::MaxTokens))]
        .into_iter()
        .chain(filtered.map(|reason| (reason, Some(StopReason::ContentFilter))))
        .chain([("ABDUCTED", None)]);
    for (reason, expected) in reasons {
        let parts = json!([{ "text": "x" }, { "executableCode": { "code": "1" } }]);
        let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
        match ask(Reply::json(200, &json!({ "candidates": [candidate] })), false).await {
            Ok(response) => assert_eq!(Some(response.stop_reason), expected),
            Err(error) => {
                let expected_error = "invalid response: unknown finish reason: `ABDUCTED`";
                assert_eq!((error.to_string().as_str(), expected), (expected_error, None));
            }
        }
    }
}

/// A filter that cuts an answer leaves no content at all.
#[tokio::test]
async fn a_candidate_without_content_is_an_answer_without_text() {
    let body = json!({ "candidates": [{ "finishReason": "SAFETY", "index": 0 }] });
    for streamed in [false, true] {
        let response = ask(Reply::json(200, &body), streamed).await.unwrap();
        assert_eq!((&*response.text, response.stop_reason), ("", StopReason::ContentFilter));
    }
}

/// Most models give their calls no id; the machine does.
#[tokio::test]
async fn calls_without_an_id_keep_their_order() {
    let parts = json!([
        { "functionCall": { "name": "a", "args": { "x": 1 } }, "thoughtSignature": "c2ln" },
        { "functionCall": { "name": "a" } },
        { "functionCall": { "name": "b", "args": null } },
    ]);
    let candidate = json!({ "content": { "parts": parts }, "finishReason": "STOP" });
    let body = json!({ "candidates": [candidate] });
    let response = ask(Reply::json(200, &body), true).await.unwrap();
    let calls: Vec<_> =
        response.tool_calls.iter().map(|call| (call.id.as_str(), &*call.name)).collect();
    assert_eq!(calls, [("", "a"), ("", "a"), ("", "b")]);
    assert_eq!(response.tool_calls[0].arguments, json!({ "x": 1 }));
    assert_eq!(response.tool_calls[2].arguments, json!({}));
    assert_eq!(response.stop_reason, StopReason::ToolUse);
}

/// Spec: P7
#[tokio::test]
async fn arguments_that_are_no_json_are_given_back_as_they_are() {
    for (written, read) in [
        (json!(r#"{"path": "#), json!(r#"{"path": "#)),
        (json!("<tool>é👍"), json!("<tool>é👍")),
        (json!({}), json!({})),
        (json!(null), json!({})),
    ] {
        let answer = answer(json!({
            "tool_calls": [{ "id": "call-1", "name": "fs_read", "arguments": written }],
        }));
        for streamed in [false, true] {
            let response = serve(&answer, streamed).await.unwrap();
            assert_eq!(response.tool_calls[0].arguments, read);
        }
    }
}

#[tokio::test]
async fn tokens_of_a_failed_stream_are_heard() {
    let server = ScriptedEndpoint::gemini(vec![answer(json!({
        "text": "half",
        "usage": { "input_tokens": 9 },
        "error": { "kind": "transient", "status": 502 },
    }))]);
    let listener = Arc::new(Listener::default());
    let request = ModelRequest { sink: Some(listener.clone()), ..hello() };
    let error = send(&provider(&server.base_url()), &request, true).await.unwrap_err();
    assert_eq!((error.status(), error.retry()), (Some(502), Retry::Backoff));
    assert_eq!(listener.usage.lock().unwrap()[0].input_tokens, 9);
}

#[tokio::test]
async fn a_script_fills_ids_from_the_conversation_and_says_when_it_is_over() {
    let server = ScriptedEndpoint::gemini(vec![answer(json!({
        "tool_calls": [{
            "id": "call-2",
            "name": "get_error_detail",
            "arguments": { "error_id": "${error_id.1}" },
        }],
    }))]);
    let mut messages = Transcript::default();
    messages.push(Message::user("go on"));
    let call = ToolCall { id: "call-1".into(), name: "add".into(), arguments: json!({}) };
    messages.push(Message::assistant("", Arc::new([call])));
    messages.push(Message::tool(
        "call-1".into(),
        "Tool failed [Error ID: err_20260101_000000_00ff00]",
        true,
    ));
    let request = ModelRequest::new(messages);
    let provider = provider(&server.base_url());
    let response = send(&provider, &request, true).await.unwrap();
    let id = &response.tool_calls[0].arguments["error_id"];
    assert_eq!(id, "err_20260101_000000_00ff00");

    let error = send(&provider, &request, true).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid request: script exhausted: it has 1 answers and this is request 2"
    );
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn an_endpoint_that_cannot_stream_is_read_whole() {
    let whole = testkit::gemini::reply(&rich(), &json!({}), false);
    let server = Loopback::replying([whole]);
    let listener = Arc::new(Listener::default());
    let request = ModelRequest { sink: Some(listener.clone()), ..hello() };
    let response = send(&provider(&server.url()), &request, true).await.unwrap();
    assert_eq!(*listener.text.lock().unwrap(), *response.text);
}
