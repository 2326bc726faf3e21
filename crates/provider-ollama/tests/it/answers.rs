use backstop_provider::ScriptedAnswer;
use backstop_testkit::{Loopback, Reply};
use layer0::failure::Failure;
use layer0::message::StopReason;
use serde_json::json;

use super::ask::{ADAPTER, hello, send, to};

fn answer(value: serde_json::Value) -> ScriptedAnswer {
    serde_json::from_value(value).unwrap()
}

/// Spec: P9
#[tokio::test]
async fn a_stop_beside_calls_is_for_the_calls() {
    for (said, stop_reason) in [
        (StopReason::MaxTokens, StopReason::MaxTokens),
        // Ollama sends `stop` with calls.
        (StopReason::End, StopReason::ToolUse),
        (StopReason::ToolUse, StopReason::ToolUse),
    ] {
        let calls = json!([{ "name": "now" }]);
        let answer = answer(json!({ "text": "so far", "tool_calls": calls })).stop_reason(said);
        for streamed in [false, true] {
            let response = ADAPTER.serve(&answer, streamed).await.unwrap();
            assert_eq!((&response.stop_reason, &*response.text), (&stop_reason, "so far"));
        }
    }
}

/// The machine gives ids to calls without any.
#[tokio::test]
async fn parallel_calls_without_ids_keep_their_order() {
    let answer = answer(json!({ "tool_calls": [
        { "name": "fs_read", "arguments": { "path": "a" } },
        { "name": "fs_read", "arguments": { "path": "b" } },
        { "name": "now" },
    ] }));
    for streamed in [false, true] {
        let response = ADAPTER.serve(&answer, streamed).await.unwrap();
        let calls: Vec<_> = response
            .tool_calls
            .iter()
            .map(|call| (call.id.as_str(), &*call.name, call.arguments.to_string()))
            .collect();
        let expected = [
            ("", "fs_read", r#"{"path":"a"}"#.to_owned()),
            ("", "fs_read", r#"{"path":"b"}"#.into()),
            ("", "now", "{}".into()),
        ];
        assert_eq!(calls, expected);
    }
}

#[tokio::test]
async fn what_ollama_cannot_say_a_script_cannot_either() {
    for (value, why) in [
        (json!({ "stop_reason": "refusal" }), "stop reason Refusal"),
        (json!({ "usage": { "cached_tokens": 1 } }), "how many tokens were cached"),
        (json!({ "error": { "kind": "content_blocked" } }), "no form for ContentBlocked"),
        (json!({ "text": "a", "error": { "kind": "rate_limited" } }), "in the middle of a stream"),
        (json!({ "usage": {}, "error": { "kind": "transient" } }), "an answer that is done"),
    ] {
        let error = ADAPTER.serve(&answer(value), true).await.unwrap_err();
        assert_eq!(error.code(), "provider.invalid_request");
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Spec: P4
#[tokio::test]
async fn lines_labelled_as_a_page_are_read() {
    let line = |text: &str, end: &str| format!("{{\"message\":{{\"content\":\"{text}\"}}{end}}}\n");
    let lines = line("4", "") + &line("2", ",\"done\":true,\"done_reason\":\"stop\"");
    for begin in ["", "\n \n", "{\"error\":\"\",\"model\":\"m\"}\n"] {
        let body = begin.to_owned() + &lines;
        let answer = (ADAPTER.read)("text/html; charset=UTF-8", body.into_bytes()).await.unwrap();
        assert_eq!(&*answer.text, "42");
    }
    let error = (ADAPTER.read)("text/html", b"<html>".to_vec()).await.unwrap_err();
    assert_eq!(error.code(), "provider.invalid_response");
}

/// Spec: P7. Some servers stream although the request forbids it.
#[tokio::test]
async fn lines_that_nobody_asked_for_are_read() {
    let line = |text: &str, end: &str| format!("{{\"message\":{{\"content\":\"{text}\"}}{end}}}\n");
    let lines = line("4", "") + &line("2", ",\"done\":true,\"done_reason\":\"stop\"");
    for label in ["application/x-ndjson", "application/json"] {
        let server = Loopback::replying([Reply::new(200, label, lines.clone())]);
        let answer = send(&to(&server.url()).build().unwrap(), &hello(), false).await.unwrap();
        assert_eq!(&*answer.text, "42", "{label}");
    }
    let server = Loopback::replying([Reply::lines(&lines[..lines.len() - 9])]);
    let error = send(&to(&server.url()).build().unwrap(), &hello(), false).await.unwrap_err();
    assert_eq!(error.code(), "provider.stream_truncated");
}

/// Spec: P7
#[tokio::test]
async fn value_over_many_lines_is_one_answer() {
    let numbers = "1,\n".repeat(20_000);
    let body = format!(
        "{{\n\"context\": [\n{numbers}1\n],\n\"message\": {{\"content\": \"42\"}},\n\"done\": true,\n\
         \"done_reason\": \"stop\"\n}}\n"
    );
    let answer = (ADAPTER.read)("application/x-ndjson", body.into_bytes()).await.unwrap();
    assert_eq!(&*answer.text, "42");
}
