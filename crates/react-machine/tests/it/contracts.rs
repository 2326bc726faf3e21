//! Agents that are replaced while people decide on their calls, and walls that may not fall (SPEC D2, A1).

use backstop_react_machine::*;
use layer0::ToolSpec;
use layer0::event::*;
use serde_json::{Value, json};

use crate::script::{Script, agent, ids};

/// An agent with one tool of this contract.
fn with(contract: Option<Value>, servers: Option<Value>, origin: Option<&str>) -> AgentDefinition {
    let mut definition = agent();
    let mut tool = ToolSpec::new("asked", "", json!({ "type": "object" }));
    if let Some(contract) = &contract {
        tool = tool.contract(contract);
    }
    if let Some(origin) = origin {
        tool = tool.origin(origin);
    }
    definition.tools = [tool].into();
    definition.contract = servers.map(|servers| json!({ "servers": servers }).into());
    definition
}

/// Spec: D2
#[test]
fn walls_of_a_tool_cannot_be_taken_away() {
    let lost = |old: Option<Value>, new: Option<Value>| {
        with(old, None, None).walls_lost_in(&with(new, None, None))
    };
    let walled = || Some(json!({ "walls": { "network": false } }));
    let open = || Some(json!({ "walls": null }));
    let named = Some("tool `asked`".to_owned());
    assert_eq!(lost(walled(), None), named);
    assert_eq!(lost(walled(), open()), named);
    assert_eq!(lost(walled(), Some(json!({}))), named);
    assert_eq!(lost(walled(), walled()), None);
    assert_eq!(lost(open(), None), None);
    assert_eq!(lost(None, None), None);
    let mut gone = with(walled(), None, None);
    gone.tools = [ToolSpec::new("other", "", json!({}))].into();
    assert_eq!(with(walled(), None, None).walls_lost_in(&gone), None, "it is not called at all");
}

/// Spec: D2
#[test]
fn walls_of_a_server_cannot_be_taken_away() {
    let lost = |old: Option<Value>, new: Option<Value>| {
        with(None, old, None).walls_lost_in(&with(None, new, None))
    };
    let walled = || Some(json!({ "a": { "command": "x" }, "m": { "walls": {} } }));
    let named = Some("MCP server `m`".to_owned());
    assert_eq!(lost(walled(), Some(json!({ "m": {} }))), named);
    assert_eq!(lost(walled(), Some(json!({ "m": { "walls": null } }))), named);
    assert_eq!(lost(walled(), walled()), None);
    assert_eq!(lost(walled(), Some(json!({ "a": {} }))), None, "it is not started at all");
    assert_eq!(lost(walled(), None), None);
    assert_eq!(lost(Some(json!({ "m": {} })), Some(json!({ "m": {} }))), None);
    assert_eq!(lost(None, walled()), None);
}

fn adopt(script: &mut Script, definition: &AgentDefinition) {
    let record = AgentRecord::new("prop", "d2", json!(definition));
    script.take(RunResumed::new("ops").adopting(record));
}

fn approve(script: &mut Script) {
    let id = script.machine.open_approvals().next().unwrap().id.clone();
    script.take(ApprovalGranted::new(id, "c0", "ops"));
}

/// A run whose first call waits for a person, under the first of two definitions.
fn held(definition: &AgentDefinition) -> Script {
    let mut script = Script::asking(definition.clone(), &["asked", "asked"]);
    script.hold("c0");
    script
}

#[track_caller]
fn check_admitted(script: &Script, calls: &[&str], approved: bool) {
    let admitted = script.effects.iter().filter_map(|effect| match effect {
        MachineAction::AdmitTools(batch) => Some(batch),
        _ => None,
    });
    let admitted: Vec<_> = admitted
        .map(|batch| {
            (batch.calls.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), batch.approved)
        })
        .collect();
    assert!(admitted.contains(&(ids(calls), approved)), "{admitted:?}");
}

/// Spec: A1, D2. A person agreed to what the call would have done.
#[test]
fn approval_of_another_contract_asks_again() {
    let program = |name: &str| Some(json!({ "program": name }));
    let server = |name: &str| Some(json!({ "m": { "command": name } }));
    let cases = [
        (with(program("a"), None, None), with(program("a"), None, None), false),
        (with(program("a"), None, None), with(program("b"), None, None), true),
        (with(None, server("a"), Some("m")), with(None, server("b"), Some("m")), true),
        (with(None, server("a"), None), with(None, server("b"), None), false),
    ];
    for (first, second, asks_again) in cases {
        // Agreed to after the tool became another.
        let mut script = held(&first);
        adopt(&mut script, &second);
        script.effects.clear();
        approve(&mut script);
        assert_eq!(script.last().kind.event_type(), "approval.granted");
        assert_eq!(script.last().actor, Actor::Person);
        check_admitted(&script, &["c0"], !asks_again);
        script.begin("c0", "asked");
        // Agreed to before that.
        let mut script = held(&first);
        approve(&mut script);
        adopt(&mut script, &second);
        script.effects.clear();
        script.recover();
        match asks_again {
            true => check_admitted(&script, &["c0", "c1"], false),
            false => check_admitted(&script, &["c0"], true),
        }
    }
}

/// Spec: D2. What the run's answers have to fit stays; another agent is refused.
#[test]
fn adopted_agent_keeps_name_and_schema() {
    let mut typed = agent();
    typed.output_schema = Some(json!({ "type": "object" }).into());
    let mut script = Script::new(typed);
    adopt(&mut script, &agent());
    assert_eq!(script.machine.definition().output_schema, Some(json!({ "type": "object" }).into()));
    let mut other = agent();
    other.name = "other".into();
    let refused = |definition: &AgentDefinition| {
        let record = AgentRecord::new("prop", "d2", json!(definition));
        script.machine.check_agent(&record).unwrap_err().to_string()
    };
    let why = "the agent in `run.resumed` cannot be run";
    assert_eq!(refused(&other), format!("{why}: it is called `other`"));
    let mut empty = agent();
    empty.limits.max_iterations = 0;
    assert_eq!(refused(&empty), format!("{why}: `max_iterations` must be at least 1"));
}

/// Spec: D2, B1. Budget and what was given beside it, of the new definition from here on.
#[test]
fn adopted_budget_counts_from_here_on() {
    let mut script = Script::new(agent());
    let mut other = agent();
    other.budget.max_tool_calls = Some(1);
    adopt(&mut script, &other);
    assert_eq!(script.machine.executions_left(), 1);
}
