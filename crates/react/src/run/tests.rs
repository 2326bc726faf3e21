//! Runs on a journal that remembers its answers, as a durable engine's does. Stopped after any entry, rebuilt from its
//! entries and executed again from the start, a run has the same record.

mod durable;
mod generated;
mod process;

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_clock::{Clock, RunClock, VirtualClock};
use backstop_event_log::{EventLog, MemoryLog, RunWriter, Seed};
use backstop_react_machine::{Machine, Setup};
use layer0::Timestamp;
use layer0::event::Event;
use layer0::failure::Failure;
use layer0::id::RunId;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::durable::Entries;
use self::process::{Ended, History, Process, RUN, agent};
use super::StepPurpose;
use super::start::StartingRun;
use crate::journal::{AnyJournal, ExecutionEnd, StepEnd};
use crate::local_journal::LocalJournal;
use crate::request::RunRequest;

/// Fields that depend on the clock of a process, and the number of times an error was stored: an error that a process
/// stored just before it died is stored again.
const DIFFERS: [&str; 4] = ["duration_ms", "first_token_ms", "wall_ms", "occurrences"];

/// Returns a record without the fields that may differ; random ids are numbered.
fn essence(events: &[Event]) -> Vec<Value> {
    let mut drawn = BTreeMap::new();
    let essence = |event: &Event| {
        let mut value = serde_json::to_value(&event.kind).unwrap();
        strip(&mut value, &mut drawn);
        json!([event.seq, event.kind.event_type(), event.caused_by, value])
    };
    events.iter().map(essence).collect()
}

fn strip(value: &mut Value, drawn: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !DIFFERS.contains(&key.as_str()));
            fields.values_mut().for_each(|field| strip(field, drawn));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, drawn)),
        Value::String(text) => {
            let (said, rest) = text.split_once(" (seen ").unwrap_or((text, ""));
            let text_once = format!("{said}{}", rest.split_once(" times)").map_or("", |it| it.1));
            let words = text_once
                .split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)));
            *text = words.map(|word| numbered(word, drawn)).collect();
        }
        _ => {}
    }
}

/// The id of a child run is random, and so is that of an error whose text names it.
fn numbered(word: &str, drawn: &mut BTreeMap<String, usize>) -> String {
    if word.starts_with(RUN) || !["run_", "err_"].iter().any(|kind| word.starts_with(kind)) {
        return word.to_owned();
    }
    let next = drawn.len() + 1;
    let id = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{}{}", drawn.entry(id.to_owned()).or_insert(next), &word[id.len()..])
}

/// A history that was executed in one process, on each journal.
struct Undisturbed {
    history: History,
    ended: Ended,
    record: Vec<Value>,
    /// Number of entries in its durable journal.
    entries: usize,
}

impl Undisturbed {
    fn execute(history: History) -> Self {
        let local = Process::new(Entries::default(), None);
        let ended = local.execute(&history).unwrap();
        let record = essence(&local.record());
        let mut undisturbed = Self { history, ended, record, entries: usize::MAX };
        undisturbed.entries = undisturbed.dies_after(usize::MAX);
        undisturbed
    }

    /// Executes the history on the durable journal, with a death after this entry. Returns how many there
    /// are at the end.
    fn dies_after(&self, entry: usize) -> usize {
        let first = Process::new(Entries::default(), Some(entry));
        let ended = first.execute(&self.history);
        assert!(ended.is_none() || entry >= self.entries, "it lived beyond {entry}");
        let second = Process { dies_after: Some(usize::MAX), ..first };
        let ended = second.execute(&self.history).unwrap();
        // The salts follow from the seed that the journal keeps.
        let events = second.record();
        let seed = Seed::new(second.entries.first_id().unwrap().as_str());
        for event in &events {
            assert_eq!(event.salt, Some(seed.salt(event.seq)), "after {entry}");
        }
        let record = essence(&events);
        // Results that arrived while the run was stopped may have been lost with their process.
        if is_cancelled(&record) && entry < self.entries {
            assert_eq!(until_the_tools(&record), until_the_tools(&self.record), "after {entry}");
            return second.entries.count();
        }
        assert_eq!(ended, self.ended, "after {entry}");
        for (again, once) in record.iter().zip(&self.record) {
            assert_eq!(again, once, "after {entry}");
        }
        assert_eq!(record.len(), self.record.len(), "after {entry}");
        second.entries.count()
    }
}

fn is_cancelled(record: &[Value]) -> bool {
    record.iter().any(|event| event[1] == "signal.received")
}

/// Returns a record up to the last tool that may have begun.
fn until_the_tools(record: &[Value]) -> &[Value] {
    let last = record.iter().rposition(|event| event[1] == "tool.requested");
    &record[..last.map_or(0, |last| last + 1)]
}

/// Executes a history in one process, then again with a death after each of its entries.
fn check(history: History) {
    let undisturbed = Undisturbed::execute(history);
    assert!(undisturbed.entries > 8, "{} entries", undisturbed.entries);
    for entry in 1..=undisturbed.entries {
        undisturbed.dies_after(entry);
    }
}

/// Spec: J1, D1. The salts too.
#[test]
fn tools_in_parallel_come_to_the_same_record() {
    check(History::of(json!([
        {"tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"at": 1}},
            {"id": "c2", "name": "look", "arguments": {"at": 2}},
        ]},
        {"text": "done"},
    ])));
}

/// Spec: J1, R3
#[test]
fn retries_come_to_the_same_record() {
    check(History::of(json!([
        {"error": {"kind": "rate_limited", "retry_after_ms": 9}},
        {"error": {"kind": "transient"}},
        {"tool_calls": [{"id": "c1", "name": "wait"}]},
        {"text": "done"},
    ])));
}

/// Spec: J1, B1. The first `wait` fails, and no execution is left to repeat it; the second one answers.
#[test]
fn unrepeated_failures_come_to_the_same_record() {
    let answers = json!([
        {"tool_calls": [
            {"id": "c0", "name": "look", "arguments": {"at": 0}},
            {"id": "c1", "name": "below", "arguments": {"input": "look at 0"}},
        ]},
        {"tool_calls": [
            {"id": "c0", "name": "look", "arguments": {"at": 0}},
            {"id": "c1", "name": "wait", "arguments": {"at": 0}},
            {"id": "c2", "name": "look", "arguments": {"at": 0}},
        ]},
        {"tool_calls": [{"id": "c0", "name": "wait", "arguments": {"at": 0}}]},
        {"text": "done"},
    ]);
    check(History { answers, model_calls: None, tool_calls: Some(6) });
}

/// Spec: J1, A1
#[test]
fn an_approval_comes_to_the_same_record() {
    check(History::of(json!([
        {"tool_calls": [{"id": "c1", "name": "pay"}, {"id": "c2", "name": "look"}]},
        {"text": "done"},
    ])));
}

/// Spec: J1, B3
#[test]
fn a_cancellation_comes_to_the_same_record() {
    check(History::of(json!([
        {"tool_calls": [{"id": "c1", "name": "stop"}, {"id": "c2", "name": "wait"}]},
        {"text": "never"},
    ])));
}

/// Spec: J1, O2, O3. Beside a tool, and begun anew in another process.
#[test]
fn a_run_below_comes_to_the_same_record() {
    check(History::of(json!([
        {"tool_calls": [
            {"id": "c1", "name": "below", "arguments": {"input": "look"}},
            {"id": "c2", "name": "look", "arguments": {"at": 3}},
            {"id": "c3", "name": "below", "arguments": {"input": "look again"}},
        ]},
        {"text": "done"},
    ])));
}

/// Spec: J1, H1, M1. A gate skips a call and changes another, and the memory refuses what is said.
#[test]
fn hooks_and_memory_come_to_the_same_record() {
    check(History::of(json!([
        {"tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"at": 1}},
            {"id": "c2", "name": "look", "arguments": {"at": 2}},
            {"id": "c3", "name": "absent"},
        ]},
        {"text": "said"},
    ])));
}

/// Spec: J1, B1, B2
#[test]
fn used_up_budgets_come_to_the_same_record() {
    let batch = json!({"tool_calls": [
        {"id": "c1", "name": "look"},
        {"id": "c2", "name": "below", "arguments": {"input": "look"}},
    ]});
    let answers = || json!([batch, batch, batch, {"text": "never"}]);
    check(History { model_calls: Some(2), ..History::of(answers()) });
    check(History { tool_calls: Some(3), ..History::of(answers()) });
}

/// A step may end as it ends, and not as another one.
#[tokio::test]
async fn an_end_of_another_step_is_internal() {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::starting_at(Timestamp::from_millis(1_000)));
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let token = CancellationToken::new();
    let agent =
        agent(&History::of(json!([])), &Entries::default(), Arc::clone(&log), &clock, &token);
    let agent = agent.build().unwrap();
    let start =
        StartingRun::new(Arc::clone(&agent.inner), RunRequest::new("go").run(RunId::from(RUN)));
    let effects = start.effects();
    let writer = RunWriter::new(log, RunId::from(RUN));
    let run_clock = RunClock::new(clock);
    let inbox = agent.inner.log.as_ref();
    let live = LocalJournal::new(writer, Arc::clone(&effects), run_clock, inbox, token);
    let machine = Machine::new(start.definition.clone(), Setup::new(RunId::from(RUN)));
    let mut run = start.open_on(AnyJournal::Local(Box::new(live)), effects, machine).await;
    for (of, end) in [
        (StepPurpose::Attempt, StepEnd::Execution(ExecutionEnd::default())),
        (StepPurpose::Pause, StepEnd::Observers(Ok(Vec::new()))),
        (StepPurpose::Wait, StepEnd::More(None)),
    ] {
        let error = run.take_end(of, end).await.unwrap_err();
        assert_eq!(error.code(), "internal");
    }
    assert!(run.take_end(StepPurpose::Wait, StepEnd::Stopped).await.is_ok());
}
