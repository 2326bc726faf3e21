//! Fields of an answer that are sent back to its endpoint. Bodies are compared as text.

use backstop_provider::{ModelRequest, ModelResponse, Provider};
use backstop_provider_openai::ChatDialect;
use backstop_testkit::{Loopback, Reply, send};
use layer0::ToolSpec;
use layer0::message::{Message, Transcript};
use serde_json::{Value, json};

use super::ask::to;

/// A server that answers whole or as a stream of two chunks, then with a word.
fn server(message: &Value, streamed: bool) -> Loopback {
    let first = match streamed {
        false => {
            let choice = json!({ "message": message, "finish_reason": "tool_calls" });
            Reply::json(200, &json!({ "choices": [choice] }))
        }
        true => {
            let chunk = |delta: &Value, reason: Option<&str>| {
                let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
                format!("data: {}\n\n", json!({ "choices": [choice] }))
            };
            let body = chunk(message, None) + &chunk(&json!({}), Some("tool_calls"));
            Reply::events(body + "data: [DONE]\n\n")
        }
    };
    let word = json!({ "choices": [{ "message": { "content": "ok" }, "finish_reason": "stop" }] });
    Loopback::replying([first, Reply::json(200, &word)])
}

fn conversation(answer: ModelResponse) -> ModelRequest {
    let mut messages = Transcript::default();
    messages.push(Message::user("hi"));
    let results: Vec<_> =
        answer.tool_calls.iter().map(|call| Message::tool(call.id.clone(), "ok", false)).collect();
    messages.push(Message::Assistant {
        content: answer.text,
        tool_calls: answer.tool_calls,
        provider_state: answer.provider_state,
    });
    results.into_iter().for_each(|result| messages.push(result));
    ModelRequest::new(messages)
}

/// Returns the body of the second request, in which the first answer is sent back.
async fn sent_back(message: Value, dialect: Option<ChatDialect>, streamed: bool) -> String {
    let server = server(&message, streamed);
    let mut builder = to(&server.url());
    if let Some(dialect) = dialect {
        builder = builder.with(|it| it.dialect(dialect));
    }
    let provider = builder.build().unwrap();
    let mut hello = Transcript::default();
    hello.push(Message::user("hi"));
    let answer = send(&provider, &ModelRequest::new(hello), streamed).await.unwrap();
    provider.complete(&conversation(answer)).await.unwrap();
    String::from_utf8(server.requests()[1].bytes.clone()).unwrap()
}

fn call(id: &str) -> Value {
    json!({ "index": 0, "id": id, "type": "function", "function": { "name": "act", "arguments": "{}" } })
}

/// Spec: P7
#[tokio::test]
async fn reasoning_goes_back_as_the_endpoint_wants_it() {
    let details = json!([{ "type": "reasoning.text", "text": "hm", "signature": "SIG" }]);
    let extra = json!({ "google": { "thought_signature": "SIG" } });
    let mut signed = call("a");
    signed["extra_content"] = extra;
    for (message, dialect, expected) in [
        (
            json!({ "reasoning_content": "hm", "tool_calls": [call("a")] }),
            None,
            r#""reasoning_content":"hm","tool_calls""#,
        ),
        (
            json!({ "reasoning_details": details, "reasoning": "hm", "tool_calls": [call("a")] }),
            None,
            r#""reasoning_details":[{"signature":"SIG","text":"hm","type":"reasoning.text"}],"tool_calls""#,
        ),
        (
            json!({ "reasoning": "hm", "tool_calls": [call("a")] }),
            Some(ChatDialect::OpenRouter),
            r#""reasoning":"hm","tool_calls""#,
        ),
        (
            json!({ "tool_calls": [signed] }),
            None,
            r#""extra_content":{"google":{"thought_signature":"SIG"}}"#,
        ),
        (
            json!({ "tool_calls": [call("a")] }),
            Some(ChatDialect::DeepSeek),
            r#""reasoning_content":"(The reasoning of this step was not recorded.)""#,
        ),
        (
            json!({ "tool_calls": [call("a")] }),
            Some(ChatDialect::Gemini),
            r#""extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}"#,
        ),
        (json!({ "tool_calls": [call("a")] }), None, r#""content":null,"tool_calls""#),
        (
            json!({ "reasoning_content": "hm", "tool_calls": [call("a")] }),
            Some(ChatDialect::OpenAi),
            r#""content":null,"tool_calls""#,
        ),
    ] {
        for streamed in [false, true] {
            let body = sent_back(message.clone(), dialect, streamed).await;
            assert!(body.contains(expected), "{expected} in {body}");
        }
    }
}

/// Mistral requires the thoughts of each answer back, with or without calls.
///
/// Spec: P1
#[tokio::test]
async fn thoughts_in_parts_go_back_to_mistral() {
    let thought = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }],
        "signature": "SIG" });
    let content = json!([thought, { "type": "text", "text": "I look." }]);
    let back = r#""content":[{"signature":"SIG","thinking":[{"text":"hm","type":"text"}],"type":"thinking"},{"type":"text","text":"I look."}]"#;
    let thought_alone = json!([thought]);
    let alone = r#""content":[{"signature":"SIG","thinking":[{"text":"hm","type":"text"}],"type":"thinking"}],"tool_calls""#;
    for (message, dialect, expected) in [
        (
            json!({ "content": content, "tool_calls": [call("a1B2c3D4e")] }),
            Some(ChatDialect::Mistral),
            back,
        ),
        (json!({ "content": content }), Some(ChatDialect::Mistral), back),
        (
            json!({ "content": thought_alone, "tool_calls": [call("a1B2c3D4e")] }),
            Some(ChatDialect::Mistral),
            alone,
        ),
        (json!({ "content": content }), None, r#""content":"I look.""#),
    ] {
        for streamed in [false, true] {
            let body = sent_back(message.clone(), dialect, streamed).await;
            assert!(body.contains(expected), "{expected} in {body}");
        }
    }
}

#[tokio::test]
async fn a_long_id_goes_to_its_gateway_alone() {
    let long = "call_1__thought__".to_owned() + &"A+/=".repeat(30);
    let message = json!({ "tool_calls": [call(&long)] });
    for streamed in [false, true] {
        let body = sent_back(message.clone(), None, streamed).await;
        assert_eq!(body.matches(&long).count(), 2, "{body}");
    }
    // The id comes from another endpoint.
    let other = server(&message, false);
    let answer =
        to(&other.url()).build().unwrap().complete(&ModelRequest::new(Transcript::default())).await;
    let request = conversation(answer.unwrap());
    let here = server(&json!({ "content": "ok" }), false);
    to(&here.url()).build().unwrap().complete(&request).await.unwrap();
    let body = String::from_utf8(here.requests()[0].bytes.clone()).unwrap();
    assert!(!body.contains(&long), "{body}");
}

/// These endpoints are known to refuse other ids, also those that came from them.
#[tokio::test]
async fn ids_of_a_strict_dialect_fit_it() {
    let long = "L".repeat(300);
    for (id, dialect, is_kept) in [
        (&*long, ChatDialect::OpenAi, false),
        ("k~2", ChatDialect::OpenAi, false),
        ("k~2", ChatDialect::Mistral, false),
        ("k~2", ChatDialect::Compatible, true),
        ("call_1", ChatDialect::OpenAi, true),
        ("a1B2c3D4e", ChatDialect::Mistral, true),
    ] {
        let body = sent_back(json!({ "tool_calls": [call(id)] }), Some(dialect), false).await;
        let times = body.matches(&format!("\"{id}\"")).count();
        assert_eq!(times, if is_kept { 2 } else { 0 }, "{id} {dialect:?}: {body}");
    }
}

/// The model sees plain property names, and the tool receives its own.
#[tokio::test]
async fn odd_property_names_go_there_and_back() {
    let mut message = call("a");
    message["function"]["arguments"] = json!(r#"{"user_id": 3.10}"#);
    let server = server(&json!({ "tool_calls": [message] }), false);
    let schema = json!({ "type": "object", "properties": { "user id": { "type": "number" } } });
    let mut hello = Transcript::default();
    hello.push(Message::user("hi"));
    let request = ModelRequest::new(hello).tools([ToolSpec::new("act", "Acts.", schema)]);
    let provider = to(&server.url()).build().unwrap();
    let answer = provider.complete(&request).await.unwrap();
    assert_eq!(answer.tool_calls[0].arguments.get(), r#"{"user id":3.10}"#);
    let again = conversation(answer).tools(request.tools);
    provider.complete(&again).await.unwrap();
    let bodies = server.requests().into_iter().map(|it| String::from_utf8(it.bytes).unwrap());
    let bodies: Vec<String> = bodies.collect();
    assert!(bodies.iter().all(|body| !body.contains("user id")), "{bodies:?}");
    assert!(bodies[1].contains(r#""arguments":"{\"user_id\":3.10}""#), "{}", bodies[1]);
}
