use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings, Provider, ScriptedAnswer};
use backstop_provider_anthropic::Anthropic;
use backstop_provider_http::ProviderConfigError;
use backstop_testkit::{Request, ScriptedEndpoint};
use layer0::message::{Image, Message, StopReason, ToolCall, Transcript};
use layer0::{JsonText, ToolSpec};
use serde_json::{Value, json};

use super::ask::{KEY, hello, send, to};

async fn sent(request: &ModelRequest, streamed: bool) -> Request {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::anthropic(vec![said]);
    let provider = to(&server.base_url()).build().unwrap();
    send(&provider, request, streamed).await.unwrap();
    server.requests().remove(0)
}

/// A conversation with every kind of message.
fn conversation() -> ModelRequest {
    let call = |id: &str, name: &str, arguments: Value| ToolCall::new(id, name, arguments);
    let mut messages = Transcript::default();
    messages.push(Message::system("Be brief."));
    let image = Image::from_bytes(b"GIF89a").unwrap();
    messages.push(Message::User { content: "What is in `a`?".into(), images: [image].into() });
    messages.push(Message::assistant(
        "",
        Arc::new([
            call("call-1", "fs_read", json!({ "path": "a" })),
            call("call-1~2", "fs_read", json!(r#"{"path": "#)),
        ]),
    ));
    messages.push(Message::tool("call-1".into(), "Grüße", false));
    messages.push(Message::tool("call-1~2".into(), "Tool 'fs_read' failed: not JSON", true));
    messages.push(Message::assistant("It says hello.", Arc::default()));
    messages.push(Message::user("And `b`?"));
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ModelRequest::new(messages)
        .tools([ToolSpec::new("fs_read", "Reads a file.", schema)])
        .settings(ModelSettings::new().max_output_tokens(512).temperature(0.5))
}

#[tokio::test]
async fn what_is_sent() {
    let request = sent(&conversation(), true).await;
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("x-api-key"), Some(KEY));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

/// Returns a conversation in which a tool returns an image.
fn shown() -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("draw"));
    messages.push(Message::assistant("", Arc::new([ToolCall::new("call-1", "draw", json!({}))])));
    messages.push(Message::Tool {
        tool_call_id: "call-1".into(),
        content: "[a drawing]".into(),
        images: [Image::from_bytes(b"GIF89a").unwrap()].into(),
        is_error: false,
    });
    ModelRequest::new(messages)
}

/// Spec: Q8
#[tokio::test]
async fn images_of_tools_stand_in_their_result() {
    let request = sent(&shown(), false).await;
    let source = json!({ "type": "base64", "media_type": "image/gif", "data": "R0lGODlh" });
    assert_eq!(
        request.body["messages"][2]["content"][0]["content"],
        json!([{ "type": "text", "text": "[a drawing]" }, { "type": "image", "source": source }])
    );
}

#[tokio::test]
async fn what_is_not_set_is_not_sent() {
    let request = sent(&hello(), false).await;
    insta::assert_snapshot!(JsonText::from(&request.body).pretty());
}

#[tokio::test]
async fn gateway_with_its_own_key_gets_none() {
    let said = ScriptedAnswer::saying("ok");
    let server = ScriptedEndpoint::anthropic(vec![said]);
    let slash = format!("{}/", server.base_url());
    let provider = Anthropic::new("m").base_url(slash).build().unwrap();
    assert_eq!(&*provider.complete(&hello()).await.unwrap().text, "ok");
    assert_eq!(server.requests()[0].header("x-api-key"), None);
}

/// Spec: P11
#[tokio::test]
async fn a_real_request_is_denied_in_tests() {
    backstop_process::deny_real_requests();
    let provider = Anthropic::new("m").api_key("sk-0123456789").build().unwrap();
    let error = provider.complete(&hello()).await.unwrap_err();
    let chain = layer0::failure::chain(&error);
    let denied = "real requests are denied in this process: `";
    assert!(chain.last().unwrap().starts_with(denied), "{chain:?}");
}

#[test]
fn without_a_key_anthropic_itself_cannot_be_asked() {
    let error = Anthropic::new("m").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    assert!(error.to_string().contains("`ANTHROPIC_API_KEY`"));
}

#[tokio::test]
async fn cache_marks_can_be_turned_off() {
    let said = ScriptedAnswer::saying("yes");
    let server = ScriptedEndpoint::anthropic(vec![said]);
    let provider = to(&server.base_url()).with(|it| it.caches_prompts(false)).build().unwrap();
    send(&provider, &conversation(), true).await.unwrap();
    assert!(!server.requests()[0].body.to_string().contains("cache_control"));
}

/// Signed thinking is refused in any position but its own. The body is compared as text: serde_json
/// reads raw JSON that it wrote under its own key as if the key did not exist.
#[tokio::test]
async fn interleaved_thinking_goes_back_unchanged() {
    for caches in [false, true] {
        check_interleaved_thinking(caches).await;
    }
}

async fn check_interleaved_thinking(caches: bool) {
    let said = ScriptedAnswer::saying("yes");
    let server = ScriptedEndpoint::anthropic(vec![said]);
    let provider = to(&server.base_url()).with(|it| it.caches_prompts(caches)).build().unwrap();
    let content = json!([
        { "type": "thinking", "thinking": "hm", "signature": "one" },
        { "type": "text", "text": "Grüße. " },
        { "type": "redacted_thinking", "data": "two" },
        { "type": "text", "text": "I look." },
        { "type": "tool_use", "id": "call-1", "name": "now", "input": {} },
        { "type": "thinking", "thinking": "", "signature": "three" },
        { "type": "tool_use", "id": "call-2", "name": "now", "input": {} },
    ]);
    let body = json!({ "content": content, "stop_reason": "tool_use" }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("What time is it?"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    send(&provider, &ModelRequest::new(messages), true).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    assert!(!body.contains("$serde_json"), "{body}");
    for block in [
        r#"[{"signature":"one","thinking":"hm","type":"thinking"},{"type":"text","text":"Grüße. "}"#,
        r#",{"data":"two","type":"redacted_thinking"},{"type":"text","text":"I look."}"#,
        r#",{"signature":"three","thinking":"","type":"thinking"},{"type":"tool_use""#,
    ] {
        assert!(body.contains(block), "{block} in {body}");
    }
    // One mark on the conversation, one on the called tool, as the request offers none.
    let marks = if caches { 2 } else { 0 };
    assert_eq!(body.matches("cache_control").count(), marks, "{body}");
}

/// A paused turn is sent again with the blocks of the provider's own tools, as they were received.
#[tokio::test]
async fn blocks_of_served_tools_go_back() {
    let start = |index: u64, block: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{block}}}\n\n"
        )
    };
    let result = r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u","encrypted_content":"E","page_age":1.50}]}"#;
    let asked = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#;
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}"#;
    let body = start(0, asked)
        + &format!("data: {piece}\n\n")
        + &start(1, result)
        + "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"pause_turn\"}}\n\n"
        + "data: {\"type\":\"message_stop\"}\n\n";
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let answer = provider.read("text/event-stream", body).await.unwrap();
    assert!(answer.tool_calls.is_empty());
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    send(&provider, &ModelRequest::new(messages), true).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    for block in [
        r#"{"id":"srvtoolu_1","input":{"query":"x"},"name":"web_search","type":"server_tool_use"}"#,
        r#""encrypted_content":"E","page_age":1.50"#,
    ] {
        assert!(body.contains(block), "{block} in {body}");
    }
}

#[tokio::test]
async fn a_streamed_compaction_goes_back_whole() {
    let body = concat!(
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"compaction","content":null}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"It \"began\".","encrypted_content":"E"}}"#,
        "\n\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"compaction"}}"#,
        "\n\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let answer = provider.read("text/event-stream", body).await.unwrap();
    assert_eq!(answer.stop_reason, StopReason::Pause);
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    send(&provider, &ModelRequest::new(messages), true).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    let block = r#"{"content":"It \"began\".","encrypted_content":"E","type":"compaction"}"#;
    assert!(body.contains(block), "{body}");
}

/// A call of served code is sent back with its caller.
#[tokio::test]
async fn a_call_goes_back_with_its_caller() {
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let caller = json!({ "type": "code_execution_20250825", "tool_id": "srvtoolu_1" });
    let call =
        json!({ "type": "tool_use", "id": "c1", "name": "now", "input": {}, "caller": caller });
    let text = json!({ "type": "text", "text": "I run it." });
    let body = json!({ "content": [text, call], "stop_reason": "tool_use" }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    messages.push(Message::tool("c1".into(), "noon", false));
    send(&provider, &ModelRequest::new(messages), true).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    let back = r#""name":"now","input":{},"caller":{"tool_id":"srvtoolu_1","type":"code_execution_20250825"}}"#;
    assert!(body.contains(back), "{body}");
}

/// Returns the request after an answer that stopped within a search and these messages.
async fn sent_behind_search(kind: &str, behind: &[Message]) -> String {
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let search = json!({ "type": kind, "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } });
    let caller = json!({ "type": "code_execution_20250825", "tool_id": "srvtoolu_1" });
    let call =
        json!({ "type": "tool_use", "id": "c1", "name": "now", "input": {}, "caller": caller });
    let body = json!({ "content": [search, call], "stop_reason": "tool_use" }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    messages.push(Message::tool("c1".into(), "noon", false));
    behind.iter().for_each(|message| messages.push(message.clone()));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    String::from_utf8(server.requests()[0].bytes.clone()).unwrap()
}

/// A run that was stopped within a search leaves a call without a result, which the endpoint refuses.
#[tokio::test]
async fn searches_without_result_end_with_their_turn() {
    for kind in ["server_tool_use", "mcp_tool_use"] {
        let body = sent_behind_search(kind, &[]).await;
        assert_eq!(body.matches("srvtoolu_1").count(), 2, "{body}");
        let body = sent_behind_search(kind, &[Message::user("go on")]).await;
        assert!(!body.contains("srvtoolu_1") && body.contains(r#""id":"c1""#), "{body}");
    }
}

#[tokio::test]
async fn searches_with_result_stay() {
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let search =
        json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} });
    let result =
        json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] });
    let text = json!({ "type": "text", "text": "It is so." });
    let body = json!({ "content": [search, result, text], "stop_reason": "end_turn" }).to_string();
    let answer = provider.read("application/json", body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    messages.push(Message::user("sure?"));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    let body = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    assert_eq!(body.matches("srvtoolu_1").count(), 2, "{body}");
}

/// Compatible endpoints do not sign thinking, and require it back with the calls it led to.
#[tokio::test]
async fn unsigned_thinking_goes_back_with_calls_alone() {
    let call = json!({ "type": "tool_use", "id": "c1", "name": "now", "input": {} });
    let text = json!({ "type": "text", "text": "It is noon." });
    for (signature, written) in [
        (None, r#"{"thinking":"hm","type":"thinking"}"#),
        (Some(""), r#"{"signature":"","thinking":"hm","type":"thinking"}"#),
    ] {
        let mut thinking = json!({ "type": "thinking", "thinking": "hm" });
        if let Some(signature) = signature {
            thinking["signature"] = json!(signature);
        }
        for (behind, is_sent) in [(&call, true), (&text, false)] {
            for streamed in [false, true] {
                let blocks = [thinking.clone(), behind.clone()];
                let body = sent_back(&blocks, streamed).await;
                assert_eq!(body.contains(written), is_sent, "{behind} {streamed}: {body}");
            }
        }
    }
}

/// Returns the request in which an answer of these blocks is sent back.
async fn sent_back(blocks: &[Value], streamed: bool) -> String {
    let server = ScriptedEndpoint::anthropic(vec![ScriptedAnswer::saying("yes")]);
    let provider = to(&server.base_url()).build().unwrap();
    let (label, body) = match streamed {
        false => (
            "application/json",
            json!({ "content": blocks, "stop_reason": "end_turn" }).to_string(),
        ),
        true => {
            let starts = blocks.iter().enumerate().map(|(index, block)| {
                json!({ "type": "content_block_start", "index": index, "content_block": block })
            });
            let stop = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } });
            let events = starts.chain([stop, json!({ "type": "message_stop" })]);
            ("text/event-stream", events.map(|event| format!("data: {event}\n\n")).collect())
        }
    };
    let answer = provider.read(label, body).await.unwrap();
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    let calls = answer.tool_calls.clone();
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    calls.iter().for_each(|call| messages.push(Message::tool(call.id.clone(), "noon", false)));
    messages.push(Message::user("sure?"));
    send(&provider, &ModelRequest::new(messages), false).await.unwrap();
    String::from_utf8(server.requests()[0].bytes.clone()).unwrap()
}
