//! Runs that adopt another definition of their agent (SPEC D2, T14).

use std::sync::Arc;

use backstop_react_machine::*;
use layer0::ToolSpec;
use layer0::event::*;
use layer0::message::{Message, StopReason, ToolCall};
use layer0::usage::{Allowance, BudgetIncrease, TokenUsage};
use serde_json::json;

use crate::script::{Script, agent, data};
use crate::world::{World, definition, machine, started};

fn adopting(definition: &AgentDefinition) -> RunResumed {
    let record = AgentRecord::new("prop", "d2", json!(definition));
    RunResumed::new("ops").adopting(record)
}

fn adopt(world: &mut World, definition: &AgentDefinition) {
    let at = world.at();
    world.accept(MachineInput::fact(at, adopting(definition)));
}

fn systems(world: &World) -> Vec<String> {
    let said = world.machine.transcript().messages().iter();
    let systems = said.filter_map(|message| match &**message {
        Message::System { content, .. } => Some(content.to_string()),
        _ => None,
    });
    systems.collect()
}

/// Spec: D2. The new instructions stand in place of the old ones, and all else stays.
#[test]
fn instructions_are_replaced_in_place() {
    let mut world = World::new();
    world.answer(9, 1, false, 3);
    let before = world.machine.transcript().len();
    for instructions in ["Be long.", "", "Be quick."] {
        let mut other = (*definition()).clone();
        other.instructions = instructions.into();
        adopt(&mut world, &other);
        let expected: Vec<&str> =
            Some(instructions).filter(|it| !it.is_empty()).into_iter().collect();
        assert_eq!(systems(&world), expected);
        let left_out = usize::from(instructions.is_empty());
        assert_eq!(world.machine.transcript().len(), before - left_out);
    }
}

/// Spec: D2, P8. The digest of a request covers the transcript at its new positions.
#[test]
fn request_after_adoption_covers_each_message() {
    let digest = |said: &str| {
        let mut script = Script::new(agent());
        let call = ToolCall::new("c0", "plain", json!({}));
        script.respond(StopReason::ToolUse, said, vec![call]);
        let mut other = agent();
        other.instructions = "".into();
        script.take(adopting(&other));
        script.begin("c0", "plain");
        script.end("c0", "plain");
        data(script.last())["request_digest"].clone()
    };
    assert!(digest("one").is_string());
    assert_ne!(digest("one"), digest("other"));
}

/// Spec: T14. A tool that is not there any more cannot be asked.
#[test]
fn missing_tool_is_not_probed() {
    let mut probing = definition();
    let tools: Vec<_> = probing.tools.iter().cloned().map(ToolSpec::probe).collect();
    Arc::make_mut(&mut probing).tools = tools.into();
    let mut world = World::of(Arc::clone(&probing));
    world.answer(9, 1, false, 3);
    world.admit(1);
    let mut unknown = crate::world::response(world.open[0].call_id.clone(), false);
    unknown.error = Some(ToolFailure::new("tool.timeout", "timed out"));
    let run = world.open.remove(0);
    let at = world.at();
    world.accept(MachineInput::answer(at, run.id, unknown));
    assert_eq!(world.machine.probeable().len(), 1);
    let mut other = (*probing).clone();
    other.tools = Arc::from([ToolSpec::new("other", "", json!({ "type": "object" }))]);
    adopt(&mut world, &other);
    assert_eq!(world.machine.probeable().len(), 0);
    assert_eq!(world.machine.unsettled_calls().count(), 1, "a person can still say it");
}

/// Spec: B1. Where the caller bounds the cost, every definition needs a price.
#[test]
fn bounded_cost_needs_a_price() {
    for (cost, fits) in [(None, true), (Some(1_000), false)] {
        let mut priced = (*definition()).clone();
        priced.price = Some(Price::new(3.0, 15.0));
        let mut machine = machine(Arc::new(priced.clone()));
        let mut allowance = Allowance::without_bounds();
        (allowance.cost_nanousd, allowance.tool_calls) = (cost, Some(3));
        let mut started = started();
        started.parent = Some("run_0".into());
        started.allowance = Some(Box::new(allowance));
        machine.handle(MachineInput::fact(layer0::Timestamp::from_millis(1_000), started)).unwrap();
        let record =
            |definition: &AgentDefinition| AgentRecord::new("prop", "d2", json!(definition));
        machine.check_agent(&record(&priced)).unwrap();
        let unpriced = record(&definition());
        assert_eq!(machine.check_agent(&unpriced).is_ok(), fits, "{cost:?}");
    }
}

/// Adopts a definition with this price, and makes another attempt. Returns the cost of the run.
fn cost_after(script: &mut Script, price: Option<Price>) -> Option<f64> {
    let mut other = agent();
    other.price = price;
    script.take(adopting(&other));
    let before = script.machine.usage().cost_usd;
    script.take(attempt(2));
    before
}

/// Returns an attempt of 1,000 prompt tokens.
fn attempt(number: u32) -> ModelAttempted {
    let mut attempted = ModelAttempted::new(1, number, "script");
    attempted.usage = Some(TokenUsage::new(1_000, 0));
    attempted
}

/// Spec: B1, D2. The usage so far has the first known price; without a price, the cost is unknown.
#[test]
fn usage_so_far_has_the_first_price() {
    let (cheap, dear) = (Some(Price::new(1_000.0, 0.0)), Some(Price::new(3_000.0, 0.0)));
    let run = |price: Option<Price>, cost_nanousd: Option<u64>| {
        let mut definition = agent();
        definition.price = price;
        let mut script = Script::new(definition);
        let mut first = attempt(1);
        first.cost_nanousd = cost_nanousd;
        script.take(first);
        script
    };
    for (price, own, adopted, cost, total) in [
        (None, None, dear, Some(3.0), Some(6.0)),
        (cheap, None, dear, Some(1.0), Some(4.0)),
        (cheap, None, None, None, None),
        (None, Some(500_000_000), cheap, Some(0.5), Some(1.5)),
        (None, None, None, None, None),
    ] {
        let mut script = run(price, own);
        assert_eq!(cost_after(&mut script, adopted), cost, "{price:?} {own:?} {adopted:?}");
        assert_eq!(script.machine.usage().cost_usd, total, "{price:?} {own:?} {adopted:?}");
    }
}

/// Spec: B2, D2, D12. What a person added stays, on top of the other budget.
#[test]
fn increase_stays_after_adoption() {
    let mut definition = agent();
    definition.budget.max_tool_calls = Some(1);
    let mut script = Script::new(definition.clone());
    script.take(ModelFailed::new(1, "provider.transient", vec!["busy".into()], 1));
    let more = BudgetIncrease::new().tool_calls(4);
    let reopened = script.machine.reopening("ops", None, Some(more)).unwrap();
    script.take(reopened);
    assert_eq!(script.machine.executions_left(), 5);
    definition.budget.max_tool_calls = Some(2);
    script.take(adopting(&definition));
    assert_eq!(script.machine.executions_left(), 6);
}

/// Spec: B1, D2. The time of the caller bounds the run under every definition.
#[test]
fn deadline_of_the_caller_stays() {
    let mut started = started();
    started.deadline = Some(layer0::Timestamp::from_millis(31_000));
    let mut script = Script::start(agent(), started);
    script.call(&["plain"]);
    let mut other = agent();
    other.budget.max_wall_ms = None;
    script.take(adopting(&other));
    assert_eq!(script.machine.deadline(), Some(layer0::Timestamp::from_millis(31_000)));
}

/// Spec: O2. Messages that are handed on stand before the input.
#[test]
fn handed_history_is_read_first() {
    let mut machine = machine(definition());
    let mut started = started();
    started.history.push(Message::user("before"));
    started.history.push(Message::assistant("yes", Arc::default()));
    machine.handle(MachineInput::fact(layer0::Timestamp::from_millis(1_000), started)).unwrap();
    let said: Vec<_> =
        machine.transcript().messages()[1..].iter().map(|it| (**it).clone()).collect();
    let expected = [
        Message::user("before"),
        Message::assistant("yes", Arc::default()),
        Message::user("question"),
    ];
    assert_eq!(said, expected);
    let requested = std::iter::from_fn(|| match machine.poll() {
        MachineOutput::Append(entry) => Some(entry),
        _ => None,
    });
    let counts = requested.filter_map(|entry| match entry.kind {
        EventKind::ModelRequested(requested) => Some(requested.messages),
        _ => None,
    });
    assert_eq!(counts.collect::<Vec<_>>(), [4]);
}
