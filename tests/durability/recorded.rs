//! Exchanges with a model, recorded over real HTTP and given again without a model to ask.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop::{Agent, OpenAi, Provider, RetryConfig, ScriptedAnswer};
use backstop_provider::{
    ErrorKind, ModelRequest, ModelResponse, ProviderError, RecordedProvider, ScriptedError,
    ScriptedProvider, TimeoutPhase,
};
use backstop_provider_http::Timeouts;
use backstop_react::AgentBuilder;
use backstop_testkit::{Ending, Heard, Loopback, Reply, hello, send};
use layer0::failure::{Effect, Exhausted, Failure, Retry, chain};
use layer0::usage::TokenUsage;
use serde_json::json;

use crate::support::wires::{ANTHROPIC, OPENAI};

fn says(text: &str) -> Reply {
    let answer = ScriptedAnswer::saying(text);
    backstop_testkit::openai::reply(&answer, &json!({ "stream": true }))
}

/// Spec: P10, P11. A recording of real exchanges is given again without a model to ask; another
/// input is refused.
#[tokio::test]
async fn recorded_exchanges_are_given_again_strictly() {
    const KEY: &str = "a-key-that-was-said";
    let error = Reply::json(503, &json!({ "error": { "message": format!("no, {KEY}") } }));
    let server = Loopback::replying([error, says(&format!("the key is {KEY}")), says("bye")]);
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).build().unwrap();
    let redact = |text: &str| text.replace(KEY, "[redacted]");
    let recording = Arc::new(RecordedProvider::recording(Arc::new(openai), redact));
    let config = RetryConfig::new().base(Duration::from_millis(0));
    let ask = |provider: Arc<dyn Provider>, input: &'static str| async move {
        let agent: Agent = AgentBuilder::from_shared(provider).retry(config).build().unwrap();
        agent.run(input).await
    };
    let provider = || Arc::clone(&recording) as Arc<dyn Provider>;
    ask(provider(), "what is the key?").await.unwrap();
    ask(provider(), "goodbye").await.unwrap();
    drop(server);
    let lines = recording.to_json_lines();
    assert_eq!(lines.lines().count(), 3);
    assert!(!lines.contains(KEY), "{lines}");

    let replayed = Arc::new(RecordedProvider::replaying(&lines, redact).unwrap());
    let provider = || Arc::clone(&replayed) as Arc<dyn Provider>;
    let said = ask(provider(), "what is the key?").await.unwrap();
    assert_eq!((said.text(), said.usage.model_attempts), ("the key is [redacted]", 2));
    assert_eq!(replayed.remaining(), 1);
    let failure = ask(provider(), "hello").await.unwrap_err();
    let why = format!("{failure:#}");
    assert!(
        why.contains("request 3 differs from the recorded one at `/messages/0/content`"),
        "{why}"
    );
}

/// What a failure says: code, retry, effect, status and the texts of the chain.
type Facts = (&'static str, Retry, Effect, Option<u16>, Vec<String>);

/// What one who asks sees of a call.
#[derive(Debug, PartialEq)]
struct Seen {
    result: Result<ModelResponse, Facts>,
    text: String,
    thinking: String,
    usage: Option<TokenUsage>,
    statuses: Vec<u16>,
}

async fn ask(provider: &dyn Provider, streamed: bool) -> Seen {
    let heard = Arc::new(Heard::default());
    let request = hello().sink(heard.clone());
    let facts = |error: ProviderError| {
        (error.code(), error.retry(), error.effect(), error.status(), chain(&error))
    };
    Seen {
        result: send(provider, &request, streamed).await.map_err(facts),
        text: heard.text(),
        thinking: heard.thinking(),
        usage: heard.usage().last().copied(),
        statuses: heard.statuses(),
    }
}

/// Asks a provider, and a recording of it; both are seen alike. Returns the code it failed with.
async fn check(real: Arc<dyn Provider>, streamed: bool) -> Option<&'static str> {
    let recording = RecordedProvider::recording(real, ToOwned::to_owned);
    let live = ask(&recording, streamed).await;
    let lines = recording.to_json_lines();
    assert_eq!(lines.lines().count(), 1, "one line for each exchange: {lines}");
    let replayed = RecordedProvider::replaying(&lines, ToOwned::to_owned).unwrap();
    assert_eq!(ask(&replayed, streamed).await, live, "{lines}");
    live.result.err().map(|(code, ..)| code)
}

/// Short limits for a reply that hangs; a busy machine needs more for any other.
fn timeouts(ending: Ending) -> Timeouts {
    let hangs = matches!(ending, Ending::HangAt(_) | Ending::HangBeforeHead);
    let long = Duration::from_secs(30);
    let limit = if hangs { Duration::from_millis(100) } else { long };
    Timeouts::all(long).first_byte(limit).idle(limit)
}

/// Spec: D6, P10
#[tokio::test]
async fn recorded_wire_replays_alike() {
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
    let mut scripts = vec![ScriptedAnswer::default()];
    for (kind, retry_after_ms) in kinds.iter().flat_map(|kind| [(*kind, None), (*kind, Some(250))])
    {
        let mut error = ScriptedError::new(kind);
        error.retry_after_ms = retry_after_ms;
        scripts.push(ScriptedAnswer::default().error(error));
    }
    let usage = TokenUsage::new(9, 4).cached_tokens(2);
    let said = ScriptedAnswer::saying("half an ans").thinking("hm").usage(usage);
    let begun = |script: &ScriptedAnswer| {
        let mut said = said.clone();
        said.error.clone_from(&script.error);
        said
    };
    let scripts: Vec<_> =
        scripts.iter().flat_map(|script| [script.clone(), begun(script)]).collect();

    let mut codes = BTreeSet::new();
    for (wire, streamed) in
        [OPENAI.wire, ANTHROPIC.wire].into_iter().flat_map(|wire| [(wire, false), (wire, true)])
    {
        let whole = wire.says(&said, streamed);
        let half = whole.body.len() / 2;
        let mut replies: Vec<_> =
            scripts.iter().map(|script| wire.says(script, streamed)).collect();
        replies.extend([
            Reply::json(404, &json!({ "error": { "message": "no such model" } })),
            Reply::json(529, &json!({})).header("retry-after", "7"),
            Reply::html(502),
            whole.clone().ending(Ending::HangBeforeHead),
            whole.clone().ending(Ending::HangAt(half)),
            whole.clone().ending(Ending::CloseAt(half)),
            whole.ending(Ending::ResetAt(half)),
        ]);
        for reply in replies {
            let timeouts = timeouts(reply.ending);
            let server = Loopback::replying([reply]);
            codes.extend(check((wire.provider)(&server.url(), timeouts), streamed).await);
        }
        let silent = Loopback::replying([]).url();
        codes.extend(check((wire.provider)(&silent, timeouts(Ending::Whole)), streamed).await);
    }
    // What no attempt over HTTP ends with is in the next test.
    let known = layer0::code::CATALOGUE.iter().map(|entry| entry.code);
    let missing: Vec<_> =
        known.filter(|code| code.starts_with("provider.") && !codes.contains(code)).collect();
    assert_eq!(missing, ["provider.circuit_open", "provider.other"]);
}

/// Spec: D6, E8, P10
#[tokio::test]
async fn recorded_layers_replay_alike() {
    let elapsed = Duration::from_millis(4_321);
    let exhausted = |last| ProviderError::from(Exhausted::new(3, elapsed, last));
    let io = std::io::Error::other(ProviderError::transport("inner", "innermost"));
    for error in [
        ProviderError::circuit_open(None),
        ProviderError::circuit_open(Some(Duration::from_nanos(1_234_567_890))),
        exhausted(ProviderError::timeout(TimeoutPhase::Connect, Some(Duration::from_secs(10)))),
        exhausted(ProviderError::transport("no connection", "refused")),
        ProviderError::Other(io.into()),
        ProviderError::rate_limited("slow down", Some(Duration::from_nanos(1))),
        ProviderError::timeout(TimeoutPhase::Attempt, Some(Duration::from_millis(1_500))),
        ProviderError::timeout(TimeoutPhase::Connect, None),
        ProviderError::transient("overloaded", Some(529))
            .with_retry_after(Some(Duration::from_millis(7))),
    ] {
        let failing = Failing(Mutex::new(Some(error)));
        check(Arc::new(failing), true).await.expect("a failure");
    }
}

/// Fails once.
struct Failing(Mutex<Option<ProviderError>>);

#[async_trait]
impl Provider for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn model(&self) -> &str {
        "failing"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        Err(self.0.lock().unwrap().take().unwrap())
    }
}

/// A failure says once what it was.
///
/// Spec: E7, P10
#[tokio::test]
async fn message_given_again_is_not_doubled() {
    let error = ProviderError::rate_limited("slow down", None);
    let recording =
        RecordedProvider::recording(Arc::new(Failing(Mutex::new(Some(error)))), ToOwned::to_owned);
    recording.complete(&hello()).await.unwrap_err();
    let lines = recording.to_json_lines();
    let replayed = RecordedProvider::replaying(&lines, ToOwned::to_owned).unwrap();
    let error = replayed.complete(&hello()).await.unwrap_err();
    assert_eq!(error.to_string(), "rate limited: slow down");
    assert!(
        lines.contains(r#""rate_limited":{"message":"slow down","retry_after":null}"#),
        "{lines}"
    );
}

/// Answers to `first` when it is told to, and to others at once.
struct Slow(tokio::sync::Semaphore);

#[async_trait]
impl Provider for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn model(&self) -> &str {
        "slow"
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let is_first = serde_json::to_string(&request.messages).unwrap().contains("first");
        if is_first {
            self.0.acquire().await.unwrap().forget();
        }
        let answer = if is_first { "one" } else { "two" };
        ScriptedProvider::saying([answer]).complete(request).await
    }
}

fn saying(text: &str) -> ModelRequest {
    let mut messages = layer0::message::Transcript::default();
    messages.push(layer0::message::Message::user(text));
    ModelRequest::new(messages)
}

/// Spec: P10
#[tokio::test]
async fn exchanges_keep_the_order_of_calls() {
    let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0)));
    let recording = RecordedProvider::recording(slow.clone(), ToOwned::to_owned);
    let (first, second) = (saying("first"), saying("second"));
    let (one, ()) = tokio::join!(biased; recording.complete(&first), async {
        recording.complete(&second).await.unwrap();
        slow.0.add_permits(1);
    });
    assert_eq!(&*one.unwrap().text, "one");
    let lines = recording.to_json_lines();
    let replayed = RecordedProvider::replaying(&lines, ToOwned::to_owned).unwrap();
    assert_eq!(&*replayed.complete(&first).await.unwrap().text, "one");
    assert_eq!(&*replayed.complete(&second).await.unwrap().text, "two");
    assert_eq!(replayed.remaining(), 0);
}

/// Spec: P10
#[tokio::test]
async fn dropped_call_keeps_its_permit_until_dropped_again() {
    let slow = Arc::new(Slow(tokio::sync::Semaphore::new(0)));
    let recording = RecordedProvider::recording(slow, ToOwned::to_owned);
    let (first, second) = (saying("first"), saying("second"));
    is_dropped(recording.complete(&first)).await;
    recording.complete(&second).await.unwrap();
    let lines = recording.to_json_lines();
    let replayed = RecordedProvider::replaying(&lines, ToOwned::to_owned).unwrap();
    is_dropped(replayed.complete(&first)).await;
    assert_eq!(&*replayed.complete(&second).await.unwrap().text, "two");
}

async fn is_dropped(call: impl Future<Output = Result<ModelResponse, ProviderError>>) {
    tokio::select! {
        biased;
        result = call => panic!("it was answered: {result:?}"),
        () = tokio::task::yield_now() => {}
    }
}

/// Spec: P10
#[tokio::test]
async fn recorded_stream_is_not_given_whole() {
    for streamed in [false, true] {
        let recording = RecordedProvider::recording(
            Arc::new(ScriptedProvider::saying(["x"])),
            ToOwned::to_owned,
        );
        send(&recording, &hello(), streamed).await.unwrap();
        let lines = recording.to_json_lines();
        let replayed = RecordedProvider::replaying(&lines, ToOwned::to_owned).unwrap();
        let error = send(&replayed, &hello(), !streamed).await.unwrap_err();
        let (was, is) = if streamed { ("as a stream", "whole") } else { ("whole", "as a stream") };
        let why = format!("request 1 was recorded {was} and is asked for {is}");
        assert_eq!(chain(&error)[1], why);
    }
}
