//! What every provider has to keep, over real HTTP.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use layer0::failure::Failure;
use layer0::message::{Message, StopReason, Transcript};
use layer0::usage::TokenUsage;
use provider::{
    ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError, ScriptedAnswer, ScriptedError,
    ScriptedToolCall, StreamSink,
};
use serde_json::{Value, json};

use crate::{Ending, Loopback, Reply};

/// A provider under test, and how its protocol looks on the wire.
#[derive(Clone, Copy)]
pub struct Wire {
    /// Makes the provider for a server at this URL, such as `http://127.0.0.1:4000`. Its timeouts for
    /// the first byte and between chunks have to be below two seconds.
    pub provider: fn(&str) -> Arc<dyn Provider>,
    /// Makes the bytes of an answer; the request says whether it is to be streamed.
    pub reply: fn(&ScriptedAnswer, &Value) -> Reply,
    /// What the protocol has no form for.
    pub without: &'static [ErrorKind],
    /// What the protocol can only say before an answer has begun, and not in the middle of one.
    pub only_at_the_start: &'static [ErrorKind],
}

impl Wire {
    /// Makes the wire of a protocol that can say everything, anywhere.
    #[must_use]
    pub const fn of(
        provider: fn(&str) -> Arc<dyn Provider>,
        reply: fn(&ScriptedAnswer, &Value) -> Reply,
    ) -> Self {
        Self { provider, reply, without: &[], only_at_the_start: &[] }
    }
}

/// Collects what is streamed.
#[derive(Default)]
struct Heard(Mutex<String>);

impl StreamSink for Heard {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(piece);
    }

    fn thinking(&self, _: &str) {}

    fn usage(&self, _: TokenUsage) {}
}

/// Holds a provider against the contract of [`Provider`]: answers and tool calls arrive whole
/// wherever bytes are split, what is streamed is what is answered, each failure that a script can name
/// is itself behind the wire, no part of an answer is taken for
/// the whole, and a server that hangs, resets, sends a page for people or is not there is a failure
/// that may be tried again.
///
/// # Panics
///
/// When the provider breaks the contract; the message says where.
pub async fn provider_conformance(wire: Wire) {
    answers_arrive_whole(&wire).await;
    failures_are_what_they_were(&wire).await;
    no_part_is_taken_for_the_whole(&wire).await;
    what_breaks_may_be_tried_again(&wire).await;
}

async fn ask(
    wire: &Wire,
    reply: Reply,
    streamed: bool,
) -> (Result<ModelResponse, ProviderError>, String) {
    let server = Loopback::replying([reply]);
    send(wire, &server.url(), streamed).await
}

async fn send(
    wire: &Wire,
    url: &str,
    streamed: bool,
) -> (Result<ModelResponse, ProviderError>, String) {
    let mut messages = Transcript::default();
    messages.push(Message::user("hello"));
    let heard = Arc::new(Heard::default());
    let mut request = ModelRequest::new(messages);
    request.sink = Some(Arc::clone(&heard) as Arc<dyn StreamSink>);
    let provider = (wire.provider)(url);
    let result = match streamed {
        true => provider.stream(&request).await,
        false => provider.complete(&request).await,
    };
    let text = heard.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (result, text)
}

fn answer() -> ScriptedAnswer {
    ScriptedAnswer {
        text: Some("grüße 👍 one two three".into()),
        usage: Some(TokenUsage { input_tokens: 7, output_tokens: 5, cached_tokens: 0 }),
        ..ScriptedAnswer::default()
    }
}

fn calls() -> ScriptedAnswer {
    let call = |id: &str, city: &str| ScriptedToolCall {
        id: id.into(),
        name: "weather".into(),
        arguments: json!({ "city": city, "days": [1, 2] }),
    };
    let tool_calls = vec![call("call_1", "Zürich"), call("call_2", "Oslo")];
    ScriptedAnswer { tool_calls, ..ScriptedAnswer::default() }
}

fn reply(wire: &Wire, answer: &ScriptedAnswer, streamed: bool) -> Reply {
    (wire.reply)(answer, &json!({ "stream": streamed }))
}

async fn answers_arrive_whole(wire: &Wire) {
    for streamed in [false, true] {
        for piece_bytes in [None, Some(1), Some(7)] {
            let at = format!("streamed: {streamed}, pieces of {piece_bytes:?} bytes");
            let sent = Reply { piece_bytes, ..reply(wire, &answer(), streamed) };
            let (result, heard) = ask(wire, sent, streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(&*said.text, "grüße 👍 one two three", "{at}");
            assert_eq!((said.usage.input_tokens, said.usage.output_tokens), (7, 5), "{at}");
            assert_eq!(said.stop_reason, StopReason::End, "{at}");
            if streamed {
                assert_eq!(heard, *said.text, "what is streamed is what is answered: {at}");
            }
            let sent = Reply { piece_bytes, ..reply(wire, &calls(), streamed) };
            let (result, _) = ask(wire, sent, streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(said.stop_reason, StopReason::ToolUse, "{at}");
            let cities: Vec<&Value> =
                said.tool_calls.iter().map(|call| &call.arguments["city"]).collect();
            assert_eq!(cities, ["Zürich", "Oslo"], "calls in their order: {at}");
            assert!(said.tool_calls.iter().all(|call| &*call.name == "weather"), "{at}");
        }
    }
}

async fn failures_are_what_they_were(wire: &Wire) {
    let kinds = [
        ErrorKind::Transient,
        ErrorKind::RateLimited,
        ErrorKind::InvalidRequest,
        ErrorKind::ContentBlocked,
        ErrorKind::AuthFailed,
        ErrorKind::InvalidResponse,
        ErrorKind::ContextOverflow,
        ErrorKind::QuotaExhausted,
        ErrorKind::Timeout,
        ErrorKind::StreamTruncated,
    ];
    let texts = |kind: &ErrorKind| match wire.only_at_the_start.contains(kind) {
        true => vec![None],
        false => vec![None, Some("half an ans")],
    };
    let kinds = kinds.iter().filter(|kind| !wire.without.contains(kind));
    for (kind, text) in
        kinds.flat_map(|kind| texts(kind).into_iter().map(move |text| (*kind, text)))
    {
        let error = ScriptedError { kind, retry_after_ms: Some(250), status: None };
        let expected = ProviderError::from(&error);
        let text = text.map(Into::into);
        let answer = ScriptedAnswer { text, error: Some(error), ..ScriptedAnswer::default() };
        for streamed in [false, true] {
            let (result, _) = ask(wire, reply(wire, &answer, streamed), streamed).await;
            match result {
                Ok(_) => panic!("{kind:?} is no answer (streamed: {streamed})"),
                Err(error) => {
                    let at = format!("{kind:?} (streamed: {streamed}): {error:?}");
                    assert_eq!(error.code(), expected.code(), "{at}");
                    assert_eq!(error.retry(), expected.retry(), "{at}");
                }
            }
        }
    }
}

async fn no_part_is_taken_for_the_whole(wire: &Wire) {
    for streamed in [false, true] {
        for answer in [answer(), calls()] {
            let whole = reply(wire, &answer, streamed);
            let length = whole.body.len();
            // The last bytes may be an end of line that says nothing more.
            for at in (0..length.saturating_sub(4)).step_by(length / 40 + 1) {
                let (result, _) =
                    ask(wire, whole.clone().ending(Ending::CutAt(at)), streamed).await;
                assert!(
                    result.is_err(),
                    "{at} of {length} bytes were taken for an answer (streamed: {streamed})"
                );
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
async fn what_breaks_may_be_tried_again(wire: &Wire) {
    let limit = Duration::from_secs(20);
    for streamed in [false, true] {
        let whole = reply(wire, &answer(), streamed);
        let half = whole.body.len() / 2;
        for (name, broken) in [
            ("a reset", whole.clone().ending(Ending::ResetAt(half))),
            ("a hang inside the answer", whole.clone().ending(Ending::HangAt(half))),
            ("a hang before the answer", whole.clone().ending(Ending::HangBeforeHead)),
            ("a page with status 502", Reply::html(502)),
            ("a page with status 200", Reply::html(200)),
        ] {
            let asked = tokio::time::timeout(limit, ask(wire, broken, streamed)).await;
            let Ok((result, _)) = asked else { panic!("{name} hangs the call") };
            match result {
                Ok(_) => panic!("{name} is no answer (streamed: {streamed})"),
                Err(error) => assert!(error.is_retryable(), "{name}: {error}"),
            }
        }
        let nobody = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let nobody = nobody.expect("a port of the loopback interface can be bound");
        let (result, _) = send(wire, &format!("http://{nobody}"), streamed).await;
        let error = result.expect_err("nobody listens");
        assert!(error.is_retryable(), "a refused connection: {error}");
    }
}
