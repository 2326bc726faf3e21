//! Streams that are read late: they read the log, once, and again while it is locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{Erasures, EventLog, Log, LogError, MemoryLog};
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, ScriptedProvider};
use backstop_react::{Agent, Budget, Limits, RunStream, StreamItem};
use layer0::message::Message;
use serde_json::json;

use crate::bench::*;
use crate::intercepted::{Access, InterceptedLog};

/// A model with this number of tool calls, one per turn.
struct AddingTurns(usize);

#[async_trait]
impl Provider for AddingTurns {
    fn name(&self) -> &str {
        "turns"
    }
    fn model(&self) -> &str {
        "m"
    }
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let messages = request.messages.messages();
        let asked = messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count();
        let answer = match asked < self.0 {
            true => calls([call(&format!("c{asked}"), "add", json!({"x": asked, "y": 1}))])
                .text(format!("turn {asked}")),
            false => says("done"),
        };
        ScriptedProvider::new(vec![answer]).stream(request).await
    }
    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.complete(request).await
    }
}

/// A log that counts the reads of records, and is locked for the first ones.
struct ReadCount {
    bench: Bench,
    log: Arc<InterceptedLog>,
    reads: Arc<AtomicUsize>,
}

impl ReadCount {
    fn locked_for(locked: usize) -> Self {
        let bench = Bench::new();
        let reads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reads);
        let fails = move |access| match access {
            Access::Records if count.fetch_add(1, Ordering::SeqCst) < locked => {
                Some(LogError::Locked("the database is locked".into()))
            }
            _ => None,
        };
        let log = Arc::new(InterceptedLog::failing(&bench.log, fails));
        Self { bench, log, reads }
    }

    /// Starts a run with this number of turns, and returns its stream after the run has ended.
    fn stream(&self, turns: usize) -> impl Future<Output = (Arc<MemoryLog>, RunStream)> + use<> {
        let agent = Agent::builder(AddingTurns(turns))
            .clock(Arc::new(self.bench.clock.clone()))
            .tool(add)
            .limits(Limits::new().max_iterations(10_000))
            .budget(Budget::new().model_calls(None).tool_calls(None).events(None))
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .build()
            .unwrap();
        let (log, clock) = (Arc::clone(&self.bench.log), self.bench.clock.clone());
        async move {
            let stream = agent.stream("go");
            while log.summary(stream.run_id()).await.unwrap().is_none_or(|run| run.is_open()) {
                clock.sleep(Duration::from_millis(1)).await;
            }
            (log, stream)
        }
    }
}

/// Reads a stream to its end: the seqs of its events, and the ranges that are unread.
async fn read(mut stream: RunStream) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut seqs, mut unread, mut has_ended) = (Vec::new(), Vec::new(), false);
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Logged(event) => seqs.push(event.seq),
            StreamItem::Unread { from, to, .. } => unread.push((from, to)),
            StreamItem::Ended(result) => has_ended = result.is_ok(),
            _ => {}
        }
    }
    assert!(has_ended);
    (seqs, unread)
}

/// Spec: R6, D9, D14
#[tokio::test]
async fn late_reader_reads_the_record_once() {
    for turns in [100, 200] {
        let counted = ReadCount::locked_for(0);
        let stream = counted.stream(turns);
        let (seqs, unread) = on(&counted.bench, async move { read(stream.await.1).await }).await;
        let all = u64::try_from(seqs.len()).unwrap();
        assert_eq!((seqs, unread), ((1..=all).collect(), Vec::new()));
        assert!(all > 500 && counted.reads.load(Ordering::SeqCst) == 1);
    }
}

/// Spec: R6, D14
#[tokio::test]
async fn locked_log_is_read_again() {
    let counted = ReadCount::locked_for(5);
    let stream = counted.stream(100);
    let (seqs, unread) = on(&counted.bench, async move { read(stream.await.1).await }).await;
    assert_eq!(unread, []);
    assert_eq!(seqs, (1..=u64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!(counted.reads.load(Ordering::SeqCst), 6);
}

/// Spec: R6, D14
#[tokio::test]
async fn stream_gives_a_locked_log_up() {
    let counted = ReadCount::locked_for(usize::MAX);
    let stream = counted.stream(100);
    let (seqs, unread) = on(&counted.bench, async move { read(stream.await.1).await }).await;
    assert_eq!(seqs.len(), 256);
    assert_eq!(unread[0].0, 257);
    // The ranges after the first one are not waited for.
    let reads = counted.reads.load(Ordering::SeqCst) - unread.len();
    assert!((5..20).contains(&reads), "{reads} reads more than ranges");
}

/// Spec: D14
#[tokio::test]
async fn unread_events_are_printed() {
    let counted = ReadCount::locked_for(usize::MAX);
    let stream = counted.stream(100);
    let text = on(&counted.bench, async move {
        let mut text = Vec::new();
        stream.await.1.write_to(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    });
    let text = text.await;
    assert!(text.contains("! event 257 cannot be read: "), "{text}");
    assert!(text.contains("! events 258 to "), "{text}");
}

/// Spec: D1, D14
#[tokio::test]
async fn erased_event_alone_is_unread() {
    let counted = ReadCount::locked_for(0);
    let stream = counted.stream(100);
    let (seqs, unread) = on(&counted.bench, async move {
        let (log, stream) = stream.await;
        log.erase(stream.run_id(), 300).await.unwrap();
        read(stream).await
    })
    .await;
    assert_eq!(unread, [(300, 300)]);
    assert!(!seqs.contains(&300) && seqs.contains(&299) && seqs.contains(&301));
}
