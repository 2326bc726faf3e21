//! The summary of a run: a fold over its events that costs the same at every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::{AgentRecord, Cause, Event, EventKind, Hash, LostTail};
use layer0::id::{RunId, SessionId};
use layer0::stop::Outcome;
use layer0::usage::{BudgetIncrease, Usage};
use layer0::{Code, JsonText, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// It is running, or its process died.
    Running,
    /// It waits for a person.
    WaitingApproval,
    /// It waits for a time, without a process.
    Parked,
    /// It ended without a failure.
    Finished,
    /// It failed.
    Failed,
    /// The stored summary cannot be read.
    Unreadable,
}

impl RunState {
    /// Returns the name in stores and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::WaitingApproval => "waiting_approval",
            Self::Parked => "parked",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The last failure in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LastFailure {
    /// Number of the event that records it.
    pub seq: u64,
    /// Code of the failure.
    pub code: Code,
}

impl LastFailure {
    /// Creates the failure with this code that event `seq` records.
    #[must_use]
    pub const fn new(seq: u64, code: Code) -> Self {
        Self { seq, code }
    }
}

/// The budget and price of a run, from its agent's definition.
///
/// They are rarely needed, so that they are parsed only on request.
#[derive(Debug, Clone, Default)]
pub struct Terms(JsonText);

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct TermsParts {
    budget: JsonText,
    price: JsonText,
}

impl Terms {
    /// Creates the terms from a definition, or from stored terms.
    #[must_use]
    pub const fn new(definition: JsonText) -> Self {
        Self(definition)
    }

    /// Returns the budget; `null` if there is none.
    #[must_use]
    pub fn budget(&self) -> JsonText {
        self.parts().budget
    }

    /// Returns the price of tokens; `null` if unknown.
    #[must_use]
    pub fn price(&self) -> JsonText {
        self.parts().price
    }

    /// Returns the terms without the rest of the definition, for storage.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "two texts that are JSON are JSON together")]
    pub fn alone(&self) -> JsonText {
        JsonText::from_value(&self.parts()).expect("two texts that are JSON are JSON together")
    }

    fn parts(&self) -> TermsParts {
        self.0.read().unwrap_or_default()
    }
}

/// Serialises only the budget and the price: the rest of a definition belongs to the agent.
impl Serialize for Terms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parts().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Terms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonText::deserialize(deserializer).map(Self)
    }
}

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.parts() == other.parts()
    }
}

/// The last loss of events that a person accepted for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AcceptedLoss {
    /// The newest event that was lost.
    pub tail: LostTail,
    /// Number of accepted losses, including this one.
    pub count: u32,
}

/// The summary of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// Id of the run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Name of the agent.
    pub agent: Arc<str>,
    /// Its state.
    pub state: RunState,
    /// Its outcome, once it has ended.
    pub outcome: Option<Outcome>,
    /// Code of the failure or stop.
    pub reason: Option<Code>,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time of its end.
    pub finished_at: Option<Timestamp>,
    /// Its usage.
    pub usage: Usage,
    /// Number of model calls by its child runs, which `usage` includes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dispatched_model_calls: u32,
    /// Number of times that it was reopened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reopens: u32,
    /// Number of stored errors that its tools reported.
    #[serde(default)]
    pub errors: u64,
    /// Its last failure.
    #[serde(default)]
    pub last_failure: Option<LastFailure>,
    /// Its budget and price.
    #[serde(default, skip_serializing_if = "is_default")]
    pub terms: Terms,
    /// Later increases of its budget.
    #[serde(default, skip_serializing_if = "is_default")]
    pub raised: Option<Box<BudgetIncrease>>,
    /// Time of the last reopening, and the milliseconds counted before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reopened: Option<(Timestamp, u64)>,
    /// Start and end of its parking, while it is parked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parked: Option<(Timestamp, Timestamp)>,
    /// The run that dispatched it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: Option<RunId>,
    /// The first run of the session that was dispatched together with it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub branch_of: Option<RunId>,
    /// Labels set by its caller.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Arc<BTreeMap<String, String>>,
    /// The run whose conversation it continues.
    #[serde(default, skip_serializing_if = "is_default")]
    pub follows: Option<RunId>,
    /// Number of messages in the session's transcript after the run, without mere instructions.
    #[serde(default)]
    pub messages: u64,
    /// Whether every event of its record has a salt. Events of the first layout have none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub salted: bool,
    /// Id of the key that seals its chain.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key_id: Option<Arc<str>>,
    /// Its last causes, each with the number and time of the event that names it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub causes: Vec<(u64, Timestamp, Cause)>,
    /// The newest lost event of its record, once a person has accepted the loss, and the number of such losses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accepted_loss: Option<Box<AcceptedLoss>>,
    /// Number of its last event.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_seq: u64,
    /// Hash of its last event.
    #[serde(default, skip_serializing_if = "is_default")]
    pub head: Hash,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the session of a copied run: its own session, with the run's id as its name.
#[must_use]
pub fn session_of_fork(run: &RunId) -> SessionId {
    let name = run.as_str();
    format!("ses_{}", name.strip_prefix("run_").unwrap_or(name)).into()
}

/// Returns the sessions whose stored errors and results a run can read: its own first, then those of the runs that it
/// was copied from, then those that its caller passed on.
#[must_use]
pub fn readable_sessions(events: &[Event]) -> Vec<SessionId> {
    let Some(EventKind::RunStarted(started)) = events.first().map(|event| &event.kind) else {
        return Vec::new();
    };
    let mut sessions = vec![started.session.clone()];
    let mut copied_from = None;
    for event in events {
        if let EventKind::RunForked(forked) = &event.kind {
            // The first parent has the session that the run started in; each later parent has its own.
            sessions.extend(
                copied_from.replace(&forked.parent).map(|_| session_of_fork(&forked.parent)),
            );
        }
    }
    if copied_from.is_some()
        && let Some(last) = events.last()
    {
        sessions.push(session_of_fork(&last.run));
    }
    sessions.reverse();
    for session in &*started.sessions {
        if !sessions.contains(session) {
            sessions.push(session.clone());
        }
    }
    sessions
}

/// Returns the agent with which a run continues: the agent of the last resume that names one, else that of the start.
/// `None` if the events do not begin with `run.started`.
#[must_use]
pub fn current_agent(events: &[Event]) -> Option<&AgentRecord> {
    let Some(EventKind::RunStarted(started)) = events.first().map(|event| &event.kind) else {
        return None;
    };
    let adopted = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::RunResumed(resumed) => resumed.agent.as_deref(),
        _ => None,
    });
    Some(adopted.unwrap_or(&started.agent))
}

impl RunSummary {
    /// Maximum number of causes in a summary.
    pub const MAX_CAUSES: usize = 16;

    /// Returns whether it neither finished nor failed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, RunState::Running | RunState::WaitingApproval | RunState::Parked)
    }

    /// Creates the summary of a run without events.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            session: "".into(),
            agent: Arc::default(),
            state: RunState::Running,
            outcome: None,
            reason: None,
            started_at: Timestamp::default(),
            finished_at: None,
            usage: Usage::default(),
            dispatched_model_calls: 0,
            reopens: 0,
            errors: 0,
            last_failure: None,
            terms: Terms::default(),
            raised: None,
            reopened: None,
            parked: None,
            parent: None,
            branch_of: None,
            labels: Arc::default(),
            follows: None,
            messages: 0,
            salted: false,
            key_id: None,
            causes: Vec::new(),
            accepted_loss: None,
            last_seq: 0,
            head: Hash::default(),
        }
    }

    /// Returns the number of losses of events that a person accepted.
    #[must_use]
    pub fn losses(&self) -> u32 {
        self.accepted_loss.as_ref().map_or(0, |loss| loss.count)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stored_terms_hold_only_terms() {
        let definition = json!({
            "name": "a", "instructions": "Keep this to yourself.", "price": null,
            "budget": { "max_model_calls": 3 },
        });
        let terms = Terms::new((&definition).into());
        assert_eq!(terms.alone().get(), r#"{"budget":{"max_model_calls":3},"price":null}"#);
        let stored = Terms::new(terms.alone());
        assert_eq!((stored.budget(), stored.price()), (terms.budget(), terms.price()));
        assert_eq!(stored, terms);
        assert_ne!(stored, Terms::default());
    }

    /// Spec: D4
    #[test]
    fn a_summary_in_json_keeps_every_field() {
        let mut usage = Usage::default();
        (usage.model_calls, usage.tool_calls) = (3, 2);
        let summary = RunSummary {
            run: "run_2".into(),
            session: "ses_1".into(),
            agent: "a".into(),
            state: RunState::Failed,
            outcome: Some(Outcome::Failed),
            reason: Some(Code::new("provider.timeout")),
            started_at: Timestamp::from_millis(5),
            finished_at: Some(Timestamp::from_millis(9)),
            usage,
            dispatched_model_calls: 1,
            reopens: 0,
            errors: 4,
            last_failure: Some(LastFailure { seq: 7, code: Code::new("tool.timeout") }),
            terms: Terms::new((&json!({"budget": {"max_model_calls": 3}, "price": null})).into()),
            raised: Some(Box::new(BudgetIncrease::new().model_calls(5))),
            reopened: Some((Timestamp::from_millis(7), 3)),
            parked: Some((Timestamp::from_millis(6), Timestamp::from_millis(7))),
            parent: Some("run_0".into()),
            branch_of: Some("run_3".into()),
            labels: Arc::new([("tenant".into(), "acme".into())].into()),
            follows: Some("run_1".into()),
            messages: 6,
            salted: true,
            key_id: Some("0123".into()),
            causes: vec![(2, Timestamp::from_millis(6), Cause::new("tell", "run_0", 3, 1))],
            accepted_loss: Some(Box::new(AcceptedLoss {
                tail: LostTail::new(9, Hash([9; 32])),
                count: 1,
            })),
            last_seq: 8,
            head: Hash([7; 32]),
        };
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<RunSummary>(&text).unwrap(), summary);
        let value = serde_json::to_value(&summary).unwrap();
        assert_eq!(serde_json::from_value::<RunSummary>(value).unwrap(), summary);
    }
}
