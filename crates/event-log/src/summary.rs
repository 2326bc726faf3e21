//! A run at a glance: a fold over its events that costs the same at every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::{AgentRecord, Cause, Event, EventKind, Hash, LostTail, WaitFor};
use layer0::id::{RunId, SessionId};
use layer0::operator::Signal;
use layer0::stop::Outcome;
use layer0::usage::{BudgetIncrease, Usage};
use layer0::{Code, JsonText, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The activity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunState {
    /// It is at work, or its process died.
    Running,
    /// It waits for a person.
    WaitingApproval,
    /// It waits for a time, without a process.
    Parked,
    /// It ended without failing.
    Finished,
    /// It failed.
    Failed,
    /// What the store keeps of it at a glance cannot be read.
    Unreadable,
}

impl RunState {
    /// Returns the text that stands in stores and JSON.
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

/// The last thing that went wrong in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LastFailure {
    /// The event that says so.
    pub seq: u64,
    /// The code.
    pub code: Code,
}

impl LastFailure {
    /// States which event says so, and the code.
    #[must_use]
    pub const fn new(seq: u64, code: Code) -> Self {
        Self { seq, code }
    }
}

/// What a run may use, and what that costs, as its agent's definition has it.
///
/// Few look at it, so it is read from the definition when a caller asks.
#[derive(Debug, Clone, Default)]
pub struct Terms(JsonText);

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Parts {
    budget: JsonText,
    price: JsonText,
}

impl Terms {
    /// Finds the terms in a definition, or in what was stored of one.
    #[must_use]
    pub const fn of(definition: JsonText) -> Self {
        Self(definition)
    }

    /// Returns the budget; `null` where there is none.
    #[must_use]
    pub fn budget(&self) -> JsonText {
        self.parts().budget
    }

    /// Returns the price of tokens; `null` where it is not known.
    #[must_use]
    pub fn price(&self) -> JsonText {
        self.parts().price
    }

    /// Returns them alone, without the rest of the definition, to be stored.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "two texts that are JSON are JSON together")]
    pub fn alone(&self) -> JsonText {
        JsonText::of(&self.parts()).expect("two texts that are JSON are JSON together")
    }

    fn parts(&self) -> Parts {
        self.0.read().unwrap_or_default()
    }
}

/// Writes budget and price alone: the rest of a definition is the agent's own business.
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
    /// The number of losses that were accepted, this one included.
    pub count: u32,
}

/// A run at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Its conversation.
    pub session: SessionId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// What it is doing.
    pub state: RunState,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The code of the failure or stop.
    pub reason: Option<Code>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What it has used.
    pub usage: Usage,
    /// How many of the model calls were made by runs that it dispatched.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dispatched_model_calls: u32,
    /// How often it was opened again after it was over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reopens: u32,
    /// How many errors its tools reported that were stored.
    #[serde(default)]
    pub errors: u64,
    /// The last thing that went wrong.
    #[serde(default)]
    pub last_failure: Option<LastFailure>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub terms: Terms,
    /// What was added to its budget since.
    #[serde(default, skip_serializing_if = "is_default")]
    pub raised: Option<Box<BudgetIncrease>>,
    /// When it was last reopened, and the milliseconds that counted until then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reopened: Option<(Timestamp, u64)>,
    /// Since when and until when it is parked, where it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parked: Option<(Timestamp, Timestamp)>,
    /// The run that dispatched it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parent: Option<RunId>,
    /// The run of the session that it was dispatched together with, and that began first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub branch_of: Option<RunId>,
    /// What its caller filed it under.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Arc<BTreeMap<String, String>>,
    /// The run whose conversation it goes on with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub follows: Option<RunId>,
    /// How many messages the transcript of its session has after it, without what only instructs.
    #[serde(default)]
    pub messages: u64,
    /// Has every event of its record a salt? Those of the first layout have none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub salted: bool,
    /// The id of the key that its chain is sealed with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key_id: Option<Arc<str>>,
    /// What of it a behaviour caused, by the event that says so; the last few.
    #[serde(default, skip_serializing_if = "is_default")]
    pub causes: Vec<(u64, Timestamp, Cause)>,
    /// The newest event that its record had lost, where a person accepted that, and how often that happened.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accepted_loss: Option<Box<AcceptedLoss>>,
    /// The seq of its last event.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_seq: u64,
    /// The hash of its last event.
    #[serde(default, skip_serializing_if = "is_default")]
    pub head: Hash,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the session of a run that is a copy of another one: its own, named as it.
#[must_use]
pub fn session_of_fork(run: &RunId) -> SessionId {
    let name = run.as_str();
    format!("ses_{}", name.strip_prefix("run_").unwrap_or(name)).into()
}

/// Returns the sessions whose stored errors and results a run can read: its own first, then those of the runs that it
/// was copied from, then those that its caller handed on.
#[must_use]
pub fn sessions_of(events: &[Event]) -> Vec<SessionId> {
    let Some(EventKind::RunStarted(started)) = events.first().map(|event| &event.kind) else {
        return Vec::new();
    };
    let mut sessions = vec![started.session.clone()];
    let mut copied_from = None;
    for event in events {
        if let EventKind::RunForked(forked) = &event.kind {
            // The first parent has the session that the run started in; each later one has its own.
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

/// Returns the agent that a run goes on with: the one that it was last resumed with, else the one that it began with.
/// `None` for events that do not begin with `run.started`.
#[must_use]
pub fn agent_of(events: &[Event]) -> Option<&AgentRecord> {
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
    /// How many of its causes are kept at a glance.
    pub const MAX_CAUSES: usize = 16;

    /// Is it neither finished nor failed?
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, RunState::Running | RunState::WaitingApproval | RunState::Parked)
    }

    /// Makes the summary of a run without events.
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

    fn accept_loss(&mut self, lost: Option<LostTail>) {
        if let Some(tail) = lost {
            let count = self.losses().saturating_add(1);
            self.accepted_loss = Some(Box::new(AcceptedLoss { tail, count }));
        }
    }

    /// Returns how many losses of events a person accepted.
    #[must_use]
    pub fn losses(&self) -> u32 {
        self.accepted_loss.as_ref().map_or(0, |loss| loss.count)
    }

    /// Takes in the next event.
    pub fn apply(&mut self, event: &Event) {
        self.last_seq = event.seq;
        self.head = event.hash;
        self.salted = event.salt.is_some();
        if let Some(failure) = failure_in(event).or_else(|| later_failure_in(event)) {
            self.last_failure = Some(failure);
        }
        if let Some(cause) = event.kind.cause() {
            let too_many = (self.causes.len() + 1).saturating_sub(Self::MAX_CAUSES);
            self.causes.drain(..too_many);
            self.causes.push((event.seq, event.at, cause.clone()));
        }
        match &event.kind {
            EventKind::RunStarted(started) => {
                self.session = started.session.clone();
                self.key_id.clone_from(&started.key_id);
                self.parent.clone_from(&started.parent);
                self.branch_of.clone_from(&started.branch_of);
                self.labels = Arc::clone(&started.labels);
                self.follows = started.follows.as_ref().map(|follows| follows.run.clone());
                let before = started.follows.as_ref().map_or(0, |follows| follows.messages);
                let brought = u64::try_from(started.history.len()).unwrap_or(u64::MAX);
                self.messages = before + brought + 1;
                self.agent = Arc::clone(&started.agent.name);
                self.started_at = event.at;
                self.terms = Terms::of(started.agent.definition.clone());
                if started.agent.is_workflow() {
                    // It asks no model itself.
                    self.usage = Usage::free();
                }
            }
            EventKind::SubscriptionOpened(opened) => {
                self.agent = Arc::clone(&opened.name);
                self.key_id.clone_from(&opened.key_id);
                (self.started_at, self.usage) = (event.at, Usage::free());
            }
            EventKind::ErrorStored(_) => self.errors = self.errors.saturating_add(1),
            EventKind::ModelRequested(requested) => {
                self.usage.model_calls = requested.call.saturating_add(self.dispatched_model_calls);
            }
            EventKind::ModelAttempted(attempted) => {
                self.usage.model_attempts = self.usage.model_attempts.saturating_add(1);
                self.usage.add_tokens(attempted.usage.unwrap_or_default());
                self.usage.estimated |= attempted.usage_estimated;
                if let Some(cost) = attempted.cost_nanousd {
                    self.usage.add_cost(cost);
                }
            }
            // A tool that the runtime tries again begins once more.
            EventKind::ToolRequested(_) | EventKind::ToolAttempted(_) => self.count_executions(1),
            EventKind::OperatorReturned(returned) => {
                (self.state, self.outcome) = (RunState::Running, None);
                self.usage.add_dispatched(&returned.usage);
                let calls = returned.usage.model_calls;
                self.dispatched_model_calls = self.dispatched_model_calls.saturating_add(calls);
            }
            EventKind::ModelResponded(responded) if responded.is_said() => self.messages += 1,
            EventKind::ToolResponded(_) => self.messages += 1,
            EventKind::RunWaiting(waiting) if waiting.r#for == WaitFor::Approval => {
                self.state = RunState::WaitingApproval;
                self.outcome = Some(Outcome::WaitingApproval);
            }
            EventKind::RunParked(parked) => {
                self.state = RunState::Parked;
                self.outcome = Some(Outcome::WaitingApproval);
                self.parked = Some((event.at, parked.until));
            }
            // A copy begins a session of its own, and was not dispatched.
            EventKind::RunForked(_) => {
                self.session = session_of_fork(&self.run);
                (self.parent, self.follows, self.branch_of) = (None, None, None);
                (self.state, self.outcome, self.reason) = (RunState::Running, None, None);
                self.finished_at = None;
            }
            EventKind::RunReopened(reopened) => {
                (self.state, self.outcome, self.reason) = (RunState::Running, None, None);
                self.finished_at = None;
                self.reopens = self.reopens.saturating_add(1);
                self.accept_loss(reopened.lost_tail);
                self.messages += u64::from(reopened.message.is_some());
                // The time in which it was over does not count.
                self.reopened = Some((event.at, self.usage.wall_ms));
                if let Some(more) = &reopened.budget {
                    let raised = self.raised.as_deref().copied().unwrap_or_default();
                    self.raised = Some(Box::new(raised.and(more)));
                }
            }
            EventKind::RunRecovered(recovered) => {
                (self.state, self.outcome) = (RunState::Running, None);
                let attempts = self.usage.model_attempts.saturating_add(recovered.models);
                self.usage.model_attempts = attempts;
                self.count_executions(u32::try_from(recovered.rerun.len()).unwrap_or(u32::MAX));
            }
            EventKind::RunResumed(resumed) => {
                (self.state, self.outcome) = (RunState::Running, None);
                if let Some(agent) = &resumed.agent {
                    self.terms = Terms::of(agent.definition.clone());
                }
                self.accept_loss(resumed.lost_tail);
            }
            // It waits for nothing any more, and ends.
            EventKind::SignalReceived(signal) if &*signal.name == Signal::CANCEL => {
                (self.state, self.outcome) = (RunState::Running, None);
            }
            EventKind::OperatorDispatched(_)
            | EventKind::OperatorWaiting(_)
            | EventKind::BudgetGranted(_)
            | EventKind::ApprovalGranted(_)
            | EventKind::ApprovalDenied(_) => {
                self.state = RunState::Running;
                self.outcome = None;
            }
            // A person says it, of a run that may be over or without a process: no time of the run passes.
            EventKind::ToolResolved(_) => return,
            EventKind::RunFinished(finished) => {
                self.state = RunState::Finished;
                self.outcome = Some(finished.outcome);
                self.reason.clone_from(&finished.reason);
                self.finished_at = Some(event.at);
                self.usage = finished.usage;
                self.parked = None;
                return;
            }
            EventKind::RunFailed(failed) => {
                self.state = RunState::Failed;
                self.outcome = Some(Outcome::Failed);
                self.reason = Some(failed.reason.clone());
                self.finished_at = Some(event.at);
                self.usage = failed.usage;
                self.parked = None;
                return;
            }
            _ => {}
        }
        if self.state != RunState::Parked {
            self.parked = None;
        }
        let (since, before) = self.reopened.unwrap_or((self.started_at, 0));
        let elapsed = u64::try_from(event.at.since(since).as_millis()).unwrap_or(u64::MAX);
        self.usage.wall_ms = elapsed.saturating_add(before);
    }
}

impl RunSummary {
    fn count_executions(&mut self, count: u32) {
        self.usage.tool_calls = self.usage.tool_calls.saturating_add(count);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns the last failure as rows had it before they counted runs below and hooks that stop a run.
pub(crate) fn last_failure_before(events: &[Event]) -> Option<LastFailure> {
    events.iter().rev().find_map(failure_in)
}

/// Returns the failure that an event records.
fn failure_in(event: &Event) -> Option<LastFailure> {
    let code = match &event.kind {
        EventKind::ModelAttempted(attempted) => attempted.code.as_ref(),
        EventKind::ModelFailed(failed) => Some(&failed.reason),
        EventKind::ToolAttempted(attempted) => Some(&attempted.reason),
        EventKind::ToolResponded(answer) => answer.error.as_ref().map(|error| &error.reason),
        EventKind::HookFailed(failed) => Some(&failed.reason),
        EventKind::MemoryDegraded(degraded) => Some(&degraded.reason),
        EventKind::ErrorStoreDegraded(degraded) => Some(&degraded.reason),
        EventKind::BudgetExhausted(exhausted) => Some(&exhausted.reason),
        EventKind::GuardTripped(tripped) => Some(&tripped.reason),
        EventKind::RunFailed(failed) => Some(&failed.reason),
        EventKind::BehaviorFailed(failed) => Some(&failed.reason),
        _ => None,
    };
    Some(LastFailure::new(event.seq, code?.clone()))
}

/// Returns the failure that an event records, where rows of earlier versions did not count it.
fn later_failure_in(event: &Event) -> Option<LastFailure> {
    let code = match &event.kind {
        EventKind::HookAborted(aborted) => Some(&aborted.reason),
        EventKind::OperatorReturned(returned) if returned.outcome == Outcome::Failed => {
            returned.reason.as_ref()
        }
        _ => None,
    };
    Some(LastFailure::new(event.seq, code?.clone()))
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
        let terms = Terms::of((&definition).into());
        assert_eq!(terms.alone().get(), r#"{"budget":{"max_model_calls":3},"price":null}"#);
        let stored = Terms::of(terms.alone());
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
            terms: Terms::of((&json!({"budget": {"max_model_calls": 3}, "price": null})).into()),
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
