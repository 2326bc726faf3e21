//! The fold of a run's events into its summary.

use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::{Event, EventKind, LostTail, WaitFor};
use layer0::operator::Signal;
use layer0::stop::Outcome;
use layer0::usage::Usage;

use crate::{AcceptedLoss, LastFailure, Record, RunState, RunSummary, Terms, session_of_fork};

/// The rules by which a row counts the time of its run. Rows of earlier versions have other rules.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowRules {
    /// Whether a copy starts with its original.
    pub(crate) keeps_start_in_forks: bool,
    /// Whether time passes in an ended run.
    pub(crate) counts_ended_time: bool,
}

impl RunSummary {
    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        self.apply_by(event, RowRules::default());
    }

    /// Applies the next event after its text was erased. Its type and time count; what else it changed is unknown.
    pub fn apply_erased(&mut self, record: &Record) {
        self.apply_erased_by(record, RowRules::default());
    }

    /// Applies the next event, by the rules of a row.
    pub(crate) fn apply_by(&mut self, event: &Event, rules: RowRules) {
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
                self.terms = Terms::new(started.agent.definition.clone());
                if started.agent.is_workflow() {
                    // A workflow makes no model calls itself.
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
            // The runtime's retry of a tool starts it once more.
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
            EventKind::RunForked(_) => self.apply_fork(event.at, rules),
            EventKind::RunReopened(reopened) => {
                self.reopen(event.at);
                self.accept_loss(reopened.lost_tail);
                self.messages += u64::from(reopened.message.is_some());
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
                    self.terms = Terms::new(agent.definition.clone());
                }
                self.accept_loss(resumed.lost_tail);
            }
            // The run waits for nothing any more, and ends.
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
            // A person's settlement may come when the run has ended or has no process, so that the run's time does not
            // pass.
            EventKind::ToolResolved(_) => return,
            EventKind::RunFinished(finished) => {
                self.end(RunState::Finished, event.at);
                self.outcome = Some(finished.outcome);
                self.reason.clone_from(&finished.reason);
                self.usage = finished.usage;
                return;
            }
            EventKind::RunFailed(failed) => {
                self.end(RunState::Failed, event.at);
                self.outcome = Some(Outcome::Failed);
                self.reason = Some(failed.reason.clone());
                self.usage = failed.usage;
                return;
            }
            _ => {}
        }
        if self.state != RunState::Parked {
            self.parked = None;
        }
        self.advance(event.at, rules);
    }

    /// Applies the next event after its text was erased, by the rules of a row.
    pub(crate) fn apply_erased_by(&mut self, record: &Record, rules: RowRules) {
        self.last_seq = record.seq;
        self.head = record.hash;
        // An event without a salt cannot be erased.
        self.salted = true;
        match &*record.event_type {
            "run.started" | "subscription.opened" => self.started_at = record.at,
            "run.forked" => self.apply_fork(record.at, rules),
            "run.reopened" => self.reopen(record.at),
            "tool.resolved" => return,
            "run.finished" => return self.end(RunState::Finished, record.at),
            "run.failed" => return self.end(RunState::Failed, record.at),
            _ => {}
        }
        self.advance(record.at, rules);
    }

    /// Begins a copy now, in its own session and without a caller. The time of the copied events counts.
    fn apply_fork(&mut self, at: Timestamp, rules: RowRules) {
        if !rules.keeps_start_in_forks {
            self.started_at = at;
            self.reopened = Some((at, self.usage.wall_ms));
        }
        self.session = session_of_fork(&self.run);
        (self.parent, self.follows, self.branch_of) = (None, None, None);
        self.set_running();
    }

    /// Reopens the run. The time since its end does not count.
    fn reopen(&mut self, at: Timestamp) {
        self.set_running();
        self.reopens = self.reopens.saturating_add(1);
        self.reopened = Some((at, self.usage.wall_ms));
    }

    fn set_running(&mut self) {
        (self.state, self.outcome, self.reason) = (RunState::Running, None, None);
        self.finished_at = None;
    }

    fn end(&mut self, state: RunState, at: Timestamp) {
        self.state = state;
        self.finished_at = Some(at);
        self.parked = None;
    }

    /// Counts the time until an event. None passes in an ended run: a probe of its calls may come years later.
    fn advance(&mut self, at: Timestamp, rules: RowRules) {
        if !self.is_open() && !rules.counts_ended_time {
            return;
        }
        let (since, before) = self.reopened.unwrap_or((self.started_at, 0));
        let elapsed = u64::try_from(at.since(since).as_millis()).unwrap_or(u64::MAX);
        self.usage.wall_ms = elapsed.saturating_add(before);
    }

    fn accept_loss(&mut self, lost: Option<LostTail>) {
        if let Some(tail) = lost {
            let count = self.losses().saturating_add(1);
            self.accepted_loss = Some(Box::new(AcceptedLoss { tail, count }));
        }
    }

    fn count_executions(&mut self, count: u32) {
        self.usage.tool_calls = self.usage.tool_calls.saturating_add(count);
    }
}

/// Returns the last failure as in rows from before they counted child runs and hooks that stop a run.
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

/// Returns the failure that an event records and that rows of earlier versions did not count.
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
    use layer0::event::{
        Actor, Hash, RunFailed, RunForked, RunReopened, RunStarted, ToolProbed, Verdict, Warning,
    };
    use layer0::usage::Usage;
    use serde_json::json;

    use super::*;
    use crate::Payload;

    fn started() -> EventKind {
        let started = json!({
            "input": "x", "session": "ses_1", "machine": 1,
            "agent": { "name": "demo", "digest": "d", "definition": {} },
        });
        serde_json::from_value::<RunStarted>(started).unwrap().into()
    }

    fn failed(wall_ms: u64) -> EventKind {
        let mut usage = Usage::default();
        usage.wall_ms = wall_ms;
        RunFailed::new("provider.timeout", vec!["x".into()], usage).into()
    }

    fn fold(kinds: impl IntoIterator<Item = (i64, EventKind)>, erased: &[u64]) -> RunSummary {
        let mut summary = RunSummary::new("run_1".into());
        for (seq, (at, kind)) in (1..).zip(kinds) {
            let at = Timestamp::from_millis(at);
            if erased.contains(&seq) {
                let payload = Payload::Erased(Hash::default());
                let (event_type, actor) = (kind.event_type(), Actor::Runtime);
                summary.apply_erased(&Record::new(seq, at, event_type, actor, payload));
            } else {
                summary.apply(&Event::new("run_1", seq, at, Actor::Runtime, kind));
            }
        }
        summary
    }

    /// Spec: D5. The time between an end and a reopening does not count, also where a call is probed in it.
    #[test]
    fn late_probe_takes_no_time() {
        let probed = ToolProbed::new("c1", Verdict::Unknown, None);
        let mut kinds: Vec<(i64, EventKind)> =
            vec![(0, started()), (10, failed(10)), (400_000, probed.into())];
        assert_eq!(fold(kinds.clone(), &[]).usage.wall_ms, 10);
        kinds.push((400_001, RunReopened::new("ops", None).into()));
        assert_eq!(fold(kinds.clone(), &[]).usage.wall_ms, 10);
        kinds.push((400_008, Warning::new("running").into()));
        assert_eq!(fold(kinds, &[]).usage.wall_ms, 17);
    }

    /// Spec: D7, D13
    #[test]
    fn erased_events_count_their_time() {
        let forked = RunForked::new("run_1", "s", "run_0", 4);
        let kinds: Vec<(i64, EventKind)> = vec![
            (100, started()),
            (110, failed(10)),
            (400_000, RunReopened::new("ops", None).into()),
            (400_007, Warning::new("private").into()),
            (900_000, forked.into()),
            (900_030, Warning::new("later").into()),
        ];
        let whole = fold(kinds.clone(), &[]);
        assert_eq!((whole.started_at, whole.usage.wall_ms), (Timestamp::from_millis(900_000), 47));
        for erased in [&[1, 3, 4, 5, 6][..], &[1], &[3], &[4], &[5], &[6]] {
            let rest = fold(kinds.clone(), erased);
            assert_eq!(rest.usage.wall_ms, 47, "{erased:?}");
            let times = (rest.started_at, rest.reopened, rest.state);
            assert_eq!(times, (whole.started_at, whole.reopened, whole.state), "{erased:?}");
        }
    }
}
