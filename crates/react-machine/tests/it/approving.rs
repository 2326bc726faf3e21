//! Calls that people decide (SPEC A1, A2, A3).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::id::ApprovalId;
use layer0::message::{StopReason, ToolCall};
use layer0::{Timestamp, ToolSpec};
use serde_json::{Value, json};

use crate::script::{Script, agent, data, dispatched, waiting};

fn granted(id: &str, call: &str) -> ApprovalGranted {
    ApprovalGranted::new(id, call, "ops")
}

fn denied(id: &str, call: &str, reason: &'static str) -> ApprovalDenied {
    let mut denied = ApprovalDenied::new(id, call, "ops", reason);
    denied.message = Some("not today".into());
    denied
}

/// The call asks a person.
fn ask(script: &mut Script, call: &str) -> Result<ApprovalId, Misuse> {
    let at = script.at();
    let (message, schema) = ("which day?".into(), json!({}).into());
    let id = script.machine.ask_person(at, &call.into(), json!({}).into(), message, schema);
    script.drain();
    id
}

/// Spec: A1. `apr_` and 16 hex digits of SHA-256 of the run, the seq of the request and the call.
#[test]
fn approval_is_bound_to_its_call() {
    let mut script = Script::asking(agent(), &["asked"]);
    script.take(Warning::new("fourth"));
    script.effects.clear();
    script.now += 30;
    script.hold("c0");
    let [MachineAction::AskApproval(approval)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    assert_eq!(approval.id.as_str(), "apr_58eee4106806aa2e");
    assert_eq!(approval.expires_at, Some(Timestamp::from_millis(61_030)));
    let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(&*approval.arguments_hash, hash, "SHA-256 of `{{}}`");
    let [requested, waits] = [4, 5].map(|at: usize| &script.log[at]);
    assert_eq!((requested.actor, requested.caused_by), (Actor::Machine, Some(3)));
    let shown = data(requested);
    assert_eq!(shown["approval_id"], "apr_58eee4106806aa2e");
    assert_eq!(shown["arguments_hash"], hash);
    assert_eq!((requested.at, &shown["approvers"]), (script.at(), &json!(["ops"])));
    assert_eq!(data(waits)["approvals"], json!(["apr_58eee4106806aa2e"]));
    assert!(!approval.is_over(Timestamp::from_millis(61_029)));
    assert!(approval.is_over(Timestamp::from_millis(61_030)));
}

/// Spec: A1. Only a call that waits to be admitted can be held.
#[test]
fn call_is_held_once() {
    let mut script = Script::asking(agent(), &["plain", "asked", "plain"]);
    script.begin("c0", "plain");
    script.hold("c1");
    script.end("c2", "plain");
    let mut hold = |call: &str| {
        let held = script.machine.hold(script.at(), &call.into(), json!({}).into());
        held.unwrap_err().to_string()
    };
    assert_eq!(hold("c0"), "`approval.requested` while it was asked before");
    assert_eq!(hold("c1"), "`approval.requested` while it was asked before");
    assert_eq!(hold("c2"), "call `c2` was already answered");
    assert_eq!(hold("c9"), "no open call `c9`");
    let mut script = Script::new(agent());
    let held = script.machine.hold(script.at(), &"c0".into(), json!({}).into());
    assert_eq!(held.unwrap_err().to_string(), "`approval.requested` while the model is asked");
}

/// Spec: A1. What a person did not decide, or decided for another call, does not run.
#[test]
fn held_call_runs_only_as_agreed() {
    let mut script = Script::asking(agent(), &["asked", "plain"]);
    script.hold("c0");
    let id = script.machine.open_approvals().next().unwrap().id.to_string();
    let request = |arguments: Value| ToolRequested::new("c0", "asked", arguments, 1);
    let held = "while a person has to agree to the call";
    assert_eq!(script.refusal(request(json!({}))), format!("`tool.requested` {held}"));
    let answer = ToolResponded::success("c0", "asked", json!("done"), 1);
    assert_eq!(script.refusal(answer), format!("`tool.responded` {held}"));
    assert_eq!(script.refusal(granted("apr_other", "c0")), "no open approval `apr_other`");
    assert_eq!(script.refusal(granted(&id, "c1")), format!("no open approval `{id}`"));
    let intern = ApprovalGranted::new(&*id, "c0", "intern");
    assert_eq!(script.refusal(intern), format!("`intern` may not decide approval `{id}`"));
    let mut changed = granted(&id, "c0");
    changed.arguments = Some(json!({ "index": 9 }).into());
    script.effects.clear();
    script.take(changed);
    let check = |effects: &[MachineAction]| {
        let [MachineAction::AdmitTools(batch)] = effects else { panic!("{effects:?}") };
        let call = ToolCall::new("c0", "asked", json!({ "index": 9 }));
        assert_eq!((&*batch.calls, batch.approved, batch.changed), (&[call][..], true, true));
    };
    check(&script.effects);
    let why = "`tool.requested` while a person decided on other arguments";
    assert_eq!(script.refusal(request(json!({}))), why);
    assert_eq!(script.refusal(granted(&id, "c0")), format!("no open approval `{id}`"));

    script.take(ToolResponded::success("c1", "plain", json!("done"), 1));
    script.effects.clear();
    script.recover();
    check(&script.effects);
    script.take(request(json!({ "index": 9 })));
}

/// Spec: A1, D5. The decision outlives the process.
#[test]
fn agreed_call_is_admitted_again_after_a_crash() {
    let mut script = Script::asking(agent(), &["asked", "plain", "plain"]);
    script.hold("c0");
    let id = script.machine.open_approvals().next().unwrap().id.to_string();
    script.take(granted(&id, "c0"));
    script.effects.clear();
    script.recover();
    let admitted = script.effects.iter().map(|effect| match effect {
        MachineAction::AdmitTools(batch) => (batch.calls.len(), batch.approved, batch.changed),
        other => panic!("{other:?}"),
    });
    assert_eq!(admitted.collect::<Vec<_>>(), [(2, false, false), (1, true, false)]);
}

/// Spec: A1, A2. What was denied stays denied for the run, in whatever form its arguments are written.
#[test]
fn denied_call_is_known_by_its_arguments() {
    let mut definition = agent();
    let schema = json!({ "type": "object", "properties": { "id": { "type": "integer" } } });
    definition.tools =
        [ToolSpec::new("asked", "", schema), ToolSpec::new("other", "", json!({}))].into();
    let mut script = Script::new(definition);
    let arguments = |id: Value| json!({ "id": id });
    let calls = [
        ToolCall::new("c0", "asked", arguments(json!(7))),
        ToolCall::new("c1", "asked", arguments(json!(7.0))),
        ToolCall::new("c2", "asked", arguments(json!(8))),
        ToolCall::new("c3", "other", arguments(json!(7))),
    ];
    script.respond(StopReason::ToolUse, "", calls.to_vec());
    for call in &calls {
        let held = script.machine.hold(script.at(), &call.id, call.arguments.clone());
        held.unwrap();
    }
    script.drain();
    let find = |script: &Script, tool: &str, id: Value| {
        let denial = script.machine.find_denial(tool, &arguments(id).into()).cloned();
        denial.map(|denial| (denial.by.to_string(), denial.reason.to_string()))
    };
    assert_eq!(find(&script, "asked", json!(7)), None);
    let id = script.machine.open_approvals().next().unwrap().id.to_string();
    let before = script.log.len();
    script.take(denied(&id, "c0", "approval.denied"));
    let said = Some(("ops".to_owned(), "not today".to_owned()));
    assert_eq!(find(&script, "asked", json!(7)), said);
    assert_eq!(find(&script, "asked", json!(7.0)), said);
    assert_eq!(find(&script, "asked", json!(8)), None);
    assert_eq!(find(&script, "other", json!(7)), None);
    let answered = script.log[before..].iter().map(|entry| data(entry)["call_id"].clone());
    // The decision, then the answers of both calls that are alike, then the wait for the others.
    assert_eq!(answered.collect::<Vec<_>>(), [json!("c0"), json!("c0"), json!("c1"), json!(null)]);
    assert_eq!(script.machine.open_approvals().count(), 2);
}

/// Spec: A2. Only an approval with a time to live expires, and nobody has decided it then.
#[test]
fn only_a_limited_approval_expires() {
    let mut script = Script::asking(agent(), &["asked", "plain"]);
    script.hold("c0");
    script.hold("c1");
    let ids: Vec<_> = script.machine.open_approvals().map(|it| it.id.to_string()).collect();
    let expired = |id: &str, call: &str| denied(id, call, "approval.expired");
    let refused = script.refusal(expired(&ids[1], "c1"));
    assert_eq!(refused, "`approval.denied` while the approval does not expire");
    let before = script.log.len();
    script.take(expired(&ids[0], "c0"));
    assert_eq!(script.log[before].actor, Actor::Runtime);
    let denial = script.machine.find_denial("asked", &json!({}).into()).unwrap();
    assert_eq!(&*denial.by, "");
}

/// Spec: A3
#[test]
fn running_call_asks_one_thing_at_a_time() {
    let mut script = Script::asking(agent(), &["asked", "plain"]);
    script.begin("c0", "asked");
    let can_ask =
        |script: &Script| ["c0", "c1", "c9"].map(|it| script.machine.can_ask_person(&it.into()));
    assert_eq!(can_ask(&script), [true, false, false]);
    let id = ask(&mut script, "c0").unwrap().to_string();
    let request = script.log.last().unwrap();
    assert_eq!((request.actor, request.caused_by), (Actor::Runtime, Some(4)));
    assert_eq!(data(request)["approval_id"], json!(id));
    assert_eq!(can_ask(&script), [false, false, false]);
    let refused = ask(&mut script, "c0").unwrap_err();
    assert_eq!(refused.to_string(), "`approval.requested` while the call asks already");

    let mut given = granted(&id, "c0");
    given.data = Some(json!({ "day": "monday" }).into());
    let mut by_another = given.clone();
    by_another.by = "intern".into();
    let refused = script.refusal(by_another);
    assert_eq!(refused, format!("`intern` may not decide approval `{id}`"));
    let mut changed = given.clone();
    changed.arguments = Some(json!({}).into());
    let refused = script.refusal(changed);
    assert_eq!(refused, "`approval.granted` while the call is running with its arguments");
    assert_eq!(
        script.refusal(granted(&id, "c0")),
        "`approval.granted` while the approval asks for data"
    );
    let asked = script.last().seq;
    script.take(given);
    let decided = script.last();
    assert_eq!(decided.kind.event_type(), "approval.granted");
    assert_eq!((decided.actor, decided.caused_by), (Actor::Person, Some(asked)));
    assert_eq!(can_ask(&script), [true, false, false]);
    assert!(script.machine.is_running(&"c0".into()));
    let id = ask(&mut script, "c0").unwrap().to_string();
    script.take(denied(&id, "c0", "approval.denied"));
    assert_eq!(script.last().kind.event_type(), "approval.denied");
    assert_eq!(can_ask(&script), [true, false, false], "what it makes of it is its own");
    assert_eq!(script.machine.find_denial("asked", &json!({}).into()), None);
}

/// Spec: A3. No decision is left open that nobody waits for.
#[test]
fn question_is_closed_with_its_call() {
    let failed = ToolResponded::refusal("c0".into(), "asked".into(), "tool.timeout", "timed out");
    let again = ToolAttempted::new("c0", 1, "tool.execution_failed", "busy", 1);
    let cases: [(EventKind, &str); 4] = [
        (ToolResponded::success("c0", "asked", json!("done"), 1).into(), "approval.expired"),
        (failed.into(), "tool.timeout"),
        (again.into(), "tool.execution_failed"),
        (SignalReceived::new(CANCEL, json!(null)).into(), "tool.cancelled"),
    ];
    for (fact, reason) in cases {
        let mut script = Script::at_work(agent(), &["asked", "plain"]);
        let id = ask(&mut script, "c0").unwrap();
        let asked = script.last().seq;
        script.take(fact);
        let is_closing = |entry: &&MachineEntry| entry.kind.event_type() == "approval.denied";
        let closing: Vec<_> = script.log.iter().filter(is_closing).collect();
        let [closed] = closing[..] else { panic!("{closing:?}") };
        assert_eq!((closed.actor, closed.caused_by), (Actor::Machine, Some(asked)), "{reason}");
        let told = data(closed);
        assert_eq!((&told["approval_id"], &told["by"]), (&json!(id), &json!("backstop")));
        assert_eq!(told["reason"], reason);
        assert_eq!(told["message"], "no decision came while the call was running");
    }
}

/// Spec: A3, B2
#[test]
fn call_asks_nothing_without_events_left() {
    for (max, can_ask) in [(5, false), (6, true)] {
        let mut definition = agent();
        definition.budget.max_events = Some(max);
        let mut script = Script::asking(definition, &["asked"]);
        script.take(Warning::new("fourth"));
        script.begin("c0", "asked");
        assert_eq!(script.log.len(), 5);
        assert_eq!(script.machine.can_ask_person(&"c0".into()), can_ask, "{max}");
    }
}

/// Spec: A3, O2
#[test]
fn question_ends_the_wait_for_runs_below() {
    let mut script = Script::at_work(agent(), &["below"]);
    script.take(dispatched("c0", "run_a"));
    script.take(waiting("run_a"));
    script.machine.wait_below(script.at());
    script.drain();
    assert!(script.machine.is_waiting());
    ask(&mut script, "c0").unwrap();
    assert!(!script.machine.is_waiting());
}
