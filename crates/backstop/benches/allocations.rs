//! How many allocations a turn without a store costs, beside the goal.
//!
//! `cargo bench -p backstop --bench allocations`. Apart from the benches that take the time, because
//! counting slows every allocation down.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;

use backstop::provider::ScriptedToolCall;
use backstop::{Agent, Budget, Limits, ScriptedAnswer, ScriptedProvider, ToolError};
use serde_json::json;
use testkit::measure::{Goal, Row, Spread};

/// Allocations a turn may cost.
const GOAL: f64 = 60.0;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be made");
    let allocations = |turns: u32| {
        let agent = agent(turns);
        let run = || {
            let outcome = runtime.block_on(agent.run("add")).expect("nothing fails in this run");
            assert_eq!(outcome.text(), "done");
        };
        allocation_counter::measure(run).count_total
    };
    // What is made once is made now.
    allocations(1);
    let a_turn = |_| {
        let more = allocations(160) - allocations(60);
        f64::from(u32::try_from(more).unwrap_or(u32::MAX)) / 100.0
    };
    let ratios = Spread::of((0..5).map(a_turn).map(|count| count / GOAL));
    let row = Row::new("allocations of a turn without a store", ratios, Goal::Within("60"));
    println!("{}\n{row}", Row::HEAD);
    if row.is_met() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes an agent that calls its tool once a turn.
fn agent(turns: u32) -> Agent {
    let turn = |number: u32| ScriptedAnswer {
        tool_calls: vec![ScriptedToolCall {
            id: format!("call-{number}"),
            name: "add".into(),
            arguments: json!({"x": number, "y": 2}),
        }],
        ..ScriptedAnswer::default()
    };
    let mut answers: Vec<_> = (0..turns).map(turn).collect();
    answers.push(ScriptedAnswer { text: Some("done".into()), ..ScriptedAnswer::default() });
    Agent::builder(ScriptedProvider::new(answers))
        .tool(add)
        .limits(Limits { max_iterations: u32::MAX, ..Limits::default() })
        .budget(Budget { max_model_calls: None, max_tool_calls: None, ..Budget::default() })
        .build()
        .expect("the agent is complete")
}

/// Add two integers.
#[backstop::tool(idempotent)]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}
