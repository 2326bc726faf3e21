//! Runs as streams: every event, deltas, and the end as the last item.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{EventLog, MemoryLog};
use backstop_provider::{ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, Budget, Limits, LivePiece, RunRequest, StreamItem};
use futures_util::StreamExt;
use layer0::event::EventKind;
use layer0::message::Message;
use serde_json::json;

use crate::bench::*;

/// A model with this number of tool calls, one per turn, that then repeats the input in pieces.
struct Turns(usize);

impl Turns {
    fn answer(&self, request: &ModelRequest) -> ScriptedAnswer {
        let messages = request.messages.messages();
        let asked = messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count();
        if asked < self.0 {
            let arguments = json!({"x": asked, "y": 1});
            let calls = calls([call(&format!("c{asked}"), "add", arguments)]);
            return calls.text(format!("turn {asked}"));
        }
        let input = messages.iter().find_map(|message| match &**message {
            Message::User { content, .. } => Some(content.to_string()),
            _ => None,
        });
        says(&input.unwrap())
    }
}

#[async_trait]
impl Provider for Turns {
    fn name(&self) -> &str {
        "turns"
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        ScriptedProvider::new(vec![self.answer(request)]).complete(request).await
    }
    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        ScriptedProvider::new(vec![self.answer(request)]).stream(request).await
    }
}

/// Never answers.
struct Silent;

#[async_trait]
impl Provider for Silent {
    fn name(&self) -> &str {
        "silent"
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        std::future::pending().await
    }
}

fn logged(agent: AgentBuilder) -> AgentBuilder {
    agent.shared_log(Arc::new(MemoryLog::new()))
}

fn turning(turns: usize) -> AgentBuilder {
    let limits = Limits::new().max_iterations(200);
    let budget = Budget::new().model_calls(None).tool_calls(None);
    Agent::builder(Turns(turns)).tool(add).limits(limits).budget(budget)
}

fn transient(text: &str) -> ScriptedAnswer {
    fails(ErrorKind::Transient).text(text)
}

fn retrying(answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    let retry = backstop_retry::RetryConfig::new()
        .base(std::time::Duration::from_millis(0))
        .cap(std::time::Duration::from_millis(0));
    Agent::builder(ScriptedProvider::new(answers)).retry(retry)
}

/// Spec: D14, V1. Fifty runs of one agent, of which each is read by its own reader, some only when
/// all is over.
#[tokio::test]
async fn every_reader_gets_its_own_run_whole() {
    async fn check(agent: AgentBuilder) {
        let agent = agent.build().unwrap();
        let streams: Vec<_> = (0..50).map(|n| (n, agent.stream(format!("input {n}")))).collect();
        // Half of the streams are read long after the earlier ones have ended.
        let (prompt, late): (Vec<_>, Vec<_>) = streams.into_iter().partition(|(n, _)| n % 2 == 1);
        for (n, mut stream) in prompt.into_iter().chain(late) {
            let run = stream.run_id().clone();
            let (mut seqs, mut text, mut end) = (Vec::new(), String::new(), None);
            while let Some(item) = StreamExt::next(&mut stream).await {
                assert!(end.is_none(), "nothing follows the end");
                match item {
                    StreamItem::Logged(event) => {
                        assert_eq!(event.run, run);
                        if matches!(event.kind, EventKind::ModelRequested(_)) {
                            text.clear();
                        }
                        seqs.push(event.seq);
                    }
                    StreamItem::Delta { piece: LivePiece::Text(piece), .. } => text += &piece,
                    StreamItem::Ended(result) => end = Some(result.unwrap()),
                    other => panic!("{other:?}"),
                }
            }
            let end = end.unwrap();
            assert_eq!((&end.run_id, end.text()), (&run, &*format!("input {n}")));
            assert_eq!(text, end.text());
            assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
            assert!(seqs.len() > 300, "{}", seqs.len());
        }
    }
    check(turning(60)).await;
    check(logged(turning(60))).await;
}

/// Spec: R6, D14
#[tokio::test]
async fn failed_attempt_precedes_the_next_ones_deltas() {
    let agent = retrying(vec![transient("half an"), says("whole")]).build().unwrap();
    let mut stream = agent.stream("?");
    let mut heard = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Delta { call, attempt, piece: LivePiece::Text(text) } => {
                heard.push(format!("{call}.{attempt} {text}"));
            }
            StreamItem::Logged(event) => {
                if let EventKind::ModelAttempted(attempted) = &event.kind {
                    let code = attempted.code.as_ref().map_or("ok", |code| code.as_str());
                    heard.push(format!("{}.{} {code}", attempted.call, attempted.attempt));
                }
            }
            _ => {}
        }
    }
    assert_eq!(heard, ["1.1 half an", "1.1 provider.transient", "1.2 whole", "1.2 ok"]);
}

/// Spec: D14. What was left out of the deltas is made up for from the event that has the answer.
#[tokio::test]
async fn late_reader_gets_the_whole_text() {
    for logs in [false, true] {
        let long = "0123456789 ".repeat(40_000);
        let agent = retrying(vec![transient(&long), says(&long), says("next")]);
        let agent = if logs { logged(agent) } else { agent }.build().unwrap();
        let mut stream = agent.stream("?");
        let mut text = String::new();
        while let Some(item) = stream.next().await {
            match item {
                StreamItem::Delta { attempt: 2, piece: LivePiece::Text(piece), .. } => {
                    text += &piece;
                }
                StreamItem::Ended(result) => assert!(result.unwrap().text() == long),
                _ => {}
            }
        }
        assert!(text == long, "{} of {} bytes", text.len(), long.len());
    }
}

/// Spec: D14, D8. The run is free for the next one at once.
#[tokio::test]
async fn dropped_stream_stops_and_frees_its_run() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let agent = Agent::builder(Silent).shared_log(Arc::clone(&log)).build().unwrap();
    let mut stream = agent.stream("?");
    let run = stream.run_id().clone();
    while let Some(item) = stream.next().await {
        if matches!(&item, StreamItem::Logged(event) if matches!(event.kind, EventKind::ModelRequested(_)))
        {
            break;
        }
    }
    assert!(log.claim(&run).await.is_err(), "the run holds its claim");
    drop(stream);
    assert!(log.claim(&run).await.is_ok(), "the run is gone");
}

/// Spec: D14
#[tokio::test]
async fn cancelled_run_ends_its_stream() {
    let agent = logged(Agent::builder(Silent)).build().unwrap();
    let token = backstop_react::CancellationToken::new();
    let stream = agent.stream(RunRequest::new("?").cancelled_by(token.clone()));
    token.cancel();
    let outcome = stream.finish().await.unwrap();
    assert_eq!(outcome.stop.reason().map(|code| code.to_string()), Some("run.cancelled".into()));
}

/// Spec: D14, E11. A stream is no place to wait for ever.
#[test]
fn lost_task_ends_its_stream() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let agent = Agent::builder(Silent).build().unwrap();
    let first = runtime();
    let stream = first.block_on(async { agent.stream("?") });
    drop(first);
    let failure = runtime().block_on(stream.finish()).unwrap_err();
    assert_eq!(failure.code(), "internal");

    let agent = retrying(vec![says("late")]).build().unwrap();
    let outside = agent.stream("?");
    assert_eq!(runtime().block_on(outside.finish()).unwrap().text(), "late");
}

/// Spec: D14
#[tokio::test]
async fn stream_is_written_as_text() {
    let batch = calls([call("c1", "add", json!({"x": 1, "y": 2}))]);
    let answers = vec![transient("half"), batch, says("It is \u{1b}[31m3.")];
    let agent = retrying(answers).tool(add).build().unwrap();
    let mut text = Vec::new();
    let outcome = agent.stream("?").write_to(&mut text).await.unwrap();
    assert_eq!(outcome.usage.tool_calls, 1);
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "half");
    assert!(lines[1].contains("provider.transient") && lines[1].contains("void"), "{text}");
    assert!(lines[2].contains("→ add") && lines[3].contains("✓ add"), "{text}");
    assert_eq!(lines[4..], ["It is [31m3."]);

    struct Gone;
    impl io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let whole = retrying(vec![says("yes")]).stream(false).build().unwrap();
    assert_eq!(whole.stream("?").write_to(Gone).await.unwrap().text(), "yes");
    let whole = retrying(vec![says("yes")]).stream(false).build().unwrap();
    let mut text = Vec::new();
    whole.stream("?").write_to(&mut text).await.unwrap();
    assert_eq!(text, b"yes\n");
}

/// Spec: D14
#[tokio::test]
async fn failures_are_written_as_lines() {
    let below = retrying(vec![fails(ErrorKind::AuthFailed)]).name("below").build().unwrap();
    let asks = calls([call("c1", "below", json!({"input": "go"}))]);
    let agent = retrying(vec![asks, fails(ErrorKind::AuthFailed)]).tool(below.as_tool("Fails."));
    let mut text = Vec::new();
    agent.build().unwrap().stream("?").write_to(&mut text).await.unwrap_err();
    let text = String::from_utf8(text).unwrap();
    for line in [
        "✗ operator below failed (provider.auth_failed)",
        "! model provider.auth_failed after 1 attempt",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Spec: D10, D14. Emoji that are joined stay so, though pieces come apart.
#[tokio::test]
async fn written_text_hides_and_turns_nothing() {
    let given = "a\u{200b}b\u{202e}c 👨\u{200d}👩 r\u{200d}m\u{e0041}\u{feff}";
    for stream in [true, false] {
        let agent = retrying(vec![says(given)]).stream(stream).build().unwrap();
        let mut text = Vec::new();
        agent.stream("?").write_to(&mut text).await.unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "abc 👨\u{200d}👩 rm\n");
    }
}
