//! The agent that the rules are about, as the machine takes it.

use std::time::Duration;

use backstop_react_machine::*;
use layer0::ToolSpec;
use layer0::usage::Allowance;
use serde_json::json;

use super::rules::{Room, Rules, ToolRules};

/// Makes the agent that the rules are about.
pub(crate) fn definition(rules: &Rules) -> AgentDefinition {
    let mut definition = AgentDefinition::new("judged", "Be brief.");
    let small = |limit: Option<u64>| limit.map(|limit| u32::try_from(limit).unwrap());
    definition.limits = Limits::new()
        .max_iterations(rules.max_iterations)
        .max_parallel_tools(u32::try_from(rules.max_parallel_tools).unwrap())
        .max_concurrent_tools(u32::try_from(rules.max_concurrent_tools).unwrap())
        .max_repeated_batch_steps(small(rules.max_repeated_batch_steps))
        .max_observation_steps(small(rules.max_observation_steps))
        .max_stagnation_steps(small(rules.max_stagnation_steps));
    let Room { attempts, executions, input_tokens, output_tokens, .. } = rules.budget;
    definition.budget = Budget::new()
        .model_calls(small(attempts))
        .tool_calls(small(executions))
        .input_tokens(input_tokens)
        .output_tokens(output_tokens)
        .total_tokens(rules.budget.total_tokens)
        .wall(rules.budget.wall_ms.map(Duration::from_millis))
        .events(rules.budget.events);
    definition.memory = rules.has_memory;
    if rules.has_hooks {
        definition.hooks = crate::world::hooks();
    }
    definition.tools = rules.tools.iter().map(spec).collect();
    definition
}

fn spec(tool: &ToolRules) -> ToolSpec {
    let mut spec = ToolSpec::new(tool.name, "", json!({ "type": "object" }));
    if tool.is_idempotent {
        spec = spec.idempotent();
    }
    if tool.has_probe {
        spec = spec.probe();
    }
    if tool.only_dispatches {
        spec = spec.dispatches();
    }
    if tool.is_exploratory {
        spec = spec.exploratory();
    }
    match tool.expires_after_ms {
        Some(ms) => spec.expires_after(Duration::from_millis(u64::try_from(ms).unwrap())),
        None => spec,
    }
}

pub(crate) fn setup(rules: &Rules) -> (CheckedDefinition, Setup) {
    (CheckedDefinition::new(definition(rules)).unwrap(), Setup::new(rules.run.into()))
}

pub(super) fn allowance(room: Room) -> Allowance {
    let small = |limit: Option<u64>| limit.map(|limit| u32::try_from(limit).unwrap());
    let mut allowance = Allowance::without_bounds();
    (allowance.model_calls, allowance.tool_calls) = (small(room.attempts), small(room.executions));
    (allowance.input_tokens, allowance.output_tokens) = (room.input_tokens, room.output_tokens);
    allowance.total_tokens = room.total_tokens;
    allowance
}
