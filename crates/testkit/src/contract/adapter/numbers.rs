//! Numbers on their way from the model and back to it.

use std::sync::Arc;

use layer0::JsonText;
use layer0::message::{Message, Transcript};
use provider::ModelRequest;
use serde_json::{Value, json};

use super::{Adapter, scripted};
use crate::server::patient;
use crate::server::{Loopback, Reply, send};

/// What no 64-bit float or integer holds as it is written.
const NUMBERS: &[&str] =
    &["3.10", "100.00", "1234e10", "18446744073709551616", "-0", "0.10000000000000000555"];
/// What stands for the numbers while an answer is made, because it is made of floats.
const MARK: &str = "@numbers@";

/// Arguments are the model's words, down to the zeros of a price.
///
/// Spec: P12
pub async fn numbers_in_arguments_keep_their_text(adapter: &Adapter) {
    let written = format!(r#"{{"n":[{}]}}"#, NUMBERS.join(","));
    for streamed in [false, true] {
        let said = adapter.wire.ask(reply(adapter, &written, streamed), streamed).await;
        let said = said.unwrap_or_else(|error| panic!("streamed: {streamed}: {error}"));
        assert_eq!(said.tool_calls[0].arguments.get(), written, "streamed: {streamed}");

        let server = Loopback::replying([adapter.plain(streamed)]);
        let mut messages = Transcript::default();
        messages.push(Message::user("go on"));
        messages.push(Message::assistant("", Arc::clone(&said.tool_calls)));
        messages.push(Message::tool(said.tool_calls[0].id.clone(), "paid", false));
        let provider = (adapter.wire.provider)(&server.url(), patient());
        let request = ModelRequest::new(messages);
        send(&*provider, &request, streamed).await.expect("an answer");
        let sent = String::from_utf8_lossy(&server.requests()[0].bytes).into_owned();
        assert!(sent.contains(&NUMBERS.join(",")), "streamed: {streamed}: {sent}");
    }
}

/// Returns an answer whose one call has these arguments.
fn reply(adapter: &Adapter, written: &str, streamed: bool) -> Reply {
    let says = |arguments: Value| {
        let call = json!({ "id": "call-1", "name": "pay", "arguments": arguments });
        adapter.wire.says(&scripted(json!({ "tool_calls": [call] })), streamed)
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
    // Arguments that come in pieces are text.
    says(json!(written))
}
