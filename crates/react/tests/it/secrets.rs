//! Secrets of the process in the pieces for listeners and in the inputs of a run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::Log;
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_react::{Agent, Live, LivePiece, RunRequest};

use backstop_redact::Redactor;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError, ToolSpec};
use layer0::JsonText;
use layer0::id::{RunId, SessionId};
use layer0::message::StopReason;
use serde_json::json;

use crate::bench::{Bench, call, calls, says, tool_texts};

const KEY: &str = "plain/looking+secret=value";

/// Answers in the pieces it was given, attempt by attempt. All but the last attempt fail.
struct Dripping {
    attempts: Vec<Vec<Chunk>>,
    asked: AtomicUsize,
}

#[derive(Clone)]
enum Chunk {
    Text(String),
    Thinking(String),
}

#[async_trait]
impl Provider for Dripping {
    fn name(&self) -> &str {
        "dripping"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        unreachable!("it is streamed")
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let attempt = self.asked.fetch_add(1, Ordering::Relaxed);
        let sink = request.sink.as_ref().unwrap();
        let (mut text, mut thinking) = (String::new(), String::new());
        for piece in &self.attempts[attempt] {
            match piece {
                Chunk::Text(piece) => {
                    sink.text(piece);
                    text += piece;
                }
                Chunk::Thinking(piece) => {
                    sink.thinking(piece);
                    thinking += piece;
                }
            }
        }
        if attempt + 1 < self.attempts.len() {
            return Err(ProviderError::stream_truncated("an end"));
        }
        let usage = Default::default();
        let mut response = ModelResponse::new(text, Arc::default(), StopReason::End, usage);
        response.thinking = Some(thinking.into());
        Ok(response)
    }
}

/// The pieces that a listener got: thinking, text, and all of them in order.
struct Heard {
    thinking: String,
    text: String,
    all: String,
}

async fn heard(attempts: Vec<Vec<Chunk>>, redactor: Redactor) -> Heard {
    let last = u32::try_from(attempts.len()).unwrap();
    let agent = Agent::builder(Dripping { attempts, asked: AtomicUsize::new(0) })
        .retry(
            backstop_retry::RetryConfig::new()
                .base(Duration::from_millis(0))
                .cap(Duration::from_millis(0)),
        )
        .redactor(redactor)
        .build()
        .unwrap();
    let mut listener = agent.subscribe();
    agent.run("input").await.unwrap();
    drop(agent);
    let mut heard = Heard { thinking: String::new(), text: String::new(), all: String::new() };
    while let Some(live) = listener.next().await {
        assert!(!matches!(live, Live::Missed(_)));
        let Live::Delta { attempt, piece, .. } = live else { continue };
        let (LivePiece::Text(said) | LivePiece::Thinking(said)) = &piece else {
            panic!("{piece:?}")
        };
        heard.all += said;
        match piece {
            _ if attempt != last => {}
            LivePiece::Thinking(said) => heard.thinking += &said,
            LivePiece::Text(said) => heard.text += &said,
            _ => {}
        }
    }
    heard
}

fn redactor() -> Redactor {
    Redactor::new().with_secret(KEY).with_secret("plain/looking")
}

fn in_pieces(text: &str, size: usize) -> impl Iterator<Item = String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(size).map(|piece| piece.iter().collect()).collect::<Vec<_>>().into_iter()
}

/// Spec: E10, S9
#[tokio::test]
async fn live_pieces_never_add_up_to_a_key() {
    for size in 1..=KEY.len() {
        for form in [KEY.to_owned(), KEY.replace('/', "\\/"), KEY.replace('=', "%3D")] {
            let text = format!("it is {form} they say: {form}");
            let pieces = in_pieces(&text, size).map(Chunk::Text).collect();
            let heard = heard(vec![pieces], redactor()).await;
            assert_eq!(heard.text, "it is [redacted] they say: [redacted]", "{form} by {size}");
        }
    }
}

/// Spec: E10, S9. Each channel is a text of its own.
#[tokio::test]
async fn thinking_between_the_pieces_hides_no_key() {
    let (text, thinking) = (format!("text {KEY}!"), format!("thinking {KEY}"));
    let both =
        in_pieces(&text, 3).map(Chunk::Text).zip(in_pieces(&thinking, 4).map(Chunk::Thinking));
    let mut pieces: Vec<Chunk> = both.flat_map(|(text, thinking)| [text, thinking]).collect();
    pieces.extend(in_pieces(&text, 3).skip(in_pieces(&thinking, 4).count()).map(Chunk::Text));
    let heard = heard(vec![pieces], redactor()).await;
    assert_eq!(heard.text, "text [redacted]!");
    assert_eq!(heard.thinking, "thinking [redacted]");
}

/// Spec: E10, S9. The pieces of a failed attempt are void, and its last may be half a key.
#[tokio::test]
async fn an_attempt_that_fails_shows_no_half_key() {
    for cut in 1..KEY.len() {
        let first = vec![Chunk::Text(format!("a {}", &KEY[..cut]))];
        let second = vec![Chunk::Text(format!("{} b", &KEY[cut..]))];
        let heard = heard(vec![first, second], redactor().with_secret(KEY)).await;
        assert_eq!(heard.text, format!("{} b", &KEY[cut..]), "{cut}");
        let shown = heard.all.strip_prefix("a ").unwrap();
        assert!(shown.starts_with(&KEY[cut..]) || shown.starts_with("[redacted]"), "{}", heard.all);
    }
}

/// Spec: S9. What is no key is not kept for long.
#[tokio::test]
async fn text_without_a_key_is_shown_whole() {
    let text = "a plain answer: plain/look, and so on, pla";
    let pieces = in_pieces(text, 2).map(Chunk::Text).collect();
    assert_eq!(heard(vec![pieces], redactor()).await.text, text);
}

/// Spec: E10, S9. Changed, such an id would name something else.
#[tokio::test]
async fn ids_with_a_key_in_them_are_refused() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("x")]).redactor(redactor()).build().unwrap();
    let encoded = KEY.replace('/', "%2F");
    for request in [
        RunRequest::new("q").session(SessionId::new(format!("of {KEY}"))),
        RunRequest::new("q").session(SessionId::new(encoded)),
        RunRequest::new("q").run(RunId::new(KEY)),
        RunRequest::new("q").parent(RunId::new(KEY)),
    ] {
        let failure = agent.run(request).await.unwrap_err();
        let said = format!("{failure} {failure:#} {failure:?}");
        assert!(said.contains("holds a secret of this process"), "{said}");
        assert!(!said.contains("looking"), "{said}");
        assert!(bench.log.summary(&failure.run_id).await.unwrap().is_none());
    }
}

/// Spec: E10, S9
#[tokio::test]
async fn calls_are_recorded_without_keys() {
    let bench = Bench::new();
    let redactor = redactor().with_secret("12345678");
    let arguments = json!({ "how": 12345678, "b": [KEY] });
    let answers = vec![calls([call(KEY, KEY, arguments)]), says("done")];
    let agent = bench.agent(answers).redactor(redactor);
    let outcome = bench.run(agent).await.unwrap();
    let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
    let data: String = log.iter().map(|record| record.payload.text().unwrap()).collect();
    assert!(!data.contains("looking") && !data.contains("12345678"), "{data}");
}

/// Returns a large output with a key, made beforehand.
struct Dump(ToolSpec, JsonText);

#[async_trait]
impl Tool for Dump {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(self.1.clone())
    }
}

/// Spec: P7, S9, T7. Only a tool's own work counts for its timeout.
#[tokio::test]
async fn slow_redaction_takes_no_result_away() {
    let bench = Bench::new();
    let output = JsonText::string(&format!("{} {KEY}", "plain/look\\".repeat(100_000)));
    let spec = ToolSpec::new("dump", "Dumps.", json!({ "type": "object" }));
    let dump = Dump(spec.timeout(Duration::from_millis(300)), output);
    let answers = vec![calls([call("c1", "dump", json!({}))]), says("done")];
    let clock = Arc::new(backstop_clock::SystemClock);
    let agent = bench.agent(answers).redactor(redactor()).clock(clock).tool(dump);
    let outcome = bench.run(agent).await.unwrap();
    let shown = tool_texts(&outcome);
    assert!(shown[0].0.starts_with("plain/look") && !shown[0].1, "{shown:?}");
    let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
    assert!(log.iter().all(|record| !record.payload.text().unwrap().contains("looking")));
}

/// Spec: D2, S9. The same agent has the same digest.
#[tokio::test]
async fn a_definition_is_recorded_without_secrets() {
    let digests = Mutex::new(Vec::new());
    for _ in 0..2 {
        let bench = Bench::new();
        let source = json!({ "agent_file": {
            "model": { "extra_body": { "deep": { "api_key": "open sesame" } } },
            "tools": [{ "command": ["x", "--token", "open sesame", KEY] }],
        } });
        let agent = bench.agent(vec![says("x")]).redactor(redactor()).source(source);
        let outcome = bench.run(agent).await.unwrap();
        let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
        let started = log[0].payload.text().unwrap();
        assert!(!started.contains("open sesame") && !started.contains("looking"), "{started}");
        let at = started.find("digest").unwrap();
        digests.lock().unwrap().push(started[at..at + 80].to_owned());
    }
    let digests = digests.into_inner().unwrap();
    assert_eq!(digests[0], digests[1]);
}
