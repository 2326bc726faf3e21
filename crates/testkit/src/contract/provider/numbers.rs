//! Checks of numbers from the model and back to it.

use std::sync::Arc;

use backstop_provider::{ModelRequest, ScriptedAnswer};
use layer0::JsonText;
use layer0::message::{Message, Transcript};
use serde_json::{Value, json};

use super::exchange::{answer, calling, serve_replies};
use crate::server::{Reply, patient, send};
use crate::wire::Wire;

/// Numbers that no 64-bit float or integer holds exactly as written.
const NUMBERS: &[&str] =
    &["3.10", "100.00", "1234e10", "18446744073709551616", "-0", "0.10000000000000000555"];
/// Placeholder of the numbers while an answer is encoded, because the encoder uses floats.
const MARK: &str = "@numbers@";

/// Arguments are the model's words, down to the zeros of a price.
///
/// Spec: P12
pub(super) async fn numbers_in_arguments_keep_their_text(wire: Wire) {
    let wire = &wire;
    let written = format!(r#"{{"n":[{}]}}"#, NUMBERS.join(","));
    for streamed in wire.stream_modes() {
        let said = wire.ask(reply(wire, &written, streamed), streamed).await;
        let said = said.unwrap_or_else(|error| panic!("streamed: {streamed}: {error}"));
        assert_eq!(said.tool_calls[0].arguments.get(), written, "streamed: {streamed}");

        let server = serve_replies(wire, [wire.says(&answer(wire), streamed)]);
        let mut messages = Transcript::default();
        messages.push(Message::user("go on"));
        messages.push(Message::assistant("", Arc::clone(&said.tool_calls)));
        messages.push(Message::tool(said.tool_calls[0].id.clone(), "paid", false));
        let provider = (wire.provider)(&server.url(), patient());
        let request = ModelRequest::new(messages);
        send(&*provider, &request, streamed).await.expect("an answer");
        let sent = String::from_utf8_lossy(&server.requests()[0].bytes).into_owned();
        assert!(sent.contains(&NUMBERS.join(",")), "streamed: {streamed}: {sent}");
    }
}

/// Returns an answer whose one call has these arguments.
fn reply(wire: &Wire, written: &str, streamed: bool) -> Reply {
    let says = |arguments: Value| {
        let script = ScriptedAnswer::default().tool_calls([calling("call-1", arguments)]);
        wire.says(&script, streamed)
    };
    let marked = says(json!({ "n": MARK }));
    let quoted = JsonText::string(MARK).to_string();
    let escaped = quoted.replace('"', "\\\"");
    let numbers = format!("[{}]", NUMBERS.join(","));
    let body = String::from_utf8(marked.body.clone()).unwrap_or_default();
    if body.contains(&quoted) || body.contains(&escaped) {
        let body = body.replace(&escaped, &numbers).replace(&quoted, &numbers);
        return Reply { body: body.into_bytes(), ..marked };
    }
    // Arguments that arrive in chunks are text.
    says(json!(written))
}
