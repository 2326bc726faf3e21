//! How each provider is told of the form that an answer has to have.

use std::sync::Arc;

use backstop::{Anthropic, Bedrock, Gemini, Ollama, OpenAi, OpenAiResponses};
use backstop_provider::{OutputSchema, OutputSupport, Provider};
use backstop_provider_http::{HttpProviderBuilder, Protocol};
use backstop_testkit::{KEY, Loopback, Reply, hello};
use layer0::ToolSpec;
use serde_json::{Value, json};

/// As `schemars` writes a struct with one field that may be missing.
fn open() -> Value {
    json!({ "$schema": "x", "title": "Sum", "type": "object", "required": ["value"], "properties": {
        "value": { "type": "integer", "format": "uint8", "minimum": 0 },
        "note": { "type": ["string", "null"] },
    }})
}

/// A form that says exactly which properties there are.
fn strict() -> Value {
    json!({ "title": "Sum", "type": "object", "required": ["value"], "additionalProperties": false,
        "properties": { "value": { "type": "integer" } } })
}

/// Asks, and returns what the provider does with the form, and what it sent.
async fn asked<P: Protocol>(
    builder: HttpProviderBuilder<P>,
    schema: &Value,
    has_tools: bool,
) -> (OutputSupport, Value) {
    let server = Loopback::replying([Reply::json(500, &json!({}))]);
    let provider = builder.base_url(server.url()).api_key(KEY).build().unwrap();
    let mut request = hello().output(OutputSchema::new(schema.into()));
    if has_tools {
        request.tools = Arc::new([ToolSpec::new("t", "Asks.", json!({ "type": "object" }))]);
    }
    let support = provider.output_support(&request);
    if support == OutputSupport::Prompt {
        request.output = None;
    }
    provider.complete(&request).await.unwrap_err();
    (support, server.requests().remove(0).body)
}

#[track_caller]
fn check((support, body): (OutputSupport, Value), expected: OutputSupport, at: &str, sent: Value) {
    assert_eq!(support, expected, "{body}");
    assert_eq!(body.pointer(at).unwrap_or(&Value::Null), &sent, "{at} of {body}");
}

/// Spec: P12
#[tokio::test]
async fn openai_is_sent_the_form() {
    use OutputSupport::Constrained;
    let form =
        |schema: Value, strict: bool| json!({ "name": "Sum", "schema": schema, "strict": strict });
    for (schema, is_strict) in [(open(), false), (strict(), true)] {
        let chat = asked(OpenAi::new("m"), &schema, true).await;
        let sent = form(schema.clone(), is_strict);
        let wrapped = json!({ "type": "json_schema", "json_schema": sent });
        check(chat, Constrained, "/response_format", wrapped);
        let responses = asked(OpenAiResponses::new("m"), &schema, true).await;
        let mut flat = sent.clone();
        flat["type"] = json!("json_schema");
        check(responses, Constrained, "/text/format", flat);
    }
    let without = OpenAi::new("m").with(|it| it.output_schemas(false));
    let without = asked(without, &strict(), false).await;
    check(without, OutputSupport::Prompt, "/response_format", Value::Null);
    let list = asked(OpenAi::new("m"), &json!({ "type": "array" }), false).await;
    check(list, OutputSupport::Prompt, "/response_format", Value::Null);
}

/// Spec: P12
#[tokio::test]
async fn claude_is_sent_a_closed_form() {
    use OutputSupport::{Native, Prompt};
    let closed = json!({ "title": "Sum", "type": "object", "required": ["value"],
        "additionalProperties": false, "properties": {
            "value": { "type": "integer" }, "note": { "type": ["string", "null"] },
    }});
    let anthropic = asked(Anthropic::new("claude-sonnet-4-5"), &open(), true).await;
    let format = json!({ "type": "json_schema", "schema": closed });
    check(anthropic, Native, "/output_config/format", format);
    let older = asked(Anthropic::new("claude-3-5-haiku-latest"), &open(), true).await;
    check(older, Prompt, "/output_config", Value::Null);
    let map = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let map = asked(Anthropic::new("claude-sonnet-4-5"), &map, true).await;
    check(map, Prompt, "/output_config", Value::Null);

    let bedrock = |model: &str| Bedrock::new(model).with(|it| it.region("eu-central-1"));
    let (support, body) =
        asked(bedrock("eu.anthropic.claude-sonnet-4-5-v1:0"), &open(), true).await;
    let format = &body["outputConfig"]["textFormat"];
    assert_eq!((support, &format["type"]), (Native, &json!("json_schema")), "{body}");
    let form = &format["structure"]["jsonSchema"];
    let schema: Value = serde_json::from_str(form["schema"].as_str().unwrap()).unwrap();
    assert_eq!((&form["name"], schema), (&json!("Sum"), closed), "{body}");
    check(asked(bedrock("meta.llama3"), &open(), true).await, Prompt, "/outputConfig", Value::Null);
}

/// Spec: P12
#[tokio::test]
async fn gemini_and_ollama_call_tools_first() {
    use OutputSupport::{Constrained, Prompt};
    let at = "/generationConfig/responseJsonSchema";
    let sent = json!({ "title": "Sum", "type": "object", "required": ["value"], "properties": {
        "value": { "type": "integer", "minimum": 0 }, "note": { "type": ["string", "null"] },
    }});
    let older = || Gemini::new("gemini-2.5-flash");
    check(asked(older(), &open(), false).await, Constrained, at, sent.clone());
    check(asked(older(), &open(), true).await, Prompt, at, Value::Null);
    check(asked(Gemini::new("gemini-3-pro"), &open(), true).await, Constrained, at, sent);
    let json = asked(older(), &open(), false).await;
    check(json, Constrained, "/generationConfig/responseMimeType", json!("application/json"));
    check(asked(Ollama::new("m"), &open(), false).await, Constrained, "/format", open());
    check(asked(Ollama::new("m"), &open(), true).await, Prompt, "/format", Value::Null);
}
