//! How each provider is sent the settings of an agent, and which it refuses when it is asked.

use std::collections::BTreeMap;

use backstop_provider::{ModelRequest, ModelSettings, ReasoningEffort, ToolChoice};
use backstop_provider_http::Timeouts;
use backstop_testkit::{Loopback, hello, send};
use layer0::ToolSpec;
use serde_json::{Value, json};

use crate::support::wires::{ENDPOINTS, Endpoint};

/// Where a setting stands in the body, and as what; `None` where it is refused.
type Sent = Option<(&'static str, Value)>;

/// A setting as agent files write it, the setting, and what is sent in the order of [`ENDPOINTS`]:
/// Anthropic, OpenAI Chat, OpenAI Responses, Gemini, Bedrock, Ollama.
struct Row {
    written: &'static str,
    settings: ModelSettings,
    sent: [Sent; 6],
}

fn rows() -> Vec<Row> {
    let new = ModelSettings::new;
    let row = |written, settings, sent| Row { written, settings, sent };
    let at = |pointer: &'static str, value: Value| Some((pointer, value));
    let all = |pointers: [&'static str; 6], value: Value| {
        pointers.map(|pointer| (!pointer.is_empty()).then(|| (pointer, value.clone())))
    };
    vec![
        row(
            "max_output_tokens = 512",
            new().max_output_tokens(512),
            all(
                [
                    "/max_tokens",
                    "/max_tokens",
                    "/max_output_tokens",
                    "/generationConfig/maxOutputTokens",
                    "/inferenceConfig/maxTokens",
                    "/options/num_predict",
                ],
                json!(512),
            ),
        ),
        row(
            "temperature = 0.5",
            new().temperature(0.5),
            all(
                [
                    "/temperature",
                    "/temperature",
                    "/temperature",
                    "/generationConfig/temperature",
                    "/inferenceConfig/temperature",
                    "/options/temperature",
                ],
                json!(0.5),
            ),
        ),
        row(
            "temperature = 1.5",
            new().temperature(1.5),
            all(
                [
                    "",
                    "/temperature",
                    "/temperature",
                    "/generationConfig/temperature",
                    "",
                    "/options/temperature",
                ],
                json!(1.5),
            ),
        ),
        row(
            "top_p = 0.25",
            new().top_p(0.25),
            all(
                [
                    "/top_p",
                    "/top_p",
                    "/top_p",
                    "/generationConfig/topP",
                    "/inferenceConfig/topP",
                    "/options/top_p",
                ],
                json!(0.25),
            ),
        ),
        row(
            "stop = [\"END\"]",
            new().stop(["END"]),
            all(
                [
                    "/stop_sequences",
                    "/stop",
                    "",
                    "/generationConfig/stopSequences",
                    "/inferenceConfig/stopSequences",
                    "/options/stop",
                ],
                json!(["END"]),
            ),
        ),
        row(
            "seed = 42",
            new().seed(42),
            all(["", "/seed", "", "/generationConfig/seed", "", "/options/seed"], json!(42)),
        ),
        row(
            "seed = 4294967296",
            new().seed(1 << 32),
            all(["", "/seed", "", "", "", "/options/seed"], json!(4_294_967_296_u64)),
        ),
        row(
            "reasoning_effort = \"none\"",
            new().reasoning_effort(ReasoningEffort::None),
            [
                None,
                at("/reasoning_effort", json!("none")),
                at("/reasoning", json!({ "effort": "none" })),
                None,
                None,
                at("/think", json!(false)),
            ],
        ),
        row(
            "reasoning_effort = \"low\"",
            new().reasoning_effort(ReasoningEffort::Low),
            all(
                [
                    "/output_config/effort",
                    "/reasoning_effort",
                    "/reasoning/effort",
                    "/generationConfig/thinkingConfig/thinkingLevel",
                    "/outputConfig/effort",
                    "/think",
                ],
                json!("low"),
            ),
        ),
        row(
            "reasoning_effort = \"max\"",
            new().reasoning_effort(ReasoningEffort::Max),
            all(["/output_config/effort", "", "", "", "/outputConfig/effort", ""], json!("max")),
        ),
        row(
            "tool_choice = \"auto\"",
            new().tool_choice(ToolChoice::Auto),
            [
                at("/tool_choice", json!({ "type": "auto" })),
                at("/tool_choice", json!("auto")),
                at("/tool_choice", json!("auto")),
                at("/toolConfig/functionCallingConfig", json!({ "mode": "AUTO" })),
                at("/toolConfig/toolChoice", json!({ "auto": {} })),
                // It is what the protocol does anyway.
                at("/tool_choice", Value::Null),
            ],
        ),
        row(
            "tool_choice = \"required\"",
            new().tool_choice(ToolChoice::Required),
            [
                at("/tool_choice", json!({ "type": "any" })),
                at("/tool_choice", json!("required")),
                at("/tool_choice", json!("required")),
                at("/toolConfig/functionCallingConfig", json!({ "mode": "ANY" })),
                at("/toolConfig/toolChoice", json!({ "any": {} })),
                None,
            ],
        ),
        row(
            "tool_choice = \"none\"",
            new().tool_choice(ToolChoice::None),
            [
                at("/tool_choice", json!({ "type": "none" })),
                at("/tool_choice", json!("none")),
                at("/tool_choice", json!("none")),
                at("/toolConfig/functionCallingConfig", json!({ "mode": "NONE" })),
                None,
                None,
            ],
        ),
        row(
            "tool_choice = \"sql\"",
            new().tool_choice(ToolChoice::Tool("sql".into())),
            [
                at("/tool_choice", json!({ "type": "tool", "name": "sql" })),
                at("/tool_choice", json!({ "type": "function", "function": { "name": "sql" } })),
                at("/tool_choice", json!({ "type": "function", "name": "sql" })),
                at(
                    "/toolConfig/functionCallingConfig",
                    json!({ "mode": "ANY", "allowedFunctionNames": ["sql"] }),
                ),
                at("/toolConfig/toolChoice", json!({ "tool": { "name": "sql" } })),
                None,
            ],
        ),
    ]
}

/// What `tests/contract/outputs.rs` holds.
const OUTPUTS: &str = "
## Typed answers

The JSON Schema of a typed answer is sent where the protocol has a form for it, and only as much of it as
the form can say; the answer is held against the whole schema when it is here. Otherwise, and where the
provider does not show the form to the model, the instructions name the schema.

| provider | sent as | when | instructions too |
|---|---|---|---|
| Anthropic Messages | `output_config.format` | Claude 4.5 and later; a schema of an object that can be closed | no |
| OpenAI Chat Completions | `response_format.json_schema`, `strict` where it can be | a schema of an object; not with `output_schemas = false` | unless it is `strict` at OpenAI itself |
| OpenAI Responses | `text.format`, `strict` where it can be | a schema of an object | unless it is `strict` at OpenAI itself |
| Gemini | `generationConfig.responseJsonSchema` | a schema of an object; before Gemini 3 without tools | yes |
| Amazon Bedrock Converse | `outputConfig.textFormat` | Claude 4.5 and later; as for Anthropic | no |
| Ollama | `format` | without tools | yes |
";

/// Spec: P12
#[tokio::test]
async fn every_setting_is_sent_or_refused() {
    for Row { written, settings, sent } in rows() {
        for (endpoint, sent) in ENDPOINTS.iter().zip(sent) {
            let at = format!("{written}, {}", endpoint.title);
            match sent {
                Some((pointer, expected)) => {
                    for streamed in [false, true] {
                        let body = body(endpoint, &settings, streamed).await;
                        let found = body.pointer(pointer).unwrap_or(&Value::Null);
                        assert_eq!(*found, expected, "{at} at {pointer}: {body}");
                    }
                }
                None => {
                    let provider =
                        (endpoint.wire.provider)("http://127.0.0.1:9", Timeouts::default());
                    let refused = provider.check_settings(&settings).unwrap_err();
                    let key = written.split(' ').next().unwrap();
                    assert_eq!(refused.setting, key, "{at}");
                    assert!(refused.to_string().contains(provider.name()), "{refused}");
                }
            }
        }
    }
}

/// Spec: P12
#[tokio::test]
async fn no_tool_has_to_be_called_without_one() {
    for endpoint in &ENDPOINTS {
        let settings = ModelSettings::new().tool_choice(ToolChoice::Required);
        let provider = (endpoint.wire.provider)("http://127.0.0.1:9", Timeouts::default());
        if provider.check_settings(&settings).is_ok() {
            let request = hello().settings(settings);
            let body = sent(endpoint, &request, true).await;
            assert!(!body.to_string().to_lowercase().contains("choice"), "{body}");
            assert!(body.get("toolConfig").is_none(), "{body}");
        }
    }
}

/// Returns a value's JSON with its keys in order, whatever order serde_json keeps.
fn in_order(value: &Value) -> String {
    let Value::Object(fields) = value else { return value.to_string() };
    let fields: BTreeMap<&String, &Value> = fields.iter().collect();
    let fields = fields.iter().map(|(key, value)| format!("\"{key}\":{}", in_order(value)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

async fn body(endpoint: &Endpoint, settings: &ModelSettings, streamed: bool) -> Value {
    let provider = (endpoint.wire.provider)("http://127.0.0.1:9", Timeouts::default());
    assert_eq!(provider.check_settings(settings), Ok(()), "{}", endpoint.title);
    let tool = ToolSpec::new("sql", "Asks.", json!({ "type": "object" }));
    let settings = settings.clone();
    let request = hello().settings(settings).tools([tool]);
    sent(endpoint, &request, streamed).await
}

async fn sent(endpoint: &Endpoint, request: &ModelRequest, streamed: bool) -> Value {
    let said = backstop_provider::ScriptedAnswer::saying("ok");
    let server = Loopback::replying([endpoint.wire.says(&said, streamed)]);
    let provider = (endpoint.wire.provider)(&server.url(), Timeouts::default());
    send(&*provider, request, streamed).await.unwrap();
    server.requests().remove(0).body
}

/// Returns what the page says about settings.
pub(super) fn section() -> String {
    let titles: Vec<&str> = ENDPOINTS.iter().map(|endpoint| endpoint.title).collect();
    let mut text = format!(
        "\n## Settings\n\nWhere each setting of an agent file's `[model]` stands in a request \
         (`tests/contract/settings.rs`). What a protocol does not have is refused when the agent is \
         built.\n\n| setting | {} |\n|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len()),
    );
    for Row { written, sent, .. } in rows() {
        let cells = sent.map(|sent| match sent {
            None => "refused".to_owned(),
            Some((_, Value::Null)) => "as it is".to_owned(),
            Some((pointer, value)) => {
                let value = in_order(&value);
                format!("`{}`: `{value}`", pointer.trim_start_matches('/').replace('/', "."))
            }
        });
        text += &format!("| `{written}` | {} |\n", cells.join(" | "));
    }
    text + OUTPUTS
}
