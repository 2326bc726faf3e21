//! Lines of a run's record.

use backstop_event_log::{Payload, Record, Trace, TreeTrace};
use layer0::Timestamp;
use layer0::event::*;
use layer0::message::StopReason;
use layer0::stop::Outcome;
use layer0::usage::{Allowance, TokenUsage, Usage};
use serde_json::json;

fn event(seq: u64, at_ms: i64, kind: impl Into<EventKind>) -> Event {
    Event::new("run_1", seq, Timestamp::from_millis(at_ms), Actor::Runtime, kind)
}

/// Spec: D10. What an event ends took so long.
#[test]
fn line_tells_how_long_a_step_took() {
    let mut trace = Trace::new();
    let mut line = |mut event: Event, caused_by: Option<u64>| {
        event.caused_by = caused_by;
        trace.line(&event)
    };
    let agent = AgentRecord::new("a", "d", json!({}));
    let requested = ModelRequested::new(1, "d", "t", 2);
    let answer = ModelResponded::new(1, "hm", [].into(), StopReason::End, TokenUsage::default());
    let asked = ApprovalRequested::new("apr_1", "c1", "pay", json!({}), "h");
    let lines = [
        line(event(1, 1_000, RunStarted::new("hi", "s".into(), agent)), None),
        line(event(2, 1_100, requested), Some(1)),
        line(event(3, 2_600, answer.clone()), Some(2)),
        line(event(4, 2_700, answer), Some(2)),
        line(event(5, 3_000, asked), Some(3)),
        line(event(6, 63_000, ApprovalGranted::new("apr_1", "c1", "ops")), Some(5)),
        line(event(7, 64_000, ToolResponded::success("c1", "pay", json!("ok"), 250)), Some(6)),
        line(event(8, 65_000, Warning::new("")), Some(2)),
        line(event(9, 66_000, RunFinished::new(Outcome::Completed, "", Usage::default())), None),
    ];
    let expected = [
        "   1      0.000s  run.started                     a: hi",
        "   2      0.100s  model.requested                 call 1, 2 messages",
        "   3      1.600s  model.responded           1.5s  hm",
        "   4      1.700s  model.responded                 hm",
        "   5      2.000s  approval.requested              apr_1 pay",
        "   6     62.000s  approval.granted           60s  apr_1 by ops",
        "   7     63.000s  tool.responded           250ms  pay ok in 250ms: ok",
        "   8     64.000s  warning",
        "   9     65.000s  run.finished               65s  completed:",
    ];
    assert_eq!(lines, expected);
}

/// Spec: D10, D13
#[test]
fn erased_event_has_a_line() {
    let at = Timestamp::from_millis(1_500);
    let payload = Payload::Erased(Hash::default());
    let record = Record::new(2, at, "warning", Actor::Runtime, payload);
    let mut trace = Trace::new();
    trace.line(&event(1, 1_000, Warning::new("first")));
    assert_eq!(
        trace.erased_line(&record),
        "   2      0.500s  warning                         erased"
    );

    let mut trace = TreeTrace::new("run_1".into());
    let allowance = Box::new(Allowance::without_bounds());
    trace.line(&event(1, 1_000, OperatorDispatched::new("o", "run_2", 1, "d", allowance)));
    let line = trace.erased_line(&"run_2".into(), &record);
    assert_eq!(line, "   2      0.500s    o: warning                         erased");
}

/// Spec: D10, O3. Each run of an operator has a name of its own.
#[test]
fn runs_of_one_operator_are_numbered() {
    let mut trace = TreeTrace::new("run_1".into());
    let mut dispatch = |operator: &str, run: &str| {
        let allowance = Box::new(Allowance::without_bounds());
        let dispatched = OperatorDispatched::new(operator, run, 1, "d", allowance);
        let line = trace.line(&event(1, 0, dispatched));
        line.split(" as ").nth(1).map(str::to_owned).unwrap_or_default()
    };
    for (operator, run, shown) in [
        ("o", "run_a", "run_a"),
        ("o", "run_b", "run_b, o.2 here"),
        ("o", "run_c", "run_c, o.3 here"),
        ("o.2", "run_d", "run_d, o.2.2 here"),
        ("o", "run_b", "run_b"),
    ] {
        assert_eq!(dispatch(operator, run), shown, "{run}");
    }
}
