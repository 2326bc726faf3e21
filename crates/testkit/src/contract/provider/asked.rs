//! Checks that requests are sent unchanged.

use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelSettings};
use layer0::ToolSpec;
use layer0::message::{Image, Message, ProviderState, StatePart, ToolCall, Transcript};
use serde_json::{Value, json};

use super::exchange::{answer, serve_replies};
use crate::server::patient;
use crate::server::shows_a_secret;
use crate::server::{Loopback, Request, send};
use crate::wire::{Cannot, Wire};

/// The texts of the parts of a request; only letters, so that no encoding changes them.
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
/// The number has an exact binary form, whatever the number of digits.
const TEMPERATURE: f32 = 0.625;

pub(super) async fn all_of_a_request_is_sent(wire: Wire) {
    let wire = &wire;
    for streamed in wire.stream_modes() {
        let server = serve_replies(wire, [wire.says(&answer(wire), streamed)]);
        let provider = (wire.provider)(&server.url(), patient());
        if let Err(error) = send(&*provider, &request(), streamed).await {
            panic!("a transcript with tools (streamed: {streamed}): {error}");
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

/// Sends a transcript, and returns the body of the request.
pub(super) async fn sent(
    wire: &Wire,
    messages: impl IntoIterator<Item = Message>,
    streamed: bool,
) -> Request {
    sent_by(wire, |_| messages, streamed).await
}

async fn sent_by<M: IntoIterator<Item = Message>>(
    wire: &Wire,
    messages: impl FnOnce(&Loopback) -> M,
    streamed: bool,
) -> Request {
    let server = serve_replies(wire, [wire.says(&answer(wire), streamed)]);
    let mut transcript = Transcript::default();
    messages(&server).into_iter().for_each(|message| transcript.push(message));
    let provider = (wire.provider)(&server.url(), patient());
    let said = send(&*provider, &ModelRequest::new(transcript), streamed).await;
    said.unwrap_or_else(|error| panic!("a transcript (streamed: {streamed}): {error}"));
    server.requests().swap_remove(0)
}

/// A user's message, an answer that called two tools, and their results.
pub(super) fn called(results: [Message; 2]) -> Vec<Message> {
    let call = |id: &str, name: &str| ToolCall::new(id, name, json!({ "quoted": "a \"b\" \\ ä" }));
    let calls = Arc::new([call("call_1", "first"), call("call_2", "second")]);
    let mut messages = vec![Message::user("go on"), Message::assistant("", calls)];
    messages.extend(results);
    messages
}

pub(super) fn result(call: &str, text: &str) -> Message {
    Message::tool(call.into(), text, false)
}

/// Arguments are an object, or the text of one, but never the text of a text.
pub(super) async fn arguments_are_sent_as_they_are(wire: Wire) {
    for streamed in wire.stream_modes() {
        let results = [result("call_1", "one"), result("call_2", "two")];
        let sent = sent(&wire, called(results), streamed).await;
        let arguments = json!({ "quoted": "a \"b\" \\ ä" });
        let count = count(&sent.body, &arguments);
        assert_eq!(count, 2, "arguments of two calls (streamed: {streamed}): {}", sent.body);
    }
}

/// Returns how often a value occurs in another one, as it is or as its text.
fn count(value: &Value, wanted: &Value) -> usize {
    match value {
        _ if value == wanted => 1,
        Value::Array(items) => items.iter().map(|item| count(item, wanted)).sum(),
        Value::Object(fields) => fields.values().map(|field| count(field, wanted)).sum(),
        Value::String(text) => match layer0::read_value(text) {
            Ok(read) => usize::from(read == *wanted),
            Err(_) => 0,
        },
        _ => 0,
    }
}

pub(super) async fn results_name_their_call(wire: Wire) {
    for streamed in wire.stream_modes() {
        let as_called = [result("call_1", "one"), result("call_2", "two")];
        let swapped = [result("call_2", "one"), result("call_1", "two")];
        let as_called = sent(&wire, called(as_called), streamed).await.body;
        let swapped = sent(&wire, called(swapped), streamed).await.body;
        assert_ne!(as_called, swapped, "a result says whose it is (streamed: {streamed})");
    }
}

/// Spec: T4
pub(super) async fn failed_results_are_marked(wire: Wire) {
    if !wire.can(Cannot::MarkFailures) {
        return;
    }
    for streamed in wire.stream_modes() {
        let failed = |is_error| {
            called([Message::tool("call_1".into(), "one", is_error), result("call_2", "two")])
        };
        let ok = sent(&wire, failed(false), streamed).await.body;
        let error = sent(&wire, failed(true), streamed).await.body;
        assert_ne!(ok, error, "a failed result is marked (streamed: {streamed})");
    }
}

pub(super) async fn images_are_sent(wire: Wire) {
    for streamed in wire.stream_modes() {
        let pictures = [b"GIF89a\x01\x00\x01\x00one", b"GIF89a\x01\x00\x01\x00two"];
        let images = pictures.map(|bytes| Image::from_bytes(bytes).expect("it begins as a GIF"));
        let data = images.clone().map(|image| image.data);
        let message = Message::User { content: "look".into(), images: Arc::new(images) };
        let body = sent(&wire, [message], streamed).await.body.to_string();
        assert!(body.contains("look"), "the text is sent (streamed: {streamed}): {body}");
        let places = data.map(|data| body.find(&*data));
        let is_in_order = places[0].is_some() && places[0] < places[1];
        let is_absent = places == [None, None] && !wire.can(Cannot::ShowImages);
        assert!(
            is_in_order || is_absent,
            "images are sent in their order (streamed: {streamed}): {body}"
        );
        // An endpoint refuses a message with a blank text, which images do not need.
        for words in ["", " \n"] {
            let images = Image::from_bytes(pictures[0]).into_iter().collect();
            let message = Message::User { content: words.into(), images };
            let body = sent(&wire, [message], streamed).await.body;
            assert!(!has_blank_part(&body), "no part is blank (streamed: {streamed}): {body}");
        }
    }
}

/// Returns whether a list anywhere in a value has a part with a blank text.
fn has_blank_part(value: &Value) -> bool {
    let is_blank = |part: &Value| part["text"].as_str().is_some_and(|text| text.trim().is_empty());
    match value {
        Value::Array(items) => items.iter().any(|item| is_blank(item) || has_blank_part(item)),
        Value::Object(fields) => fields.values().any(has_blank_part),
        _ => false,
    }
}

/// Parts without a place in the protocol are left out, and the text of the result stays.
///
/// Spec: Q8
pub(super) async fn images_of_tools_are_sent_or_named(wire: Wire) {
    let image = Image::from_bytes(b"GIF89a\x01\x00\x01\x00").expect("it begins as a GIF");
    let shown = Message::Tool {
        tool_call_id: "call_1".into(),
        content: "namedimage".into(),
        images: [image.clone()].into(),
        is_error: false,
    };
    for streamed in wire.stream_modes() {
        let messages = called([shown.clone(), result("call_2", "two")]);
        let body = sent(&wire, messages, streamed).await.body.to_string();
        assert!(body.contains("namedimage"), "the text is sent (streamed: {streamed}): {body}");
        assert_eq!(
            body.contains(&*image.data),
            wire.can(Cannot::ShowToolImages),
            "the image of a tool is sent (streamed: {streamed}): {body}"
        );
    }
}

/// Spec: P1
pub(super) async fn state_goes_back_to_whom_it_came_from(wire: Wire) {
    if !wire.can(Cannot::KeepState) {
        return;
    }
    // This thinking has no signature of an endpoint.
    let wire = wire.judged_as(None);
    let own = (wire.provider)("http://127.0.0.1:9", patient());
    for streamed in wire.stream_modes() {
        for provider in [own.name(), "another"] {
            let sent = sent_by(
                &wire,
                |server| {
                    let data = json!({ "type": "thinking", "signature": "signedthought" });
                    let part = StatePart::new(data);
                    let state = ProviderState::new(provider, own.model(), server.url(), [part]);
                    let said = Message::Assistant {
                        content: "hello".into(),
                        tool_calls: Arc::default(),
                        provider_state: Some(state),
                    };
                    [Message::user("hi"), said, Message::user("go on")]
                },
                streamed,
            )
            .await;
            let is_sent = sent.body.to_string().contains("signedthought");
            assert_eq!(is_sent, provider == own.name(), "state of `{provider}`: {}", sent.body);
        }
    }
}

fn request() -> ModelRequest {
    let call = ToolCall::new("call_1", "calledtool", json!({ "argument": "saidincall" }));
    let mut messages = Transcript::default();
    messages.push(Message::system("saidbysystem"));
    messages.push(Message::user("saidbyuser"));
    messages.push(Message::assistant("saidbyassistant", Arc::new([call])));
    messages.push(Message::tool("call_1".into(), "saidinresult", false));
    let schema = json!({
        "type": "object", "properties": { "toolparameter": { "type": "string" } },
    });
    // A tool other than the called one, so that matches in the call do not count here.
    let tool = ToolSpec::new("toolname", "tooldescription", schema);
    let settings =
        ModelSettings::new().max_output_tokens(MAX_OUTPUT_TOKENS).temperature(TEMPERATURE);
    ModelRequest::new(messages).tools([tool]).settings(settings)
}

/// Returns whether a number occurs anywhere in a value, as a number.
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
