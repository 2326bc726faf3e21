//! The state of a run that its driver and its record show.

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::event::*;
use serde_json::json;

use crate::script::{Script, agent};
use crate::world::started;

/// Spec: P1, T1
#[test]
fn pending_steps_are_known_by_their_ids() {
    let mut script = Script::new(agent());
    let [MachineAction::CallModel(first)] = &script.effects[..] else {
        panic!("{:?}", script.effects)
    };
    let first = first.id;
    assert!(script.machine.is_asking(first));
    script.recover();
    assert!(!script.machine.is_asking(first), "another attempt is pending");
    script.call(&["plain", "plain"]);
    script.begin("c1", "plain");
    let is_running = ["c0", "c1", "c9"].map(|call| script.machine.is_running(&call.into()));
    assert_eq!(is_running, [false, true, false]);
}

/// Spec: E5
#[test]
fn stored_error_of_a_call_is_recorded() {
    let mut script = Script::at_work(agent(), &["plain"]);
    let requested = script.last().seq;
    script.take(ErrorStored::new("err_1", "c0", "plain", 1, 0));
    assert_eq!(script.last().kind.event_type(), "error.stored");
    assert_eq!((script.last().actor, script.last().caused_by), (Actor::Runtime, Some(requested)));
}

/// Spec: B1. The cost is known from the start if each token has a price.
#[test]
fn cost_is_known_with_a_price() {
    for price in [None, Some(Price::new(3.0, 15.0))] {
        let mut definition = agent();
        definition.price = price;
        let script = Script::new(definition);
        assert_eq!(script.machine.usage().cost_usd, price.map(|_| 0.0));
    }
}

/// Spec: B1, R8
#[test]
fn one_estimate_makes_the_usage_an_estimate() {
    let mut script = Script::new(agent());
    for (attempt, estimated, expected) in [(1, false, false), (2, true, true), (3, false, true)] {
        let mut attempted = ModelAttempted::new(1, attempt, "script");
        attempted.usage_estimated = estimated;
        script.take(attempted);
        assert_eq!(script.machine.has_estimates(), expected, "{attempt}");
    }
}

#[test]
fn labels_are_those_of_the_start() {
    let mut started = started();
    started.labels = Arc::new([("team".to_owned(), "blue".to_owned())].into());
    let labels = Arc::clone(&started.labels);
    assert_eq!(Script::start(agent(), started).machine.labels(), &labels);
}

/// Spec: G5. The arguments that a tool was given count, not those of the model.
#[test]
fn failures_are_counted_by_the_given_arguments() {
    let mut definition = agent();
    definition.limits.max_repeated_failures = Some(1);
    let mut script = Script::asking(definition, &["plain"]);
    script.take(ToolRequested::new("c0", "plain", json!({ "a": 1 }), 1));
    let failure = ToolFailure::new("tool.timeout", "timed out");
    script.take(ToolResponded::failure("c0".into(), "plain".into(), "text", 1, failure));
    let repeated = |arguments: serde_json::Value| {
        script.machine.repeated_failure("plain", &arguments.into()).map(|(_, count)| count)
    };
    assert_eq!((repeated(json!({ "a": 1 })), repeated(json!({}))), (Some(1), None));
}

/// Spec: P10. The instruction about the form of the answer is the machine's, and is left out for people.
#[test]
fn instruction_about_the_answer_is_removed() {
    let schema: layer0::JsonText = json!({ "type": "object" }).into();
    for instructions in ["Be brief.", ""] {
        let mut definition = agent();
        (definition.instructions, definition.output_schema) =
            (instructions.into(), Some(schema.clone()));
        let script = Script::new(definition);
        let first = script.machine.transcript().messages()[0].clone();
        let system = match &*first {
            layer0::message::Message::System { content, .. } => content.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(system.contains("JSON Schema"), "{system}");
        assert_eq!(without_instruction(&system, &schema), instructions);
        assert_eq!(without_instruction("Be long.", &schema), "Be long.");
    }
}
