//! The summary of a run, as each kind of event changes it.

use std::sync::Arc;

use backstop_event_log::{
    Payload, Record, RunState, RunSummary, current_agent, readable_sessions, session_of_fork,
};
use layer0::Code;
use layer0::event::*;
use layer0::message::Message;
use layer0::stop::Outcome;
use layer0::usage::{BudgetIncrease, TokenUsage, Usage};
use serde_json::{Value, json};

use crate::recording::{agent, at, started};

/// Folds events a second apart.
fn fold(kinds: impl IntoIterator<Item = EventKind>) -> RunSummary {
    let mut summary = RunSummary::new("run_1".into());
    for (seq, kind) in (1..).zip(kinds) {
        summary.apply(&event(seq, kind));
    }
    summary
}

fn event(seq: u64, kind: impl Into<EventKind>) -> Event {
    Event::new("run_1", seq, at(1_000 * i64::try_from(seq).unwrap()), Actor::Runtime, kind)
}

fn kind(event_type: &str, data: &Value) -> EventKind {
    EventKind::decode(event_type, &data.to_string()).unwrap()
}

fn waiting() -> EventKind {
    RunWaiting::new(WaitFor::Approval, vec!["apr_1".into()]).into()
}

/// Spec: D4
#[test]
fn start_of_a_run_is_in_its_summary() {
    let mut start = started("ses_1");
    start.parent = Some("run_0".into());
    start.branch_of = Some("run_b".into());
    start.labels = Arc::new([("tenant".to_owned(), "acme".to_owned())].into());
    start.follows = Some(Box::new(Follows::new("run_f", 4, Hash::default(), 6)));
    start.key_id = Some("0123".into());
    start.history.push(Message::user("before"));
    let summary = fold([start.into()]);
    assert_eq!((summary.session.as_str(), &*summary.agent), ("ses_1", "demo"));
    assert_eq!(summary.parent, Some("run_0".into()));
    assert_eq!(summary.branch_of, Some("run_b".into()));
    assert_eq!(summary.follows, Some("run_f".into()));
    assert_eq!(
        (summary.labels["tenant"].as_str(), summary.key_id.as_deref()),
        ("acme", Some("0123"))
    );
    assert_eq!((summary.started_at, summary.last_seq), (at(1_000), 1));
    assert_eq!(summary.messages, 6 + 1 + 1, "those before, one handed on, and the input");
    assert_eq!(summary.terms.budget().get(), r#"{"max_model_calls":3}"#);
    assert_eq!(summary.usage.cost_usd, None, "no price is known");
    let workflow = AgentRecord::new("w", "d", AgentRecord::workflow(&[], "w"));
    let summary = fold([RunStarted::new("hi", "ses_1".into(), workflow).into()]);
    assert_eq!(summary.usage.cost_usd, Some(0.0), "it makes no model calls itself");
}

/// Spec: X2
#[test]
fn segment_is_named_after_its_subscription() {
    let opened = json!({ "name": "tell", "pattern": "run.failed", "key_id": "0123" });
    let summary = fold([kind("subscription.opened", &opened)]);
    assert_eq!((&*summary.agent, summary.key_id.as_deref()), ("tell", Some("0123")));
    assert_eq!((summary.started_at, summary.usage.cost_usd), (at(1_000), Some(0.0)));
}

/// Spec: D4. The last failure is the newest event that records one.
#[test]
fn last_failure_is_read_from_each_event() {
    let usage = json!(Usage::default());
    let rows = [
        ("model.attempted", json!({ "call": 1, "attempt": 1, "provider": "p", "code": "a.b" })),
        (
            "model.failed",
            json!({ "call": 1, "reason": "a.b", "message": "", "chain": [], "attempts": 1 }),
        ),
        (
            "tool.attempted",
            json!({ "call_id": "c", "execution": 1, "reason": "a.b", "delay_ms": 0 }),
        ),
        (
            "tool.responded",
            json!({ "call_id": "c", "tool": "t", "ok": false, "output": "", "duration_ms": 0, "error": { "reason": "a.b", "message": "" } }),
        ),
        (
            "hook.failed",
            json!({ "hook": "h", "point": "p", "reason": "a.b", "message": "", "fail_open": true }),
        ),
        (
            "hook.aborted",
            json!({ "hook": "h", "point": "p", "reason": "a.b", "message": "", "fail_open": true }),
        ),
        ("memory.degraded", json!({ "operation": "read", "reason": "a.b", "message": "" })),
        ("error_store.degraded", json!({ "operation": "get", "reason": "a.b", "message": "" })),
        ("budget.exhausted", json!({ "reason": "a.b", "dimension": "d", "limit": 1, "used": 1 })),
        (
            "guard.tripped",
            json!({ "reason": "a.b", "guard": "g", "count": 1, "limit": 1, "message": "" }),
        ),
        ("run.failed", json!({ "reason": "a.b", "message": "", "chain": [], "usage": usage })),
        (
            "behavior.failed",
            json!({ "behavior": "b", "run": "r", "seq": 1, "attempts": 1, "exception_type": "E", "reason": "a.b", "message": "" }),
        ),
        (
            "operator.returned",
            json!({ "operator": "o", "run": "r", "outcome": "failed", "reason": "a.b", "usage": usage }),
        ),
    ];
    for (event_type, data) in rows {
        let summary = fold([started("s").into(), kind(event_type, &data), Warning::new("").into()]);
        let last = summary.last_failure.map(|last| (last.seq, last.code));
        assert_eq!(last, Some((2, Code::new("a.b"))), "{event_type}");
    }
    let stopped = json!({ "operator": "o", "run": "r", "outcome": "cancelled", "reason": "a.b", "usage": usage });
    assert_eq!(fold([kind("operator.returned", &stopped)]).last_failure, None, "it did not fail");
}

/// Spec: D4, O5. Whatever continues the run ends its wait.
#[test]
fn wait_ends_with_what_continues_the_run() {
    let usage = json!(Usage::default());
    let allowance = json!(layer0::usage::Allowance::without_bounds());
    let decision =
        json!({ "approval_id": "apr_1", "call_id": "c", "by": "ops", "reason": "approval.denied" });
    let rows = [
        ("approval.granted", decision.clone()),
        ("approval.denied", decision),
        (
            "operator.dispatched",
            json!({ "operator": "o", "run": "r", "attempt": 1, "input_digest": "d", "allowance": allowance }),
        ),
        (
            "operator.waiting",
            json!({ "operator": "o", "run": "r", "for": "budget", "approvals": [] }),
        ),
        (
            "operator.returned",
            json!({ "operator": "o", "run": "r", "outcome": "completed", "usage": usage }),
        ),
        ("budget.granted", json!({ "run": "r" })),
        ("run.recovered", json!({ "rerun": [], "interrupted": [], "models": 0 })),
        ("run.resumed", json!({ "by": "ops" })),
        ("signal.received", json!({ "name": "cancel", "data": null })),
    ];
    let parked = || RunParked::new(at(60_000), "provider.rate_limited", "busy");
    for (event_type, data) in rows {
        let summary = fold([started("s").into(), waiting(), kind(event_type, &data)]);
        assert_eq!((summary.state, summary.outcome), (RunState::Running, None), "{event_type}");
        let summary = fold([started("s").into(), parked().into(), kind(event_type, &data)]);
        assert_eq!((summary.state, summary.parked), (RunState::Running, None), "{event_type}");
    }
    for (event_type, data) in [
        ("signal.received", json!({ "name": "input", "data": "x" })),
        ("run.waiting", json!({ "for": "budget", "approvals": [] })),
        ("warning", json!({ "message": "" })),
        (
            "tool.resolved",
            json!({ "call_id": "c", "by": "ops", "verdict": "happened", "message": "" }),
        ),
    ] {
        let summary = fold([started("s").into(), waiting(), kind(event_type, &data)]);
        let waits = (RunState::WaitingApproval, Some(Outcome::WaitingApproval));
        assert_eq!((summary.state, summary.outcome), waits, "{event_type}");
    }
    let summary = fold([started("s").into(), parked().into(), Warning::new("").into()]);
    assert_eq!(summary.parked, Some((at(2_000), at(60_000))));
    assert_eq!(summary.outcome, Some(Outcome::WaitingApproval));
}

/// Spec: D4, B2
#[test]
fn usage_is_counted_event_by_event() {
    let mut attempted = ModelAttempted::new(2, 1, "p");
    attempted.usage = Some(TokenUsage::new(7, 5));
    attempted.usage_estimated = true;
    attempted.cost_nanousd = Some(500_000_000);
    let mut below = Usage::free();
    (below.model_calls, below.model_attempts, below.total_tokens) = (3, 4, 9);
    below.cost_usd = Some(0.25);
    let returned = OperatorReturned::new("o", "r", Outcome::Completed, None, below);
    let said =
        json!({ "call": 1, "text": "hm", "tool_calls": [], "stop_reason": "end", "usage": {} });
    let unsaid =
        json!({ "call": 1, "text": "", "tool_calls": [], "stop_reason": "end", "usage": {} });
    let stored =
        json!({ "error_id": "e", "call_id": "c", "tool": "t", "occurrences": 1, "chars_kept": 1 });
    let summary = fold([
        started("s").into(),
        attempted.into(),
        returned.into(),
        ModelRequested::new(2, "d", "t", 1).into(),
        kind("model.responded", &said),
        kind("model.responded", &unsaid),
        ToolResponded::success("c", "t", json!(1), 1).into(),
        kind("error.stored", &stored),
        kind("error.stored", &stored),
    ]);
    assert_eq!((summary.messages, summary.errors), (3, 2));
    let usage = summary.usage;
    assert_eq!((usage.model_calls, summary.dispatched_model_calls), (5, 3));
    assert_eq!((usage.model_attempts, usage.total_tokens, usage.estimated), (5, 21, true));
    assert_eq!((usage.cost_usd, usage.wall_ms), (Some(0.75), 8_000));
}

/// Spec: D12, B2, J2
#[test]
fn reopening_adds_to_message_budget_and_losses() {
    let lost = LostTail::new(9, Hash([9; 32]));
    let reopened = |message: Option<&str>, more: Option<u32>| {
        let mut reopened = RunReopened::new("ops", None);
        reopened.message = message.map(Into::into);
        reopened.budget = more.map(|more| Box::new(BudgetIncrease::new().tool_calls(more)));
        reopened.lost_tail = message.map(|_| lost);
        EventKind::from(reopened)
    };
    let summary = fold([
        started("s").into(),
        Warning::new("").into(),
        reopened(Some("go on"), Some(2)),
        reopened(None, Some(3)),
        RunResumed::new("ops").accepting(lost).into(),
    ]);
    assert_eq!((summary.messages, summary.reopens, summary.losses()), (2, 2, 2));
    assert_eq!(summary.raised, Some(Box::new(BudgetIncrease::new().tool_calls(5))));
    assert_eq!(summary.accepted_loss.map(|loss| loss.tail), Some(lost));
    assert_eq!(summary.reopened, Some((at(4_000), 1_000)));
    let other = AgentRecord::new("demo", "d", json!({ "budget": { "max_tool_calls": 1 } }));
    let summary = fold([started("s").into(), RunResumed::new("ops").adopting(other).into()]);
    assert_eq!(summary.terms.budget().get(), r#"{"max_tool_calls":1}"#);
}

/// Spec: X2. The last causes are kept.
#[test]
fn causes_of_a_run_are_bounded() {
    let signal = |number: u64| {
        let mut signal = SignalReceived::new("look", json!(null));
        signal.cause = Some(Box::new(Cause::new("tell", "run_0", number, 1)));
        EventKind::from(signal)
    };
    let summary = fold((1..=18).map(signal));
    let seqs: Vec<u64> = summary.causes.iter().map(|(seq, ..)| *seq).collect();
    assert_eq!(seqs, Vec::from_iter(3..=18), "{}", RunSummary::MAX_CAUSES);
    let (_, time, cause) = &summary.causes[0];
    assert_eq!((*time, cause.seq), (at(3_000), 3));
}

/// Spec: D7
#[test]
fn copy_has_a_session_of_its_own() {
    let mut start = started("ses_1");
    (start.parent, start.branch_of) = (Some("run_0".into()), Some("run_b".into()));
    start.follows = Some(Box::new(Follows::new("run_f", 4, Hash::default(), 6)));
    let failed = RunFailed::new("a.b", vec!["m".into()], Usage::default());
    let forked = RunForked::new("run_1", "ses_1", "run_0", 2);
    let summary = fold([start.into(), failed.into(), forked.into()]);
    assert_eq!(summary.session.as_str(), "ses_1", "named after the run");
    assert_eq!((summary.parent, summary.follows, summary.branch_of), (None, None, None));
    assert_eq!(
        (summary.state, summary.reason, summary.finished_at),
        (RunState::Running, None, None)
    );
    assert_eq!(session_of_fork(&"copy".into()).as_str(), "ses_copy");
}

/// Spec: D13. The types and times of erased events count.
#[test]
fn erased_event_changes_state_and_time() {
    for (event_type, state, started_at, wall_ms) in [
        ("run.started", RunState::Running, 2_000, 0),
        ("subscription.opened", RunState::Running, 2_000, 0),
        ("run.forked", RunState::Running, 2_000, 0),
        ("run.reopened", RunState::Running, 1_000, 0),
        ("tool.resolved", RunState::Running, 1_000, 0),
        ("run.finished", RunState::Finished, 1_000, 0),
        ("run.failed", RunState::Failed, 1_000, 0),
        ("warning", RunState::Running, 1_000, 1_000),
    ] {
        let mut summary = fold([started("s").into()]);
        let payload = Payload::Erased(Hash::default());
        let mut record = Record::new(2, at(2_000), event_type, Actor::Runtime, payload);
        record.hash = Hash([7; 32]);
        summary.apply_erased(&record);
        assert_eq!((summary.state, summary.started_at), (state, at(started_at)), "{event_type}");
        assert_eq!(summary.usage.wall_ms, wall_ms, "{event_type}");
        assert_eq!((summary.last_seq, summary.head), (2, Hash([7; 32])), "{event_type}");
        assert!(summary.salted, "{event_type}");
    }
}

/// Spec: D7, E5. A copy reads what its originals stored.
#[test]
fn readable_sessions_are_those_of_the_line() {
    let mut start = started("ses_1");
    start.sessions = ["ses_above".into(), "ses_1".into()].into();
    let fork = |seq: u64, parent: &str| event(seq, RunForked::new("run_1", "s", parent, 1));
    let names = |events: &[Event]| -> Vec<String> {
        readable_sessions(events).iter().map(ToString::to_string).collect()
    };
    let first = event(1, start);
    assert_eq!(names(std::slice::from_ref(&first)), ["ses_1", "ses_above"]);
    let mut twice = [first, fork(2, "run_a"), fork(3, "run_b")];
    for event in &mut twice {
        event.run = "run_c".into();
    }
    assert_eq!(names(&twice[..2]), ["ses_c", "ses_1", "ses_above"]);
    assert_eq!(names(&twice), ["ses_c", "ses_b", "ses_1", "ses_above"]);
    assert_eq!(names(&[event(1, Warning::new(""))]), [""; 0]);
}

/// Spec: D2
#[test]
fn run_continues_with_the_agent_it_adopted_last() {
    let name = |events: &[Event]| current_agent(events).map(|agent| agent.digest.to_string());
    let start = event(1, started("s"));
    assert_eq!(name(std::slice::from_ref(&start)).as_deref(), Some("d"));
    let adopt = |seq, digest: &str| {
        let mut other = agent();
        other.digest = digest.into();
        event(seq, RunResumed::new("ops").adopting(other))
    };
    let events = [start, adopt(2, "d2"), adopt(3, "d3"), event(4, RunResumed::new("ops"))];
    assert_eq!(name(&events).as_deref(), Some("d3"));
    assert_eq!(name(&events[1..]), None, "the start is missing");
}

/// Spec: D4. A row holds only what is set.
#[test]
fn empty_parts_of_a_summary_are_not_stored() {
    let stored = serde_json::to_value(RunSummary::new("run_1".into())).unwrap();
    let keys: Vec<&str> = stored.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "run",
        "session",
        "agent",
        "state",
        "outcome",
        "reason",
        "started_at",
        "finished_at",
        "usage",
        "errors",
        "last_failure",
        "messages",
    ];
    let mut keys = keys;
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[test]
fn states_have_names() {
    use RunState::*;
    let names = [Running, WaitingApproval, Parked, Finished, Failed, Unreadable].map(|state| {
        assert_eq!(json!(state), json!(state.as_str()));
        state.as_str()
    });
    let expected = ["running", "waiting_approval", "parked", "finished", "failed", "unreadable"];
    assert_eq!(names, expected);
}
