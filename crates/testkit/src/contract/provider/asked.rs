//! What is asked is sent.

use std::sync::Arc;

use layer0::ToolSpec;
use layer0::message::{Message, ToolCall, Transcript};
use provider::{ModelRequest, ModelSettings};
use serde_json::{Value, json};

use super::answer;
use crate::server::patient;
use crate::server::shows_a_secret;
use crate::server::{Loopback, Request, send};
use crate::wire::{Cannot, Wire};

/// What each part of a request says; letters alone, so that no encoding changes them.
const PARTS: [(&str, &str); 9] = [
    ("the system message", "saidbysystem"),
    ("the user's message", "saidbyuser"),
    ("the assistant's message", "saidbyassistant"),
    ("the name in a tool call", "calledtool"),
    ("the arguments of a tool call", "saidincall"),
    ("the result of a tool call", "saidinresult"),
    ("the name of a tool", "toolname"),
    ("the description of a tool", "tooldescription"),
    ("the schema of a tool", "toolparameter"),
];

const MAX_OUTPUT_TOKENS: u32 = 4711;
/// Is the same number in binary, however many digits are kept.
const TEMPERATURE: f32 = 0.625;

pub(super) async fn all_of_a_request_is_sent(wire: Wire) {
    let wire = &wire;
    for streamed in [false, true] {
        let server = Loopback::replying([wire.says(&answer(wire), streamed)]);
        let provider = (wire.provider)(&server.url(), patient());
        if let Err(error) = send(&*provider, &request(), streamed).await {
            panic!("a conversation with tools (streamed: {streamed}): {error}");
        }
        let requests = server.requests();
        let [sent] = &*requests else { panic!("{} requests were sent", requests.len()) };
        let body = String::from_utf8_lossy(&sent.bytes);
        for (part, said) in PARTS {
            assert!(body.contains(said), "{part} is not sent (streamed: {streamed}): {body}");
        }
        let place = |said| body.find(said);
        for said in ["saidbyassistant", "saidincall"] {
            let in_order = place("saidbyuser") < place(said) && place(said) < place("saidinresult");
            assert!(in_order, "messages are sent in their order: {body}");
        }
        for (setting, value) in
            [("max_output_tokens", MAX_OUTPUT_TOKENS.into()), ("temperature", TEMPERATURE.into())]
        {
            let is_sent = has_number(&sent.body, value);
            assert!(is_sent, "`{setting}` is not sent (streamed: {streamed}): {body}");
        }
        assert!(
            carries_the_key(sent) || !wire.can(Cannot::CarryKey),
            "the provider is to be made with `testkit::KEY`, and no header carries it"
        );
    }
}

fn request() -> ModelRequest {
    let call = ToolCall {
        id: "call_1".into(),
        name: "calledtool".into(),
        arguments: json!({ "argument": "saidincall" }).into(),
    };
    let mut messages = Transcript::default();
    messages.push(Message::system("saidbysystem"));
    messages.push(Message::user("saidbyuser"));
    messages.push(Message::assistant("saidbyassistant", Arc::new([call])));
    messages.push(Message::tool("call_1".into(), "saidinresult", false));
    let schema = json!({
        "type": "object", "properties": { "toolparameter": { "type": "string" } },
    });
    // Another than the one that was called, so that what is found in the call is not found here.
    let tool = ToolSpec::new("toolname", "tooldescription", schema);
    let settings = ModelSettings {
        max_output_tokens: Some(MAX_OUTPUT_TOKENS),
        temperature: Some(TEMPERATURE),
    };
    ModelRequest { tools: Arc::new([tool]), settings, ..ModelRequest::new(messages) }
}

/// Does this number stand anywhere in a value, as a number?
fn has_number(value: &Value, number: f64) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_number(item, number)),
        Value::Object(fields) => fields.values().any(|field| has_number(field, number)),
        other => other.as_f64() == Some(number),
    }
}

fn carries_the_key(sent: &Request) -> bool {
    shows_a_secret(&sent.path) || sent.headers.iter().any(|(_, value)| shows_a_secret(value))
}
