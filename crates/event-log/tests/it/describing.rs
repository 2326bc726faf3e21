//! Lines of events for people.

use std::sync::Arc;

use backstop_event_log::{describe, format_count};
use layer0::Timestamp;
use layer0::event::*;
use layer0::message::{Image, StopReason, ToolCall};
use layer0::stop::Outcome;
use layer0::usage::{Allowance, TokenUsage, Usage};
use serde_json::{Value, json};

/// Checks the descriptions of events, each by its type and payload.
#[track_caller]
fn check(rows: &[(&str, Value, &str)]) {
    for (event_type, data, line) in rows {
        let kind = EventKind::decode(event_type, &data.to_string());
        let kind = kind.unwrap_or_else(|error| panic!("{event_type}: {error:?}"));
        assert_eq!(describe(&kind), *line, "{event_type}");
    }
}

/// Spec: D10
#[test]
fn start_and_end_of_a_run_are_described() {
    let at = |ms| json!(Timestamp::from_millis(ms));
    let agent = json!({ "name": "a", "digest": "d2", "definition": {} });
    let hash = json!(Hash::default());
    let usage = json!(Usage::default());
    let waiting = |waits: &str, approvals: &[&str]| json!({ "for": waits, "approvals": approvals });
    check(&[
        ("run.started", json!({ "input": "hi\nyou", "session": "s", "agent": agent }), "a: hi you"),
        (
            "run.started",
            json!({ "input": "hi", "session": "s", "agent": agent, "branch_of": "run_0", "labels": { "t": "x", "u": "y" } }),
            "a: hi (branch beside run_0) [t=x] [u=y]",
        ),
        ("run.forked", json!({ "parent": "run_1", "at": 3 }), "from run_1 at 3"),
        ("run.resumed", json!({ "by": "ops" }), "by ops"),
        (
            "run.resumed",
            json!({ "by": "ops", "agent": agent, "lost_tail": { "seq": 9, "hash": hash } }),
            "by ops, defined anew: d2, without its lost events up to 9",
        ),
        ("run.reopened", json!({ "by": "ops" }), "by ops"),
        ("run.reopened", json!({ "by": "ops", "message": "go on" }), "by ops: go on"),
        (
            "run.parked",
            json!({ "until": at(60_000), "reason": "provider.rate_limited", "message": "busy" }),
            "until 1970-01-01T00:01:00.000Z: provider.rate_limited busy",
        ),
        (
            "run.recovered",
            json!({ "rerun": ["a"], "interrupted": ["b", "c"], "probing": ["d"], "models": 0 }),
            "1 run again, 2 interrupted, 1 asked about",
        ),
        (
            "run.recovered",
            json!({ "rerun": [], "interrupted": [], "models": 1 }),
            "0 run again, 0 interrupted",
        ),
        ("run.waiting", waiting("approval", &[]), "waits for approval"),
        ("run.waiting", waiting("approval", &["apr_1"]), "waits for 1 decision: apr_1"),
        ("run.waiting", waiting("budget", &[]), "waits for budget"),
        (
            "run.finished",
            json!({ "outcome": "completed", "output": "done", "usage": usage }),
            "completed: done",
        ),
        (
            "run.finished",
            json!({ "outcome": "incomplete", "reason": "model.refusal", "output": "hm", "usage": usage }),
            "incomplete (model.refusal): hm",
        ),
        (
            "run.failed",
            json!({ "reason": "provider.timeout", "message": "a", "chain": ["a", "b"], "usage": usage }),
            "provider.timeout: a: b",
        ),
    ]);
}

/// Spec: D10
#[test]
fn model_calls_are_described() {
    check(&[
        (
            "model.requested",
            json!({ "call": 2, "request_digest": "d", "tools_digest": "t", "messages": 1 }),
            "call 2, 1 message",
        ),
        (
            "model.attempted",
            json!({ "call": 1, "attempt": 1, "provider": "p", "request_id": "r" }),
            "call 1 attempt 1 at p: ok",
        ),
        (
            "model.attempted",
            json!({
                "call": 1, "attempt": 2, "provider": "p", "code": "provider.transient",
                "status": 503, "request_id": "r", "delay_ms": 1_500,
            }),
            "call 1 attempt 2 at p: provider.transient (HTTP 503), request r, waits 1.5s",
        ),
        (
            "model.attempted",
            json!({
                "call": 1, "attempt": 3, "provider": "p", "code": "provider.transient",
                "next_provider": "q", "delay_ms": 0,
            }),
            "call 1 attempt 3 at p: provider.transient, then q",
        ),
        (
            "model.failed",
            json!({ "call": 1, "reason": "provider.timeout", "message": "m", "chain": [], "attempts": 3 }),
            "provider.timeout after 3 attempts",
        ),
        (
            "context.compacted",
            json!({ "from": 1, "to": 3, "tokens_before": 9, "tokens_after": 4 }),
            "messages 1 to 3: 9 → 4 tokens",
        ),
    ]);
    let calls = || Arc::from([ToolCall::new("c1", "look", json!({ "a": 1 }))]);
    for (text, calls, line) in [
        ("hm", Arc::default(), "hm"),
        ("", calls(), r#"look({"a":1})"#),
        ("hm", calls(), r#"hm → look({"a":1})"#),
    ] {
        let answer = ModelResponded::new(1, text, calls, StopReason::End, TokenUsage::default());
        assert_eq!(describe(&answer.into()), line);
    }
}

/// Spec: D10
#[test]
fn tool_calls_are_described() {
    let answer = |rest: Value| {
        let mut data = json!({
            "call_id": "c1", "tool": "look", "ok": true, "output": "done", "duration_ms": 1_500,
        });
        data.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        data
    };
    let failure = json!({ "reason": "tool.timeout", "message": "late" });
    check(&[
        (
            "tool.requested",
            json!({ "call_id": "c1", "tool": "look", "arguments": { "a": 1 }, "execution": 1 }),
            r#"look({"a":1})"#,
        ),
        (
            "tool.attempted",
            json!({ "call_id": "c1", "execution": 1, "reason": "tool.timeout", "delay_ms": 250 }),
            "c1 tool.timeout, waits 250ms",
        ),
        ("tool.responded", answer(json!({})), "look ok in 1.5s: done"),
        (
            "tool.responded",
            answer(json!({ "stderr": "oops" })),
            "look ok in 1.5s: done (standard error: oops)",
        ),
        ("tool.responded", answer(json!({ "error": failure })), "look tool.timeout in 1.5s: late"),
        ("tool.late", json!({ "call_id": "c1", "execution": 1 }), "c1 answered too late"),
        ("tool.probed", json!({ "call_id": "c1", "verdict": "happened" }), "c1 happened"),
        (
            "tool.resolved",
            json!({ "call_id": "c1", "by": "ops", "verdict": "did_not", "message": "m" }),
            "c1 did_not by ops",
        ),
        (
            "error.stored",
            json!({ "error_id": "err_1", "call_id": "c1", "tool": "look", "occurrences": 1, "chars_kept": 1 }),
            "err_1 from look, 1 character kept from the model",
        ),
        (
            "error_store.degraded",
            json!({ "operation": "store", "reason": "error_store.timeout", "message": "late" }),
            "store: error_store.timeout late",
        ),
        (
            "result.stored",
            json!({ "result_id": "res_1", "call_id": "c1", "bytes": 2 }),
            "res_1, 2 bytes",
        ),
    ]);
    let image = Image::from_bytes(b"GIF89a").unwrap();
    for (count, shown) in [(0, ""), (1, " (with 1 image)"), (2, " (with 2 images)")] {
        let images: Arc<[Image]> = vec![image.clone(); count].into();
        let mut answer = ToolResponded::success("c1", "look", json!("done"), 1_000);
        answer.images = Arc::clone(&images);
        assert_eq!(describe(&answer.into()), format!("look ok in 1s: done{shown}"));
        let agent = AgentRecord::new("a", "d", json!({}));
        let mut started = RunStarted::new("hi", "s".into(), agent);
        started.images = images;
        assert_eq!(describe(&started.into()), format!("a: hi{shown}"));
    }
}

/// Spec: D10
#[test]
fn decisions_of_people_are_described() {
    let asked = |rest: Value| {
        let mut data = json!({
            "approval_id": "apr_1", "call_id": "c1", "tool": "pay", "arguments": {},
            "arguments_hash": "h",
        });
        data.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        data
    };
    let over = json!(Timestamp::from_millis(60_000));
    check(&[
        ("approval.requested", asked(json!({})), "apr_1 pay"),
        ("approval.requested", asked(json!({ "schema": {} })), "apr_1 pay, asks for data"),
        (
            "approval.requested",
            asked(json!({ "schema": {}, "message": "which?" })),
            "apr_1 pay asks: which?",
        ),
        (
            "approval.requested",
            asked(json!({ "expires_at": over, "approvers": ["ops", "ada"] })),
            "apr_1 pay, until 1970-01-01T00:01:00.000Z, by ops, ada",
        ),
        (
            "approval.granted",
            json!({ "approval_id": "apr_1", "call_id": "c1", "by": "ops" }),
            "apr_1 by ops",
        ),
        (
            "approval.granted",
            json!({ "approval_id": "apr_1", "call_id": "c1", "by": "ops", "arguments": { "a": 1 }, "data": { "d": 2 } }),
            r#"apr_1 by ops, with {"a":1}, gives {"d":2}"#,
        ),
        (
            "approval.denied",
            json!({ "approval_id": "apr_1", "call_id": "c1", "by": "ops", "reason": "approval.denied" }),
            "apr_1 by ops",
        ),
        (
            "approval.denied",
            json!({ "approval_id": "apr_1", "call_id": "c1", "by": "backstop", "reason": "approval.expired" }),
            "apr_1 approval.expired",
        ),
        ("signal.received", json!({ "name": "cancel", "data": null }), "cancel"),
        ("signal.received", json!({ "name": "input", "data": "go on" }), "input: go on"),
    ]);
}

/// Spec: D10
#[test]
fn hooks_memory_and_guards_are_described() {
    let hook = |reason: &str| json!({ "hook": "h", "point": "run_end", "reason": reason, "message": "no", "fail_open": false });
    check(&[
        ("hook.failed", hook("hook.timeout"), "h at run_end: hook.timeout no"),
        ("hook.aborted", hook("hook.aborted"), "h at run_end: no"),
        ("hook.passed", json!({ "point": "run_start" }), "run_start"),
        ("memory.read", json!({ "entries": ["a", "b"] }), "2 entries"),
        ("memory.wrote", json!({ "count": 1 }), "1 entry"),
        (
            "memory.degraded",
            json!({ "operation": "read", "reason": "memory.timeout", "message": "late" }),
            "read: memory.timeout late",
        ),
        (
            "budget.exhausted",
            json!({ "reason": "budget.tool_calls", "dimension": "tool_calls", "limit": 3, "used": 3, "message": "3 of 3 used" }),
            "budget.tool_calls: 3 of 3",
        ),
        (
            "budget.exhausted",
            json!({ "reason": "budget.cost_usd", "dimension": "cost_usd", "limit": 1, "used": 2, "message": "the agent, a day: 2 of 1 used" }),
            "budget.cost_usd: the agent, a day, 2 of 1",
        ),
        (
            "guard.tripped",
            json!({ "reason": "guard.stagnation", "guard": "stagnation", "count": 6, "limit": 5, "message": "again" }),
            "guard.stagnation: again",
        ),
        ("warning", json!({ "message": "a\tb" }), "a b"),
        (
            "mcp.tools_changed",
            json!({ "server": "s", "added": ["a", "b"], "removed": [], "changed": ["c"] }),
            "s: added a, b; changed c",
        ),
    ]);
}

/// Spec: D10, X2
#[test]
fn deliveries_are_described() {
    let delivered = |deaths: u32| json!({ "behavior": "b", "run": "run_1", "seq": 3, "event": "run.failed", "deaths": deaths });
    let completed =
        |attempts: u32| json!({ "behavior": "b", "run": "run_1", "seq": 3, "attempts": attempts });
    check(&[
        ("subscription.opened", json!({ "name": "n", "pattern": "run.failed" }), "n: run.failed"),
        (
            "subscription.opened",
            json!({ "name": "n", "pattern": "run.failed", "follows": "sub_n.1" }),
            "n: run.failed (after sub_n.1)",
        ),
        ("behavior.delivered", delivered(0), "b gets run.failed 3 of run_1"),
        ("behavior.delivered", delivered(1), "b gets run.failed 3 of run_1 (a process died at it)"),
        (
            "behavior.delivered",
            delivered(2),
            "b gets run.failed 3 of run_1 (2 processes died at it)",
        ),
        ("behavior.completed", completed(1), "b done with 3 of run_1"),
        ("behavior.completed", completed(2), "b done with 3 of run_1 after 2 attempts"),
        (
            "behavior.failed",
            json!({ "behavior": "b", "run": "run_1", "seq": 3, "attempts": 2, "exception_type": "E", "reason": "behavior.failed", "message": "m" }),
            "b at 3 of run_1 after 2 attempts: behavior.failed m",
        ),
    ]);
}

/// Spec: D10, O3
#[test]
fn child_runs_are_described() {
    let mut bounds = Allowance::without_bounds();
    (bounds.tool_calls, bounds.output_tokens) = (Some(1), Some(2));
    bounds.total_tokens = Some(1);
    let mut dispatched = OperatorDispatched::new("o", "run_2", 2, "d", Box::new(bounds));
    dispatched.step = Some("draft".into());
    let line = "o as run_2 at draft, attempt 2, may use 1 tool call, 2 tokens out, 1 token";
    assert_eq!(describe(&dispatched.into()), line);
    let all = BudgetGranted::new("run_2", Some(Allowance::without_bounds()));
    assert_eq!(describe(&all.into()), "all it wants to run_2");
    let mut usage = Usage::default();
    (usage.model_attempts, usage.total_tokens) = (2, 1);
    let returned = OperatorReturned::new("o", "run_2", Outcome::Completed, None, usage);
    assert_eq!(describe(&returned.into()), "o completed: 2 model calls, 1 token");
    check(&[
        (
            "operator.refused",
            json!({ "operator": "o", "step": "draft", "reason": "orch.depth", "messages": [] }),
            "o at draft (orch.depth)",
        ),
        ("workflow.routed", json!({ "step": "draft", "to": "review" }), "draft → review"),
    ]);
}

#[test]
fn counts_have_their_plurals() {
    for (number, what, text) in [
        (0, "entry", "0 entries"),
        (1, "entry", "1 entry"),
        (2, "day", "2 days"),
        (2, "byte", "2 bytes"),
    ] {
        assert_eq!(format_count(number, what), text);
    }
}
