//! Runs on a journal that remembers what it answered, as a durable engine's does. Stopped after any entry,
//! rebuilt from its entries and executed again from the start, a run comes to the same record.

mod durable;
mod generated;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, EventLog, MemoryLog, RunWriter, Seed, read_events};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react_machine::{Machine, Setup};
use backstop_retry::{Jitter, RetryConfig};
use backstop_tool::{Arguments, JsonText, Tool, ToolContext, ToolError, ToolSpec};
use layer0::Timestamp;
use layer0::event::Event;
use layer0::failure::{Failure, Retry};
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::durable::{Durable, Entries};
use super::InFlight;
use super::start::Start;
use crate::agent::Agent;
use crate::approval::{ApprovalRequest, Approver};
use crate::journal::{AnyJournal, End, ExecutionEnd};
use crate::local_journal::LocalJournal;
use crate::request::RunRequest;
use crate::run_clock::RunClock;

const RUN: &str = "run_durable";

/// What a tool of a history does.
enum Does {
    Answers,
    /// Asks to be called again later, if it has not done so yet.
    Waits(AtomicU32),
    /// Stops the run.
    Cancels(CancellationToken),
}

struct Scripted {
    spec: ToolSpec,
    does: Does,
}

#[async_trait]
impl Tool for Scripted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        match &self.does {
            Does::Waits(left) if left.swap(0, Ordering::Relaxed) > 0 => {
                let busy = ToolError::ExecutionFailed("busy".into());
                Err(busy.with_retry(Retry::After(Duration::from_secs(2))))
            }
            Does::Cancels(token) => {
                token.cancel();
                Ok(JsonText::string("stopped"))
            }
            Does::Answers | Does::Waits(_) => Ok(JsonText::string("seen")),
        }
    }
}

/// Agrees to everything.
struct Agrees;

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        Some(Decision::approve("ops"))
    }
}

/// How a run ended, or the code it failed with.
type Ended = Result<Stop, &'static str>;

/// One process: what it keeps goes on in the next one.
struct Process {
    log: Arc<MemoryLog>,
    entries: Entries,
    /// How many entries of the durable journal there will be when it dies; `None` on the local journal.
    dies_after: Option<usize>,
}

impl Process {
    fn new(entries: Entries, dies_after: Option<usize>) -> Self {
        Self { log: Arc::new(MemoryLog::new()), entries, dies_after }
    }

    /// Executes the run from its start; `None` when it dies.
    async fn execute(&self, answers: Value) -> Option<Ended> {
        let clock = VirtualClock::starting_at(Timestamp::from_millis(1_000));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let log: Arc<dyn EventLog> = Arc::clone(&self.log) as _;
        let token = CancellationToken::new();
        let agent = agent(answers, &self.entries, Arc::clone(&log), &shared, &token);
        let request = RunRequest::new("go").run(RunId::from(RUN)).session("s-1");
        let request = request.cancelled_by(token.clone());
        let start = Start::new(Arc::clone(&agent.inner), request);
        let effects = start.effects();
        // The record is there as far as it was written.
        let known = self.log.summary(&RunId::from(RUN)).await.unwrap();
        let writer = match known.filter(|summary| summary.last_seq > 0) {
            Some(summary) => match self.log.claim(&RunId::from(RUN)).await {
                Ok(claim) => RunWriter::resume(log, summary, claim),
                Err(_) => RunWriter::without_log(RunId::from(RUN)),
            },
            None => RunWriter::new(log, RunId::from(RUN)),
        };
        let mut run_clock = RunClock::new(Arc::clone(&shared));
        run_clock.not_before(self.entries.last_time());
        let inbox = agent.inner.log.as_ref();
        let live = LocalJournal::new(writer, Arc::clone(&effects), run_clock, inbox, token);
        let (died, dies) = oneshot::channel();
        let journal = match self.dies_after {
            Some(entries) => {
                let journal = Durable::new(live, self.entries.clone(), entries, died);
                AnyJournal::Other(Box::new(journal))
            }
            None => {
                // The local journal does not die.
                std::mem::forget(died);
                AnyJournal::Local(Box::new(live))
            }
        };
        let machine = Machine::new(start.definition.clone(), Setup::new(RunId::from(RUN)));
        let (done, result) = oneshot::channel();
        let run = async move {
            let lived = async {
                let mut run = start.open_on(journal, effects, machine).await;
                let started = run.ledger.fact(start.started(Default::default()));
                run.ledger.step([started]).await.unwrap();
                run.go().await.map(|outcome| outcome.stop).map_err(|failure| failure.code())
            };
            let _ = done.send(tokio::select! {
                biased;
                _ = dies => None,
                ended = lived => Some(ended),
            });
        };
        tokio::spawn(clock.track(Box::pin(run)));
        result.await.unwrap()
    }
}

fn agent(
    answers: Value,
    entries: &Entries,
    log: Arc<dyn EventLog>,
    clock: &Arc<dyn Clock>,
    token: &CancellationToken,
) -> Agent {
    let answers: Vec<ScriptedAnswer> = serde_json::from_value(answers).unwrap();
    let tool = |name: &str, does: Does| Scripted {
        spec: ToolSpec::new(name, "does it", json!({ "type": "object" })).idempotent(),
        does,
    };
    let pays = Scripted {
        spec: ToolSpec::new("pay", "pays", json!({ "type": "object" })).idempotent().approval(),
        does: Does::Answers,
    };
    // A tool that waited in an earlier process waits no more than is left.
    let waits = 1_u32.saturating_sub(entries.waits());
    Agent::builder(ScriptedProvider::new(answers).starting_at(entries.attempts()))
        .name("durable")
        .clock(Arc::clone(clock))
        .retry(RetryConfig::default())
        .jitter(Jitter::seeded(7))
        .tool(tool("look", Does::Answers))
        .tool(tool("wait", Does::Waits(AtomicU32::new(waits))))
        .tool(tool("stop", Does::Cancels(token.clone())))
        .tool(pays)
        .approver(Agrees)
        .shared_log(log)
        .build()
        .unwrap()
}

impl Process {
    async fn record(&self) -> Vec<Value> {
        let (_, events) = read_events(&*self.log, &RunId::from(RUN)).await.unwrap();
        essence(&events)
    }
}

/// Returns a record without what depends on the clock of its process.
fn essence(events: &[Event]) -> Vec<Value> {
    events
        .iter()
        .map(|event| {
            let mut value = serde_json::to_value(&event.kind).unwrap();
            for key in ["duration_ms", "delay_ms", "usage"] {
                if let Some(fields) = value.as_object_mut() {
                    fields.remove(key);
                }
            }
            json!([event.seq, event.kind.event_type(), event.caused_by, value])
        })
        .collect()
}

/// A history that was executed in one process, on each journal.
struct Undisturbed {
    answers: Value,
    ended: Ended,
    record: Vec<Value>,
    /// How many entries its durable journal has.
    entries: usize,
}

impl Undisturbed {
    async fn execute(answers: Value) -> Self {
        let local = Process::new(Entries::default(), None);
        let ended = local.execute(answers.clone()).await.unwrap();
        let record = local.record().await;
        let mut undisturbed = Self { answers, ended, record, entries: usize::MAX };
        undisturbed.entries = undisturbed.dies_after(usize::MAX).await;
        undisturbed
    }

    /// Executes the history on the durable journal, with a death after this entry. Returns how many there
    /// are at the end.
    async fn dies_after(&self, entry: usize) -> usize {
        let first = Process::new(Entries::default(), Some(entry));
        let ended = first.execute(self.answers.clone()).await;
        assert!(ended.is_none() || entry >= self.entries, "it lived beyond {entry}");
        let second = Process { dies_after: Some(usize::MAX), ..first };
        let ended = second.execute(self.answers.clone()).await.unwrap();
        assert_eq!(ended, self.ended, "after {entry}");
        // What is sealed is sealed with the seed that the journal keeps.
        let (_, events) = read_events(&*second.log, &RunId::from(RUN)).await.unwrap();
        let seed = Seed::new(second.entries.first_id().unwrap().as_str());
        for event in &events {
            assert_eq!(event.salt, Some(seed.salt(event.seq)), "after {entry}");
        }
        let record = essence(&events);
        for (again, once) in record.iter().zip(&self.record) {
            assert_eq!(again, once, "after {entry}");
        }
        assert_eq!(record.len(), self.record.len(), "after {entry}");
        second.entries.count()
    }
}

/// Executes a history in one process, then again with a death after each of its entries.
async fn check(answers: Value) {
    let undisturbed = Undisturbed::execute(answers).await;
    assert!(undisturbed.entries > 8, "{} entries", undisturbed.entries);
    for entry in 1..=undisturbed.entries {
        undisturbed.dies_after(entry).await;
    }
}

/// Spec: J1, D1. The salts too.
#[tokio::test]
async fn tools_in_parallel_come_to_the_same_record() {
    check(json!([
        {"tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"at": 1}},
            {"id": "c2", "name": "look", "arguments": {"at": 2}},
        ]},
        {"text": "done"},
    ]))
    .await;
}

/// Spec: J1, R3
#[tokio::test]
async fn retries_come_to_the_same_record() {
    check(json!([
        {"error": {"kind": "rate_limited", "retry_after_ms": 3_000}},
        {"error": {"kind": "transient"}},
        {"tool_calls": [{"id": "c1", "name": "wait"}]},
        {"text": "done"},
    ]))
    .await;
}

/// Spec: J1, A1
#[tokio::test]
async fn an_approval_comes_to_the_same_record() {
    check(json!([
        {"tool_calls": [{"id": "c1", "name": "pay"}, {"id": "c2", "name": "look"}]},
        {"text": "done"},
    ]))
    .await;
}

/// Spec: J1, B3
#[tokio::test]
async fn a_cancellation_comes_to_the_same_record() {
    check(json!([
        {"tool_calls": [{"id": "c1", "name": "stop"}, {"id": "c2", "name": "wait"}]},
        {"text": "never"},
    ]))
    .await;
}

/// A step may end as it ends, and not as another one.
#[tokio::test]
async fn an_end_of_another_step_is_internal() {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::starting_at(Timestamp::from_millis(1_000)));
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let token = CancellationToken::new();
    let agent = agent(json!([]), &Entries::default(), Arc::clone(&log), &clock, &token);
    let start = Start::new(Arc::clone(&agent.inner), RunRequest::new("go").run(RunId::from(RUN)));
    let effects = start.effects();
    let writer = RunWriter::new(log, RunId::from(RUN));
    let run_clock = RunClock::new(clock);
    let inbox = agent.inner.log.as_ref();
    let live = LocalJournal::new(writer, Arc::clone(&effects), run_clock, inbox, token);
    let machine = Machine::new(start.definition.clone(), Setup::new(RunId::from(RUN)));
    let mut run = start.open_on(AnyJournal::Local(Box::new(live)), effects, machine).await;
    for (of, end) in [
        (InFlight::Attempt, End::Execution(ExecutionEnd::default())),
        (InFlight::Pause, End::Observers(Ok(Vec::new()))),
        (InFlight::Wait, End::More(None)),
    ] {
        let error = run.take_end(of, end).await.unwrap_err();
        assert_eq!(error.code(), "internal");
    }
    assert!(run.take_end(InFlight::Wait, End::Stopped).await.is_ok());
}
