//! Records that are replayed, decision by decision (SPEC D2).

use backstop_react_machine::*;
use layer0::event::*;
use layer0::failure::Failure;
use serde_json::{Value, json};

use crate::script::{Script, agent, data};

fn replay(log: &[MachineEntry]) -> Result<Replayed, Divergence> {
    let mut replay =
        Replay::new(CheckedDefinition::new(narrow()).unwrap(), Setup::new("run_1".into()), []);
    log.iter().try_for_each(|entry| replay.next(entry))?;
    Ok(replay.finish())
}

/// An agent that may request one call at once.
fn narrow() -> AgentDefinition {
    let mut definition = agent();
    definition.limits.max_parallel_tools = 1;
    definition
}

/// Returns the record of a run that a guard ended, after one call.
fn record() -> Vec<MachineEntry> {
    let mut script = Script::at_work(narrow(), &["plain"]);
    script.end("c0", "plain");
    script.call(&["plain", "plain"]);
    assert_eq!(script.reason(), "guard.parallel_tool_limit");
    script.log
}

fn change(entry: &MachineEntry, change: impl FnOnce(&mut Value)) -> MachineEntry {
    let mut value = data(entry);
    change(&mut value);
    let mut changed = entry.clone();
    changed.kind = EventKind::decode(entry.kind.event_type(), &value.to_string()).unwrap();
    changed
}

/// Spec: D2. Other versions have other words for people and models.
#[test]
fn words_of_a_decision_may_change() {
    let log = record();
    let mut count = 0;
    let reworded: Vec<MachineEntry> = log
        .iter()
        .map(|entry| {
            change(entry, |value| {
                for (key, text) in [("message", json!("other")), ("chain", json!(["other"]))] {
                    if let Some(words) = value.get_mut(key) {
                        *words = text;
                        count += 1;
                    }
                }
                if value.get("error").is_some_and(Value::is_object) {
                    value["error"]["message"] = json!("other");
                    value["output"] = json!({ "error": "other" });
                    count += 1;
                }
            })
        })
        .collect();
    assert_eq!(count, 5, "of the guard, the end and its chain, and two calls");
    let replayed = replay(&reworded).unwrap();
    assert!(replayed.machine.is_over() && replayed.beyond.is_empty());
    assert_eq!(replayed.executions.keys().collect::<Vec<_>>(), [&"c0".into()]);
}

/// Spec: D2
#[test]
fn first_other_decision_is_named() {
    let log = record();
    let place = |event_type: &str| {
        log.iter().position(|entry| entry.kind.event_type() == event_type).unwrap()
    };
    let diverges = |place: usize, entry: MachineEntry| {
        let mut other = log.clone();
        other[place] = entry;
        let found = replay(&other).unwrap_err();
        assert_eq!(found.seq, other[place].seq);
        assert_eq!(
            (found.kind, &found.expected),
            (other[place].kind.event_type(), &data(&other[place]))
        );
        assert_eq!(found.code(), "replay.diverged");
        found.actual
    };
    let end = place("run.failed");
    let other = change(&log[end], |value| value["reason"] = json!("guard.stagnation"));
    assert_eq!(diverges(end, other), data(&log[end]));
    let mut other = log[end].clone();
    other.actor = Actor::Runtime;
    assert_eq!(diverges(end, other), data(&log[end]), "the machine decided it");
    let mut other = log[end].clone();
    other.kind = Warning::new("").into();
    assert_eq!(diverges(end, other), data(&log[end]));
    let requested = place("tool.requested");
    let other = change(&log[requested], |value| value["execution"] = json!(7));
    let refused = "`tool.requested` numbered 7, expected 1";
    assert_eq!(diverges(requested, other), json!(refused), "the machine refuses the fact");
    let mut other = log[requested].clone();
    (other.actor, other.kind) = (Actor::Machine, Warning::new("").into());
    assert_eq!(diverges(requested, other), json!(null), "it decides nothing there");
    let beyond = replay(&log[..end]).unwrap().beyond;
    assert_eq!(beyond.len(), 1);
    let found = Divergence::beyond_the_end(beyond[0].seq, &beyond[0].kind);
    assert_eq!((found.seq, found.kind, found.actual), (log[end].seq, "end", data(&log[end])));
    let told = format!("replay diverged at seq {}: `end` was recorded", found.seq);
    assert_eq!(Divergence::new(found.seq, "end", json!(null), json!(null)).to_string(), told);
}
