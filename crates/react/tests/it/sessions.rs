//! Sessions whose earlier runs are of another version, of another agent, or cannot be followed.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::*;
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, ReopenRequest, RunOutcome, RunRequest, replay, said_until};
use layer0::event::{Event, EventKind};
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::{call, calls, says};

/// A log that notes its accesses and the runs of each write of transcripts, and is locked for this read of records:
/// 1, 2, ….
struct Noting(Arc<MemoryLog>, Mutex<Vec<&'static str>>, Option<usize>, Mutex<Vec<Vec<RunId>>>);

impl Noting {
    fn new(log: Arc<MemoryLog>, locked: Option<usize>) -> Arc<Self> {
        Arc::new(Self(log, Mutex::default(), locked, Mutex::default()))
    }

    fn note(&self, what: &'static str) {
        self.1.lock().unwrap().push(what);
    }

    fn is_locked(&self) -> bool {
        let read = self.1.lock().unwrap().iter().filter(|asked| **asked == "records").count();
        self.2 == Some(read)
    }
}

impl EventLog for Noting {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().log(self).runs(self).transcripts(self)
    }
}

#[async_trait]
impl Log for Noting {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.0.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.0.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.note("append");
        self.0.append(batch).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.note("summary");
        self.0.summary(run).await
    }
    async fn records(&self, run: &RunId, from: u64) -> Result<Vec<Record>, LogError> {
        self.note("records");
        if self.is_locked() {
            return Err(LogError::Locked("busy".into()));
        }
        self.0.records(run, from).await
    }
}

#[async_trait]
impl Runs for Noting {
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        self.note("runs");
        self.0.runs(filter).await
    }
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        self.note("last_root");
        self.0.last_root(session).await
    }
}

#[async_trait]
impl Transcripts for Noting {
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        self.note("transcript");
        self.0.transcript(until).await
    }
    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        self.note("keep_transcript");
        self.3.lock().unwrap().push(parts.iter().map(|part| part.run.clone()).collect());
        self.0.keep_transcript(parts, erasures).await
    }
}

fn agent(log: &Arc<MemoryLog>, answers: Vec<backstop_provider::ScriptedAnswer>) -> Agent {
    let log = Arc::clone(log) as Arc<dyn EventLog>;
    Agent::builder(ScriptedProvider::new(answers)).shared_log(log).build().unwrap()
}

fn ask(text: &str) -> RunRequest {
    RunRequest::new(text).session("s-1")
}

/// Writes a run again, with other events.
async fn rewritten(
    log: &MemoryLog,
    run: &RunId,
    change: impl Fn(&mut Vec<Event>),
) -> Arc<MemoryLog> {
    let (_, mut events) = read_events(log, run).await.unwrap();
    change(&mut events);
    let copy = Arc::new(MemoryLog::new());
    let mut writer = RunWriter::new(Arc::clone(&copy) as Arc<dyn EventLog>, run.clone());
    for event in events {
        writer.stage(&Seed::new("test"), event.at, event.actor, event.caused_by, event.kind);
    }
    writer.commit().await.unwrap();
    copy
}

/// Returns the texts of people and of the model in the messages of a request.
fn texts(messages: &[Arc<Message>]) -> Vec<String> {
    let text = |message: &Arc<Message>| match &**message {
        Message::User { content, .. } | Message::Assistant { content, .. } => content.to_string(),
        Message::Tool { content, .. } => format!("tool: {content}"),
        _ => "system".to_owned(),
    };
    messages.iter().map(text).collect()
}

/// Spec: D9. What a start costs is counted: one look at the session's last run, then the first append;
/// the history is read after it.
#[tokio::test]
async fn a_run_begins_before_its_history_is_read() {
    let memory = Arc::new(MemoryLog::new());
    for number in 0..20 {
        agent(&memory, vec![says("yes")]).run(ask(&format!("{number}?"))).await.unwrap();
    }
    let log = Noting::new(Arc::clone(&memory), None);
    let noting = Agent::builder(ScriptedProvider::new(vec![says("no")]))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let outcome = noting.run(ask("and?")).await.unwrap();
    let asked = log.1.lock().unwrap().clone();
    assert_eq!(asked[..2], ["last_root", "append"], "{asked:?}");
    assert!(!asked.contains(&"runs"), "no list of runs is read");
    assert_eq!(outcome.transcript.messages().len(), 42, "all that was said before is there");
    assert!(replay(&*memory, &outcome.run_id).await.is_ok());
}

/// Runs an agent ten times in one session; returns its log and the first run.
async fn ten_runs() -> (Agent, Arc<Noting>, RunId) {
    let log = Noting::new(Arc::default(), None);
    let agent = Agent::builder(ScriptedProvider::from_fn(|_| says("yes")))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let first = agent.run(ask("0?")).await.unwrap().run_id;
    for number in 1..10 {
        agent.run(ask(&format!("{number}?"))).await.unwrap();
    }
    log.1.lock().unwrap().clear();
    (agent, log, first)
}

/// Spec: D9. The agent remembers what the session said before its last run.
#[tokio::test]
async fn next_turn_reads_only_the_last_run() {
    let (agent, log, _) = ten_runs().await;
    let outcome = agent.run(ask("and?")).await.unwrap();
    let read = log.1.lock().unwrap().iter().filter(|asked| **asked == "records").count();
    assert_eq!(read, 1);
    let said = texts(outcome.transcript.messages());
    assert_eq!((&*said[0], &*said[20], said.len()), ("0?", "and?", 22), "{said:?}");
    assert!(replay(&*log.0, &outcome.run_id).await.is_ok());
}

/// Runs a turn as a new process does, with an agent that has read nothing yet.
async fn turn(log: &Arc<Noting>, number: usize) -> (RunOutcome, Vec<&'static str>) {
    let agent = Agent::builder(ScriptedProvider::from_fn(|_| says("yes")))
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    log.1.lock().unwrap().clear();
    let outcome = agent.run(ask(&format!("{number}?"))).await.unwrap();
    let asked = log.1.lock().unwrap().clone();
    (outcome, asked)
}

/// Spec: D9, M7. The reads and writes of turn 400 are those of turn 5, and one record is read.
#[tokio::test]
async fn new_process_reads_the_last_record_alone() {
    let log = Noting::new(Arc::default(), None);
    let (mut fifth, mut last) = (Vec::new(), Vec::new());
    for number in 0..400 {
        let (outcome, asked) = turn(&log, number).await;
        assert_eq!(outcome.transcript.messages().len(), 2 * (number + 1));
        match number {
            4 => fifth = asked,
            _ => last = asked,
        }
    }
    assert_eq!(last, fifth);
    for (what, times) in [("records", 1), ("transcript", 2), ("keep_transcript", 1)] {
        assert_eq!(last.iter().filter(|asked| **asked == what).count(), times, "{last:?}");
    }
}

/// Spec: D9, M7. What the log keeps says what the records say.
#[tokio::test]
async fn kept_transcript_says_what_the_records_say() {
    let log = Noting::new(Arc::default(), None);
    let calling = calls([call("c1", "none", json!({"amount": 3.10, "text": "\u{0} \"ä"}))]);
    agent(&log.0, vec![calling, says("one")]).run(ask("0?")).await.unwrap();
    agent(&log.0, vec![]).run(ask("1?")).await.unwrap_err();
    for number in 2..5 {
        turn(&log, number).await;
    }
    let (outcome, asked) = turn(&log, 5).await;
    assert_eq!(asked.iter().filter(|asked| **asked == "records").count(), 1);
    let said = said_until(&*log.0, &outcome.run_id).await.unwrap();
    assert_eq!(said.messages().messages(), outcome.transcript.messages());
}

/// Spec: D9, M7. Other writers have their turn, and the newest part is kept first.
#[tokio::test]
async fn long_transcript_is_kept_in_several_writes() {
    let log = Noting::new(Arc::default(), None);
    let agent = agent(&log.0, (0..150).map(|_| says("yes")).collect());
    let mut runs = Vec::new();
    for number in 0..150 {
        runs.push(agent.run(ask(&format!("{number}?"))).await.unwrap().run_id);
    }
    turn(&log, 150).await;
    let writes = log.3.lock().unwrap().clone();
    assert_eq!(writes.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 21]);
    // The part of the first run was kept by the second one.
    runs.reverse();
    assert_eq!(writes.concat(), runs[..149]);
    assert_eq!(log.0.transcript(&runs[0]).await.unwrap().len(), 150);
}

/// Spec: D9, S10. A new process does not send a text that was erased since another one has read it.
#[tokio::test]
async fn kept_transcript_goes_with_an_erasure() {
    let (_, log, first) = ten_runs().await;
    turn(&log, 10).await;
    log.0.erase(&first, 1).await.unwrap();
    for number in 11..14 {
        let (outcome, _) = turn(&log, number).await;
        let said = texts(outcome.transcript.messages());
        assert_eq!((&*said[0], said.len()), ("1?", 2 * number), "{said:?}");
    }
}

/// Spec: D9, D12. A run that was reopened is read again.
#[tokio::test]
async fn reopened_run_is_read_again() {
    let log = Noting::new(Arc::default(), None);
    turn(&log, 0).await;
    let failed = agent(&log.0, vec![]).run(ask("1?")).await.unwrap_err();
    // What another process kept of it before.
    let summary = log.0.summary(&failed.run_id).await.unwrap().unwrap();
    let stale = r#"{"version":1,"messages":[],"sessions":[]}"#;
    let stale = TranscriptPart::new(failed.run_id.clone(), summary.head, None, stale, None);
    log.0.keep_transcript(vec![stale], 0).await.unwrap();
    assert_eq!(log.0.transcript(&failed.run_id).await.unwrap().len(), 1);
    let going_on = agent(&log.0, vec![says("again")]);
    going_on.reopen(ReopenRequest::new(failed.run_id)).await.unwrap();
    let (outcome, _) = turn(&log, 2).await;
    assert_eq!(texts(outcome.transcript.messages()), ["0?", "yes", "1?", "again", "2?", "yes"]);
}

/// Spec: D9, S10. An agent does not remember a text that was erased since.
#[tokio::test]
async fn erased_text_is_not_sent_again() {
    let (agent, log, first) = ten_runs().await;
    log.0.erase(&first, 1).await.unwrap();
    for number in 10..12 {
        let outcome = agent.run(ask(&format!("{number}?"))).await.unwrap();
        let said = texts(outcome.transcript.messages());
        assert_eq!((&*said[0], said.len()), ("1?", 2 * number), "{said:?}");
        let (_, events) = read_events(&*log.0, &outcome.run_id).await.unwrap();
        assert!(events.iter().any(|event| matches!(event.kind, EventKind::Warning(_))));
    }
}

/// Spec: D11, E13. The words of decisions may change between versions.
#[tokio::test]
async fn changed_words_keep_no_session_from_going_on() {
    let log = Arc::new(MemoryLog::new());
    let failed = agent(&log, vec![]).run(ask("first?")).await.unwrap_err();
    let reworded = rewritten(&log, &failed.run_id, |events| {
        for event in events {
            if let EventKind::RunFailed(failed) = &mut event.kind {
                failed.message = "in other words".into();
                failed.chain = vec!["in".into(), "other words".into()];
            }
        }
    });
    let reworded = reworded.await;
    assert!(replay(&*reworded, &failed.run_id).await.is_ok());
    let next = agent(&reworded, vec![says("yes")]).run(ask("second?")).await.unwrap();
    assert_eq!(texts(next.transcript.messages()), ["first?", "second?", "yes"]);
}

/// Spec: D11. Another version may decide otherwise: its runs are history all the same.
#[tokio::test]
async fn other_decisions_keep_no_session_from_going_on() {
    let log = Arc::new(MemoryLog::new());
    let first = agent(&log, vec![says("It is 42.")]).run(ask("first?")).await.unwrap();
    let other = rewritten(&log, &first.run_id, |events| {
        for event in events {
            if let EventKind::ModelRequested(requested) = &mut event.kind {
                requested.request_digest = "0123456789abcdef".into();
            }
        }
    });
    let other = other.await;
    assert!(replay(&*other, &first.run_id).await.is_err(), "it is not followed strictly");
    let next = agent(&other, vec![says("yes")]).run(ask("second?")).await.unwrap();
    assert_eq!(texts(next.transcript.messages()), ["first?", "It is 42.", "second?", "yes"]);
    assert!(replay(&*other, &next.run_id).await.is_ok(), "a replay needs no earlier run");
}

/// Makes a run that died with open calls, and that no machine of this version follows.
async fn dead_run() -> (RunId, Arc<MemoryLog>) {
    let log = Arc::new(MemoryLog::new());
    let both = calls([call("c9", "none", json!({})), call("c1", "none", json!({}))]);
    let first = agent(&log, vec![both, says("done")]).run(ask("first?")).await.unwrap();
    let dead = rewritten(&log, &first.run_id, |events| {
        let asked =
            events.iter().position(|event| matches!(event.kind, EventKind::ModelResponded(_)));
        events.truncate(asked.unwrap() + 1);
        for event in events {
            if let EventKind::ModelRequested(requested) = &mut event.kind {
                requested.request_digest = "0123456789abcdef".into();
            }
        }
    });
    let dead = dead.await;
    (first.run_id, dead)
}

/// Spec: D5, D11. A store that fails in passing closes no run: its calls would stay open.
#[tokio::test]
async fn dead_run_is_closed_only_after_reading() {
    let (first, dead) = dead_run().await;
    for read in 1..=3 {
        let log = Noting::new(Arc::clone(&dead), Some(read));
        let next = Agent::builder(ScriptedProvider::new(vec![says("yes")]))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap();
        let result = next.run(ask("second?")).await;
        let (closed, events) = read_events(&*dead, &first).await.unwrap();
        let answers = events.iter().filter(|it| matches!(it.kind, EventKind::ToolResponded(_)));
        let answered = answers.count();
        match result {
            Err(failure) => {
                assert!(failure.is_retryable(), "read {read}: {failure:#}");
                assert_eq!((closed.state, answered), (RunState::Running, 0), "read {read}");
            }
            // No read was this one's.
            Ok(_) => assert_eq!((closed.state, answered), (RunState::Failed, 2), "read {read}"),
        }
    }
}

/// Spec: D5, D11. A run that died and cannot be followed is closed, with every call answered in the order of its batch.
#[tokio::test]
async fn dead_run_that_cannot_be_folded_is_closed() {
    let (first, dead) = dead_run().await;
    let next = agent(&dead, vec![says("yes")]).run(ask("second?")).await.unwrap();
    assert_eq!(next.stop, Stop::Completed);
    let (closed, events) = read_events(&*dead, &first).await.unwrap();
    assert_eq!(
        (closed.state, closed.reason.unwrap().as_str()),
        (RunState::Failed, "replay.diverged")
    );
    let answered = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer.call_id.as_str()),
        _ => None,
    });
    assert_eq!(answered.collect::<Vec<_>>(), ["c9", "c1"]);
    let said = texts(next.transcript.messages());
    assert_eq!((&*said[0], said.len()), ("first?", 6), "{said:?}");
}

/// Spec: D5, D1. Its record is ahead of the clock of the process that closes it.
#[tokio::test]
async fn closed_run_ends_after_its_last_event() {
    let (first, dead) = dead_run().await;
    let clock = backstop_clock::VirtualClock::starting_at("2020-01-01T00:00:00Z".parse().unwrap());
    let behind = Agent::builder(ScriptedProvider::new(vec![says("yes")]))
        .clock(Arc::new(clock))
        .shared_log(Arc::clone(&dead) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    behind.run(ask("second?")).await.unwrap();
    let (closed, events) = read_events(&*dead, &first).await.unwrap();
    assert!(events.is_sorted_by_key(|event| event.at), "{events:?}");
    assert_eq!(closed.finished_at, events.last().map(|event| event.at));
}
