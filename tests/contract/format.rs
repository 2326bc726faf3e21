//! The JSON of a rehearsal has the documented keys, all of them and no other.

use regex::Regex;
use serde_json::Value;

use crate::support::played::{Played, failing, passing};

/// The keys of each event's data.
const EVENTS: &[(&str, &[&str])] = &[
    ("run.reopened", &["by", "reason", "budget", "message", "cause"]),
    ("run.parked", &["until", "reason", "message"]),
    ("run.resumed", &["by", "agent"]),
    (
        "run.started",
        &[
            "run",
            "input",
            "session",
            "agent",
            "definition_digest",
            "root",
            "parent",
            "follows",
            "machine",
            "depth",
            "allowance",
            "deadline",
            "output_schema",
            "mcp",
            "labels",
            "trace_parent",
            "cause",
            "journal",
            "key_id",
        ],
    ),
    ("run.finished", &["outcome", "reason", "message", "output", "usage"]),
    ("run.failed", &["reason", "message", "chain", "usage"]),
    ("model.requested", &["call", "request_digest", "tools_digest", "messages"]),
    (
        "model.attempted",
        &[
            "call",
            "attempt",
            "provider",
            "model",
            "code",
            "status",
            "delay_ms",
            "usage",
            "cost_nanousd",
            "next_provider",
            "duration_ms",
            "first_token_ms",
            "request_id",
        ],
    ),
    ("model.responded", &["call", "text", "thinking", "tool_calls", "stop_reason", "usage"]),
    ("model.failed", &["call", "reason", "message", "chain", "attempts"]),
    ("tool.requested", &["call_id", "tool", "arguments", "execution"]),
    ("tool.responded", &["call_id", "tool", "ok", "output", "duration_ms", "error"]),
    // And of the guards that have them `signature` or `text_hash`.
    ("guard.tripped", &["reason", "message", "guard", "count", "limit"]),
    ("error.stored", &["error_id", "call_id", "tool", "code", "occurrences", "chars_kept"]),
    ("error_store.degraded", &["operation", "reason", "message"]),
    ("signal.received", &["name", "data", "cause"]),
    ("memory.read", &["entries"]),
    ("memory.wrote", &["count"]),
    ("memory.degraded", &["operation", "reason", "message"]),
    ("result.stored", &["result_id", "call_id", "bytes"]),
    ("warning", &["message"]),
    ("budget.exhausted", &["reason", "message", "dimension", "limit", "used"]),
    ("tool.attempted", &["call_id", "execution", "reason", "message", "delay_ms"]),
    ("tool.probed", &["call_id", "verdict", "output"]),
    ("hook.passed", &["point", "call_id"]),
    ("hook.failed", &["hook", "point", "call_id", "reason", "message", "fail_open"]),
    ("hook.aborted", &["hook", "point", "call_id", "reason", "message", "fail_open"]),
    ("run.waiting", &["for", "approvals"]),
    (
        "operator.dispatched",
        &["operator", "run", "attempt", "call_id", "step", "input_digest", "allowance"],
    ),
    ("operator.waiting", &["operator", "run", "for", "approvals"]),
    ("operator.refused", &["operator", "step", "reason", "messages"]),
    ("operator.returned", &["operator", "run", "outcome", "reason", "usage"]),
    ("workflow.routed", &["step", "to"]),
    ("budget.granted", &["run", "allowance"]),
    (
        "approval.requested",
        &[
            "approval_id",
            "call_id",
            "tool",
            "arguments",
            "arguments_hash",
            "schema",
            "expires_at",
            "approvers",
        ],
    ),
    (
        "approval.granted",
        &["approval_id", "call_id", "by", "reason", "message", "arguments", "data"],
    ),
    ("approval.denied", &["approval_id", "call_id", "by", "reason", "message"]),
];

/// Decisions, which the machine derives again on replay; the others are facts.
const DECISIONS: &[&str] = &[
    "run.finished",
    "run.failed",
    "model.requested",
    "guard.tripped",
    "budget.exhausted",
    "run.waiting",
    "approval.requested",
];

fn everything() -> impl Iterator<Item = &'static Played> {
    passing().iter().chain(failing())
}

#[track_caller]
fn check_keys(value: &Value, keys: &[&str], of: &str) {
    let mut actual: Vec<&str> =
        value.as_object().unwrap_or_else(|| panic!("{of}: {value}")).keys().map(|k| &**k).collect();
    let mut expected = keys.to_vec();
    actual.sort_unstable();
    expected.sort_unstable();
    assert_eq!(actual, expected, "{of}");
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

#[test]
fn a_rehearsal_has_the_documented_keys() {
    for played in everything() {
        let (name, json) = (&played.name, &played.json);
        let mut keys = vec![
            "scenario",
            "pass",
            "diff",
            "run",
            "session",
            "outcome",
            "reason",
            "error",
            "output",
            "usage",
            "elapsed_ms",
            "events",
            "requests",
            "errors",
            "unused",
        ];
        keys.extend((!played.scenario.operator.is_empty()).then_some("runs"));
        check_keys(json, &keys, name);
        if !json["error"].is_null() {
            check_keys(&json["error"], &["code", "chain"], name);
        }
        check_usage(&json["usage"], name);
        for error in items(&json["errors"]) {
            check_keys(
                error,
                &["id", "tool", "call_id", "reason", "code", "summary", "raw", "occurrences"],
                name,
            );
        }
    }
}

/// Spec: C6. The root comes first; what is known of those below stands beside them.
#[test]
fn runs_have_the_documented_keys() {
    for played in everything() {
        let name = &played.name;
        for (index, run) in played.runs().iter().enumerate() {
            let mut keys = vec!["run", "operator", "parent", "outcome", "reason", "usage"];
            if index > 0 {
                keys.push("events");
                keys.extend(run.get("requests").map(|_| "requests"));
                let earlier = played.runs()[..index].iter();
                assert!(earlier.clone().any(|earlier| earlier["run"] == run["parent"]), "{name}");
            }
            check_keys(run, &keys, name);
            check_usage(&run["usage"], name);
            assert_eq!(run["reason"].is_null(), run["outcome"] == "completed", "{name}");
        }
        let Some(root) = played.runs().first() else { continue };
        for key in ["run", "outcome", "reason", "usage"] {
            assert_eq!(root[key], played.json[key], "{name}");
        }
        assert!(root["parent"].is_null(), "{name}");
    }
}

#[test]
fn requests_have_the_documented_keys() {
    for played in everything() {
        let below = played.runs().iter().filter_map(|run| run["requests"].as_array()).flatten();
        for request in played.requests().iter().chain(below) {
            check_keys(request, &["messages", "tools"], &played.name);
            assert!(items(&request["tools"]).iter().all(Value::is_string), "{}", played.name);
            for message in items(&request["messages"]) {
                check_message(message, &played.name);
            }
        }
    }
}

fn check_message(message: &Value, of: &str) {
    let mut keys = vec!["role", "content"];
    match message["role"].as_str().unwrap() {
        "system" | "user" => {}
        "assistant" => {
            if let Some(calls) = message.get("tool_calls") {
                keys.push("tool_calls");
                for call in items(calls) {
                    check_keys(call, &["id", "name", "arguments"], of);
                }
            }
        }
        "tool" => {
            keys.push("tool_call_id");
            if let Some(is_error) = message.get("is_error") {
                keys.push("is_error");
                assert!(is_error.is_boolean(), "{of}");
            }
        }
        role => panic!("{of}: unknown role `{role}`"),
    }
    check_keys(message, &keys, of);
    assert!(message["content"].is_string(), "{of}");
}

fn check_usage(usage: &Value, of: &str) {
    check_keys(
        usage,
        &[
            "model_calls",
            "model_attempts",
            "tool_calls",
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cached_tokens",
            "cost_usd",
            "wall_ms",
        ],
        of,
    );
}

fn check_tokens(usage: &Value, of: &str) {
    check_keys(usage, &["input_tokens", "output_tokens", "cached_tokens"], of);
}

/// Spec: D1
#[test]
fn events_have_the_documented_envelope_and_data() {
    for played in everything() {
        for event in played.events().iter().chain(played.events_below()) {
            let event_type = event["type"].as_str().unwrap();
            let of = format!("{} {} {event_type}", played.name, event["seq"]);
            check_keys(
                event,
                &[
                    "run",
                    "seq",
                    "at",
                    "type",
                    "actor",
                    "caused_by",
                    "schema",
                    "data",
                    "salt",
                    "hash",
                ],
                &of,
            );
            assert_eq!(event["schema"], 1, "{of}");
            let known = EVENTS.iter().find(|(known, _)| *known == event_type);
            let keys = known.unwrap_or_else(|| panic!("{of}: add its keys here")).1;
            let data = &event["data"];
            // The evidence of a guard is one of two, or none.
            let evidence = match data["reason"].as_str() {
                Some("guard.loop_detected") => Some("signature"),
                Some("guard.stagnation") => Some("text_hash"),
                _ => None,
            };
            let evidence = evidence.filter(|_| event_type == "guard.tripped");
            // What the code of a failure says by itself is not repeated.
            let is_failure = matches!(event_type, "model.failed" | "run.failed");
            let retry = (is_failure && data.get("retry").is_some()).then_some("retry");
            // What a call asks that is running already, in its tool's words.
            let asks = event_type == "approval.requested" && data.get("message").is_some();
            let asks = asks.then_some("message");
            // The failure of a step without a record, and whether another step stopped it.
            let is_return = event_type == "operator.returned";
            let kept = ["retry", "effect", "messages", "superseded"]
                .into_iter()
                .filter(|key| is_return && data.get(*key).is_some());
            // The lost event that a person accepted.
            let lost = matches!(event_type, "run.resumed" | "run.reopened")
                .then_some("lost_tail")
                .filter(|key| data.get(*key).is_some());
            let keys = keys.iter().copied().chain(evidence).chain(retry).chain(asks).chain(kept);
            // Only of a run that may be parked.
            let parks = (event_type == "run.started" && data.get("max_park_ms").is_some())
                .then_some("max_park_ms");
            let keys = keys.chain(lost).chain(parks);
            let keys: Vec<&str> = keys.collect();
            check_keys(data, &keys, &of);
            match event_type {
                "run.started" => {
                    check_keys(&data["agent"], &["name", "digest", "definition"], &of);
                }
                "run.resumed" if !data["agent"].is_null() => {
                    check_keys(&data["agent"], &["name", "digest", "definition"], &of);
                }
                "run.finished" | "run.failed" => check_usage(&data["usage"], &of),
                "model.responded" => check_tokens(&data["usage"], &of),
                "model.attempted" if !data["usage"].is_null() => check_tokens(&data["usage"], &of),
                "tool.responded" if !data["error"].is_null() => {
                    check_keys(&data["error"], &["reason", "code", "message", "error_id"], &of);
                    check_keys(&data["output"], &["error"], &of);
                }
                _ => {}
            }
        }
    }
}

/// Spec: D1, D6
#[test]
fn decisions_are_the_machines_and_facts_are_not() {
    for played in everything() {
        for event in played.events() {
            let event_type = event["type"].as_str().unwrap();
            // The machine answers itself what it will not run.
            let cancelled = event["data"]["error"]["reason"] == "tool.cancelled";
            // A person's denial is answered by it too, the first time.
            let denied = event["data"]["error"]["reason"] == "tool.approval_denied"
                && cause_of(played, event) == "approval.denied";
            // The driver counts what a batch may still run, as it is the one to admit calls.
            let admitted =
                ["budget_tool_calls", "reopen_budget_tool_calls"].contains(&&*played.name);
            // What a running call asks is a fact; with the call the machine closes it, and says why the call ended.
            let asks = event_type == "approval.requested" && event["data"].get("message").is_some();
            let is_closed = event_type == "approval.denied"
                && !["approval.denied", "approval.expired"]
                    .iter()
                    .any(|reason| event["data"]["reason"] == *reason);
            let decides = DECISIONS.contains(&event_type) && !asks || is_closed;
            let decided = decides || cancelled && !admitted || denied;
            assert_eq!(event["actor"] == "machine", decided, "{} {event}", played.name);
        }
    }
}

/// Returns the type of the event that led to this one.
fn cause_of<'p>(played: &'p Played, event: &Value) -> &'p str {
    let cause = event["caused_by"].as_u64();
    let mut events = played.events().iter();
    events
        .find(|event| event["seq"].as_u64() == cause)
        .map_or("", |event| event["type"].as_str().unwrap())
}

/// Spec: S2, D1
#[test]
fn ids_and_times_have_the_documented_form() {
    let form = |pattern: &str| Regex::new(&format!("^(?:{pattern})$")).unwrap();
    let run = form("run_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
    let error = form("err_20260101_[0-9]{6}_[0-9a-f]{6}");
    let approval = form("apr_[0-9a-f]{16}");
    let time = form("2026-01-01T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z");
    let hash = form("[0-9a-f]{64}");
    for played in everything() {
        let matches = |pattern: &Regex, value: &Value| {
            assert!(pattern.is_match(value.as_str().unwrap()), "{}: {value}", played.name);
        };
        matches(&run, &played.json["run"]);
        for stored in items(&played.json["errors"]) {
            matches(&error, &stored["id"]);
        }
        for asked in played.data_of("approval.requested") {
            matches(&approval, &asked["approval_id"]);
            matches(&hash, &asked["arguments_hash"]);
        }
        for event in played.events() {
            assert_eq!(event["run"], played.json["run"], "{}", played.name);
            matches(&time, &event["at"]);
            matches(&hash, &event["hash"]);
        }
        let Some(first) = played.events().first() else { continue };
        assert_eq!(first["at"], "2026-01-01T00:00:00.000Z", "{}", played.name);
        if let Some(session) = &played.scenario.session {
            assert_eq!(played.json["session"], session.as_str(), "{}", played.name);
        }
    }
}

#[test]
fn reason_and_error_are_null_exactly_where_documented() {
    for played in everything() {
        let (name, json) = (&played.name, &played.json);
        assert_eq!(json["reason"].is_null(), json["outcome"] == "completed", "{name}");
        assert_eq!(json["error"].is_null(), json["outcome"] != "failed", "{name}");
        if json["outcome"] == "failed" {
            assert_eq!(json["error"]["code"], json["reason"], "{name}");
        }
        assert_eq!(json["diff"].is_null(), json["pass"] == true, "{name}");
    }
}
