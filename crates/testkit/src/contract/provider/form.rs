//! Checks that the requested form of an answer is sent, unless the provider reports that it sends none.

use backstop_provider::{ModelRequest, OutputSchema, OutputSupport, ScriptedAnswer};
use layer0::JsonText;
use serde_json::{Value, json};

use super::exchange::serve_replies;
use crate::server::{hello, patient, send};
use crate::wire::Wire;

/// A name that only the form contains; only letters, so that no encoding changes it.
const FIELD: &str = "answerfield";

/// A form that every provider supports, and one that hardly any supports.
fn forms() -> [Value; 2] {
    let form = |field: Value| {
        json!({
            "type": "object", "properties": { FIELD: field }, "required": [FIELD],
            "additionalProperties": false,
        })
    };
    [
        form(json!({ "type": "string" })),
        form(json!({ "type": "string", "not": { "const": "no" }, "contentEncoding": "base64" })),
    ]
}

/// An agent writes the form into the instructions of a provider that does not send it, and only then.
///
/// Spec: P12
pub(super) async fn forms_of_answers_reach_the_model(wire: Wire) {
    for form in forms() {
        let text = JsonText::from_value(&form).expect("a form is JSON");
        for streamed in wire.stream_modes() {
            let asked = hello().output(OutputSchema::new(text.clone()));
            let idle = (wire.provider)("http://127.0.0.1:9", patient());
            if idle.output_support(&asked) != OutputSupport::Prompt {
                let body = sent(&wire, &asked, streamed).await;
                let is_sent = body.to_string().contains(FIELD);
                assert!(is_sent, "the form is not sent (streamed: {streamed}): {body}");
            }
        }
    }
}

async fn sent(wire: &Wire, request: &ModelRequest, streamed: bool) -> Value {
    let answer = ScriptedAnswer::saying(json!({ FIELD: "yes" }).to_string());
    let server = serve_replies(wire, [wire.says(&answer, streamed)]);
    let provider = (wire.provider)(&server.url(), patient());
    let said = send(&*provider, request, streamed).await;
    said.unwrap_or_else(|error| panic!("a form (streamed: {streamed}): {error}"));
    server.requests().swap_remove(0).body
}
