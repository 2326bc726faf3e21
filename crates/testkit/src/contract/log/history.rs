//! Runs to be written into a log.

use backstop_event_log::{
    EventLog, InboxRequest, LogError, Record, RunWriter, Seed, Settlement, session_of_fork,
};
use layer0::event::{
    Actor, AgentRecord, EventKind, Follows, Hash, ModelAttempted, RunFailed, RunFinished,
    RunForked, RunReopened, RunStarted, Warning,
};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::{BudgetIncrease, Usage};
use layer0::{Timestamp, code};
use serde_json::json;
use std::sync::Arc;

/// The log under test.
pub(crate) type Log = Arc<dyn EventLog>;

/// The start of a root run of a session.
pub(crate) fn started(session: &str) -> RunStarted {
    let agent =
        AgentRecord::new("conformance", "0", json!({"text": "quote ' zero \u{0} umlaut ä"}));
    RunStarted::new("x", session.into(), agent)
}

/// The start of a run that follows another one.
pub(crate) fn following(session: &str, run: &str) -> RunStarted {
    let follows = Follows::new(run, 2, Hash::default(), 1);
    let mut started = started(session);
    started.follows = Some(Box::new(follows));
    started
}

/// The start of a run that was dispatched together with another one, which began first.
pub(crate) fn beside(session: &str, run: &str, first: &str) -> RunStarted {
    let mut started = following(session, run);
    started.branch_of = Some(first.into());
    started
}

/// The start of a child run.
pub(crate) fn dispatched(session: &str, parent: &str) -> RunStarted {
    let mut started = started(session);
    started.parent = Some(parent.into());
    started
}

/// The start of a child run whose caller is the root.
pub(crate) fn below(session: &str, run: &str, root: &str) -> RunStarted {
    let mut started = dispatched(session, root);
    (started.run, started.root) = (Some(run.into()), Some(root.into()));
    started
}

pub(crate) fn warning(text: &str) -> EventKind {
    Warning::new(text).into()
}

pub(crate) fn finished() -> EventKind {
    ended(Outcome::Completed, None)
}

pub(crate) fn cancelled() -> EventKind {
    ended(Outcome::Cancelled, Some(code::RUN_CANCELLED))
}

/// A model attempt that ended, with a code if it failed.
pub(crate) fn attempted(provider: &str, code: Option<&'static str>) -> EventKind {
    let mut attempted = ModelAttempted::new(1, 1, provider);
    attempted.code = code.map(layer0::Code::new);
    attempted.into()
}

/// The end of a stopped run, with a code.
pub(crate) fn stopped(reason: &'static str) -> EventKind {
    ended(Outcome::Cancelled, Some(reason))
}

/// The end of a failed run, with a code.
pub(crate) fn failed(reason: &'static str) -> EventKind {
    RunFailed::new(reason, vec!["it failed".into()], Usage::default()).into()
}

/// The event that reopens a run.
pub(crate) fn reopened(reason: &'static str) -> EventKind {
    let mut reopened = RunReopened::new("ops", Some(layer0::Code::new(reason)));
    reopened.message = Some("go on".into());
    reopened.budget = Some(Box::new(BudgetIncrease::new().model_calls(5)));
    reopened.into()
}

fn ended(outcome: Outcome, reason: Option<&'static str>) -> EventKind {
    let mut finished = RunFinished::new(outcome, "done", Usage::default());
    finished.reason = reason.map(layer0::Code::new);
    finished.into()
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// The seed of the salts of all events.
pub(crate) fn seed() -> Seed {
    Seed::new("test")
}

/// The first event of a fork.
pub(crate) fn forked(run: &str, parent: &str, at: u64) -> EventKind {
    RunForked::new(run, session_of_fork(&run.into()), parent, at).into()
}

/// Appends events in one batch.
pub(crate) async fn write(
    writer: &mut RunWriter,
    ms: i64,
    kinds: impl IntoIterator<Item = EventKind>,
) -> Result<(), LogError> {
    for kind in kinds {
        writer.stage(&seed(), at(ms), Actor::Runtime, None, kind);
    }
    writer.commit().await.map(drop)
}

/// Begins a run.
pub(crate) async fn begin(
    log: &Log,
    run: &str,
    ms: i64,
    start: RunStarted,
) -> Result<RunWriter, LogError> {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    write(&mut writer, ms, [start.into()]).await?;
    Ok(writer)
}

/// Begins the first run of a session.
pub(crate) async fn open(log: &Log, run: &str, session: &str, ms: i64) -> RunWriter {
    let begun = begin(log, run, ms, started(session)).await;
    begun.unwrap_or_else(|error| panic!("{run} begins: {error:?}"))
}

/// Writes the first run of a session from its start to its end.
pub(crate) async fn whole(log: &Log, run: &str, session: &str, ms: i64) {
    let mut writer = open(log, run, session, ms).await;
    write(&mut writer, ms + 1, [finished()]).await.expect("a run ends");
}

/// Resumes a run without a writer.
pub(crate) async fn resume(log: &Log, run: &str) -> RunWriter {
    let run = RunId::from(run);
    let claim = log.claim(&run).await.expect("the run is free");
    let summary = log.summary(&run).await.expect("it is read").expect("the run is known");
    RunWriter::resume(Arc::clone(log), summary, claim)
}

/// Reopens a run.
pub(crate) async fn reopen(log: &Log, run: &str, ms: i64) -> Result<RunWriter, LogError> {
    let mut writer = resume(log, run).await;
    write(&mut writer, ms, [reopened(code::PROVIDER_TIMEOUT)]).await?;
    Ok(writer)
}

pub(crate) async fn records(log: &Log, run: &str) -> Vec<Record> {
    log.records(&run.into(), 1).await.expect("records are read")
}

pub(crate) async fn send(log: &dyn EventLog, request: InboxRequest, ms: i64) -> bool {
    log.send(request, "ops", at(ms)).await.expect("it is sent")
}

pub(crate) fn input(run: &str, text: &str) -> InboxRequest {
    InboxRequest::Input { run: run.into(), text: text.into() }
}

pub(crate) fn settle(run: &str, call: &str, settlement: Settlement) -> InboxRequest {
    InboxRequest::Settle { run: run.into(), call: call.into(), settlement }
}

pub(crate) fn cancel(run: &str) -> InboxRequest {
    InboxRequest::Cancel { run: run.into() }
}
