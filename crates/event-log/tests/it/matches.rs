//! Matches of patterns.

use backstop_event_log::{Pattern, Patterns, Payload, Record};
use layer0::Timestamp;
use layer0::event::{Actor, Hash};
use layer0::id::RunId;
use serde_json::{Value, json};

fn record(event_type: &'static str, data: &Value) -> Record {
    let at = Timestamp::from_millis(1_767_225_600_500);
    let payload = Payload::Plain(data.to_string());
    let mut record = Record::new(7, at, event_type, Actor::Tool, payload);
    record.caused_by = Some(6);
    record
}

#[track_caller]
fn check(event_type: &'static str, data: &Value, patterns: &[(&str, bool)]) {
    let record = record(event_type, data);
    for (text, is_match) in patterns {
        let pattern: Pattern = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(pattern.matches(&RunId::from("run_1"), &record), *is_match, "{text}");
        let again: Pattern = pattern.to_string().parse().unwrap();
        assert_eq!(again, pattern, "{text}");
    }
}

/// Spec: X1
#[test]
fn types_are_matched_by_segment() {
    check(
        "tool.responded",
        &json!({}),
        &[
            ("tool.responded", true),
            ("tool.*", true),
            ("*.responded", true),
            ("*.*", true),
            (" tool.responded ", true),
            ("tool.requested", false),
            ("model.*", false),
            ("*.failed", false),
            ("warning", false),
        ],
    );
    check("warning", &json!({"message": "m"}), &[("warning", true), ("*.*", false)]);
    let escaped =
        [(r#"warning[message="a\tb\rc\nd"]"#, true), (r#"warning[message="a\nb*"]"#, false)];
    check("warning", &json!({"message": "a\tb\rc\nd"}), &escaped);
    check("behavior.failed", &json!({}), &[("behavior.*", true), ("*.*", true)]);
    check("behavior.delivered", &json!({}), &[("behavior.*", false), ("*.*", false)]);
    check("subscription.opened", &json!({}), &[("*.*", false)]);
}

/// Spec: X1
#[test]
fn conditions_reach_the_envelope_and_the_payload() {
    let data = json!({
        "call_id": "c1", "tool": "pay", "ok": false, "output": {"rows": [{"id": 4}, {"id": 9}]},
        "duration_ms": 1500, "error": {"reason": "tool.timeout", "code": null, "message": "m, [x]", "error_id": null}
    });
    check(
        "tool.responded",
        &data,
        &[
            ("tool.responded[tool=pay, error.reason=tool.timeout]", true),
            ("tool.responded[tool=pay, error.reason=tool.panicked]", false),
            ("tool.responded[ tool = p* ,error.reason!=tool.t*]", false),
            ("tool.responded[error=*]", true),
            ("tool.responded[error!=*]", false),
            ("tool.responded[error.code=*]", false),
            ("tool.responded[error.code!=42]", true),
            (r#"tool.responded[error.message="m, [x]"]"#, true),
            (r#"tool.responded[error.message="m,\t[x]"]"#, false),
            (r#"tool.responded[error.message="m, \*"]"#, false),
            (r#"tool.responded[error.message="m\u{2c} *"]"#, true),
            ("tool.responded[ok=false]", true),
            ("tool.responded[ok=f*]", true),
            ("tool.responded[ok!=false]", false),
            ("tool.responded[duration_ms=1500.0]", true),
            ("tool.responded[duration_ms=15*]", true),
            ("tool.responded[duration_ms>1499.5, duration_ms<=1500]", true),
            ("tool.responded[duration_ms<1500]", false),
            ("tool.responded[output.rows.id=9]", true),
            ("tool.responded[output.rows.id!=9]", false),
            ("tool.responded[output.rows.id!=5]", true),
            ("tool.responded[output.rows.id>8]", true),
            ("tool.responded[output.rows.id>9]", false),
            (r#"tool.responded[output."no such".field=1]"#, false),
            (r#"tool.responded[output."no such".field!=1]"#, true),
            ("tool.responded[run=run_*]", true),
            ("tool.responded[run!=run_1]", false),
            ("tool.responded[seq=7, seq>=7, caused_by=6, schema=1]", true),
            ("tool.responded[seq>7]", false),
            ("tool.responded[actor=tool]", true),
            ("*.responded[type=tool.*]", true),
            ("*.responded[type=model.*]", false),
            ("tool.responded[at>=2026-01-01T00:00:00.5Z]", true),
            ("tool.responded[at=2026-01-01T01:00:00.5+01:00]", true),
            ("tool.responded[at=2026-01-01T*]", true),
            ("tool.responded[at<2026-01-01T00:00:00.5Z]", false),
        ],
    );
    check(
        "run.forked",
        &json!({"run": "run_2", "parent": "run_1", "at": 3, "session": null}),
        &[
            ("run.forked[run=run_1, data.run=run_2, data.at=3]", true),
            ("run.forked[session=*]", false),
            ("run.forked[session!=s]", true),
            ("*.forked[parent=run_1]", true),
        ],
    );
    check(
        "signal.received",
        &json!({"name": "input", "data": {"ticket": "7"}, "cause": null}),
        &[
            ("signal.received[data.data.ticket=7]", true),
            ("signal.received[data.data=*]", true),
            ("signal.received[data.name=input, cause!=*]", true),
        ],
    );
    check(
        "run.waiting",
        &json!({"for": "approval", "approvals": ["apr_1", "apr_2"]}),
        &[
            ("run.waiting[for=approval, approvals=apr_2]", true),
            ("run.waiting[approvals!=apr_2]", false),
            ("run.waiting[approvals!=apr_3]", true),
            ("run.waiting[approvals=apr_1, approvals=apr_2]", true),
        ],
    );
    check("run.waiting", &json!({"approvals": []}), &[("run.waiting[approvals=*]", false)]);
}

/// Spec: X1
#[test]
fn whole_numbers_are_compared_exactly() {
    let data = json!({"result_id": "r", "call_id": "c", "bytes": 9_007_199_254_740_993_u64});
    check(
        "result.stored",
        &data,
        &[
            ("result.stored[bytes=9007199254740993]", true),
            ("result.stored[bytes=9007199254740992]", false),
            ("result.stored[bytes>9007199254740992]", true),
            ("result.stored[bytes<1e300]", true),
        ],
    );
    check(
        "result.stored",
        &json!({"bytes": u64::MAX}),
        &[
            ("result.stored[bytes>18446744073709551614]", true),
            ("result.stored[bytes>18446744073709551615]", false),
        ],
    );
}

/// Spec: X1, D1
#[test]
fn erased_payloads_match_no_condition_on_them() {
    let mut erased = record("run.failed", &json!({}));
    erased.payload = Payload::Erased(Hash::default());
    let mut broken = erased.clone();
    broken.payload = Payload::Plain("{".to_owned());
    for (text, is_match) in [
        ("run.failed", true),
        ("run.failed[seq=7]", true),
        ("run.failed[reason=a]", false),
        ("run.failed[reason!=a]", false),
    ] {
        let pattern: Pattern = text.parse().unwrap();
        for record in [&erased, &broken] {
            assert_eq!(pattern.matches(&RunId::from("run_1"), record), is_match, "{text}");
        }
    }
}

/// Spec: X1. One of several patterns has to match.
#[test]
fn several_patterns_match_each_for_itself() {
    let patterns: Patterns =
        "run.failed or tool.responded[tool=pay] or tool.*[seq=7, call_id=c1]".parse().unwrap();
    assert_eq!(patterns.iter().count(), 3);
    let filter = patterns.event_filter();
    assert!(filter.types.contains(&"run.failed".to_owned()) && filter.types.len() > 2);
    assert_eq!(filter.types, patterns.event_types());
    let run = RunId::from("run_1");
    for (event_type, data, is_match) in [
        ("run.failed", json!({}), true),
        ("run.finished", json!({}), false),
        ("tool.responded", json!({ "tool": "pay" }), true),
        ("tool.responded", json!({ "tool": "look" }), false),
        ("tool.responded", json!({ "tool": "look", "call_id": "c1" }), true),
        ("tool.late", json!({ "call_id": "c1" }), true),
        ("tool.late", json!({ "call_id": "c2" }), false),
    ] {
        assert_eq!(
            patterns.matches(&run, &record(event_type, &data)),
            is_match,
            "{event_type} {data}"
        );
    }
    let one: Pattern = "tool.responded[tool=pay]".parse().unwrap();
    assert_eq!(one.event_types(), ["tool.responded"]);
    assert_eq!(one.event_filter().types, ["tool.responded"]);
    assert_eq!(Patterns::from(one.clone()).to_string(), String::from(one));
}
