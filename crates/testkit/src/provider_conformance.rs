//! What every provider has to keep, over real HTTP.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use layer0::failure::{Failure, Retry};
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use provider::{
    ErrorKind, ModelRequest, ModelResponse, ProviderError, ScriptedAnswer, ScriptedError,
    ScriptedToolCall, StreamSink,
};
use provider_http::Timeouts;
use serde_json::{Value, json};

use crate::ask::patient;
use crate::{Ending, Heard, Loopback, Reply, Wire, hello, send};

/// Holds a provider against the contract of [`Provider`](provider::Provider), over real HTTP:
///
/// - Answers and tool calls arrive whole wherever bytes are split, and what is streamed is what is
///   answered.
/// - Each failure that a script can name is itself behind the wire, with the wait it asks for.
/// - No part of an answer is taken for the whole.
/// - A server that hangs, resets, sends a page for people or is not there is a failure that may be
///   tried again, and is not tried again by the provider itself.
/// - A redirect, which would carry the key elsewhere, is not followed.
///
/// It needs what makes the provider, and what makes the bytes of an answer in its protocol; for a
/// protocol that this crate speaks there is a function, such as [`openai::reply`](crate::openai::reply).
///
/// ```no_run
/// use std::sync::Arc;
/// use testkit::{Wire, provider_conformance};
/// # struct MyProvider;
/// # #[async_trait::async_trait]
/// # impl provider::Provider for MyProvider {
/// #     fn name(&self) -> &str { "mine" }
/// #     fn model(&self) -> &str { "m" }
/// #     async fn complete(
/// #         &self,
/// #         _: &provider::ModelRequest,
/// #     ) -> Result<provider::ModelResponse, provider::ProviderError> { unimplemented!() }
/// # }
/// # impl MyProvider {
/// #     fn new(_: &str) -> Self { Self }
/// #     fn idle_timeout(self, _: std::time::Duration) -> Self { self }
/// # }
///
/// // #[tokio::test]
/// async fn my_provider_keeps_the_contract() {
///     let wire = Wire::of(
///         |url, timeouts| Arc::new(MyProvider::new(url).idle_timeout(timeouts.idle)),
///         testkit::openai::reply,
///     );
///     provider_conformance(wire).await;
/// }
/// ```
///
/// What the protocol cannot say goes into [`Wire::without`] and [`Wire::only_at_the_start`].
///
/// # Panics
///
/// When the provider breaks the contract; the message says where.
pub async fn provider_conformance(wire: Wire) {
    answers_arrive_whole(&wire).await;
    failures_are_what_they_were(&wire).await;
    no_part_is_taken_for_the_whole(&wire).await;
    what_breaks_may_be_tried_again(&wire).await;
    nothing_is_asked_but_once(&wire).await;
}

/// Long enough for a busy machine, short enough to wait for.
const TIMEOUTS: Timeouts = {
    let second = Duration::from_secs(1);
    Timeouts { first_byte: second, idle: second, ..patient() }
};

async fn ask(
    wire: &Wire,
    reply: Reply,
    streamed: bool,
) -> (Result<ModelResponse, ProviderError>, String) {
    let server = Loopback::replying([reply]);
    ask_at(wire, &server.url(), streamed).await
}

async fn ask_at(
    wire: &Wire,
    url: &str,
    streamed: bool,
) -> (Result<ModelResponse, ProviderError>, String) {
    let heard = Arc::new(Heard::default());
    let sink = Arc::clone(&heard) as Arc<dyn StreamSink>;
    let request = ModelRequest { sink: Some(sink), ..hello() };
    let provider = (wire.provider)(url, TIMEOUTS);
    (send(&*provider, &request, streamed).await, heard.text())
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

async fn answers_arrive_whole(wire: &Wire) {
    for streamed in [false, true] {
        for piece_bytes in [None, Some(1), Some(7)] {
            let at = format!("streamed: {streamed}, pieces of {piece_bytes:?} bytes");
            let sent = Reply { piece_bytes, ..wire.says(&answer(), streamed) };
            let (result, heard) = ask(wire, sent, streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(&*said.text, "grüße 👍 one two three", "{at}");
            assert_eq!((said.usage.input_tokens, said.usage.output_tokens), (7, 5), "{at}");
            assert_eq!(said.stop_reason, StopReason::End, "{at}");
            if streamed {
                assert_eq!(heard, *said.text, "what is streamed is what is answered: {at}");
            }
            let sent = Reply { piece_bytes, ..wire.says(&calls(), streamed) };
            let (result, _) = ask(wire, sent, streamed).await;
            let said = result.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(said.stop_reason, StopReason::ToolUse, "{at}");
            let cities: Vec<&Value> =
                said.tool_calls.iter().map(|call| &call.arguments["city"]).collect();
            assert_eq!(cities, ["Zürich", "Oslo"], "calls in their order: {at}");
            assert!(said.tool_calls.iter().all(|call| &*call.name == "weather"), "{at}");
            // A call that was given no id gets one from the machine.
            for (call, id) in said.tool_calls.iter().zip(["call_1", "call_2"]) {
                let given = call.id.as_str();
                assert!([id, ""].contains(&given), "`{given}` was sent as `{id}`: {at}");
            }
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
            let (result, _) = ask(wire, wire.says(&answer, streamed), streamed).await;
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
            let whole = wire.says(&answer, streamed);
            let length = whole.body.len();
            // The last bytes may be an end of line that says nothing more.
            let cuts = (0..length.saturating_sub(4)).step_by(length / 40 + 1);
            let cut = |at| whole.clone().ending(Ending::CutAt(at));
            let server = Loopback::replying(cuts.clone().map(cut));
            let provider = (wire.provider)(&server.url(), TIMEOUTS);
            for at in cuts {
                let result = send(&*provider, &hello(), streamed).await;
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
        let whole = wire.says(&answer(), streamed);
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
        let (result, _) = ask_at(wire, &format!("http://{nobody}"), streamed).await;
        let error = result.expect_err("nobody listens");
        assert!(error.is_retryable(), "a refused connection: {error}");
    }
}

async fn nothing_is_asked_but_once(wire: &Wire) {
    for streamed in [false, true] {
        let busy = || Reply::json(503, &json!({})).header("retry-after", "1");
        let server = Loopback::replying([busy(), busy(), busy()]);
        let (result, _) = ask_at(wire, &server.url(), streamed).await;
        let error = result.expect_err("a server that is busy does not answer");
        assert!(error.is_retryable(), "{error}");
        assert_eq!(server.count(), 1, "trying again is left to who asks (streamed: {streamed})");

        let elsewhere = Loopback::replying([]);
        let moved = Reply::new(307, "text/plain", "").header("location", elsewhere.url());
        let (result, _) = ask(wire, moved, streamed).await;
        let error = result.expect_err("a redirect is no answer");
        assert_eq!(error.retry(), Retry::Never, "a redirect leads where it led before: {error}");
        assert_eq!(elsewhere.count(), 0, "a redirect is not followed (streamed: {streamed})");
    }
}
