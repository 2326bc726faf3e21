//! Names and events of one case.

use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{NewError, Origin};
use backstop_event_log::{EventLog, LogError, Moves, RunWriter, Seed, segment_id};
use backstop_redact::Redactor;
use layer0::event::{
    Actor, AgentRecord, EventKind, Follows, Hash, RunFailed, RunStarted, SubscriptionOpened,
};
use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use serde_json::json;

/// The names of one case: a session with a run, its child run, a fork, and a following run; a run elsewhere, and a
/// subscription.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) session: String,
    pub(super) run: String,
    pub(super) below: String,
    pub(super) copy: String,
    pub(super) next: String,
    pub(super) elsewhere: String,
    pub(super) subscription: String,
}

impl Names {
    pub(super) fn new(number: usize) -> Self {
        let name = |what: &str| format!("{what}_{number}");
        let [session, run, below] = ["session", "run", "run_below"].map(name);
        let [copy, next, elsewhere] = ["run_copy", "run_next", "run_elsewhere"].map(name);
        Self { session, run, below, copy, next, elsewhere, subscription: name("tell") }
    }

    /// Returns the id of a segment of the subscription.
    pub(super) fn segment(&self, number: u64) -> RunId {
        segment_id(&self.subscription, number)
    }
}

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000).after(Duration::from_secs(seconds))
}

pub(super) fn error(names: &Names, run: &str) -> NewError {
    let origin = Origin::new(at(1), names.session.as_str(), run, "c", "sql");
    NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), None, "boom", &Redactor::new())
}

pub(super) fn started(session: &str, parent: Option<&str>, follows: Option<&str>) -> EventKind {
    let agent = AgentRecord::new("demo", "d", json!({}));
    let mut first = RunStarted::new("hello", session.into(), agent);
    first.parent = parent.map(Into::into);
    first.follows = follows.map(|run| Box::new(Follows::new(run, 2, Hash::default(), 1)));
    first.into()
}

pub(super) fn failed() -> EventKind {
    RunFailed::new(code::PROVIDER_TIMEOUT, vec!["it failed".into()], Default::default()).into()
}

pub(super) async fn append(writer: &mut RunWriter, kind: EventKind) -> Result<(), LogError> {
    writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
    writer.commit().await.map(|_| ())
}

/// Starts a segment of the subscription.
pub(super) async fn begin_segment(
    log: &Arc<dyn EventLog>,
    names: &Names,
    number: u64,
) -> Result<RunWriter, LogError> {
    let name = names.subscription.as_str();
    let mut writer = RunWriter::new(Arc::clone(log), names.segment(number));
    writer.move_subscription(Moves::new(name, "*", number));
    append(&mut writer, SubscriptionOpened::new(name, "*").into()).await?;
    Ok(writer)
}
