//! How many allocations a turn without a store costs, and how many bytes runs in flight hold, beside
//! their goals.
//!
//! `cargo bench -p backstop --bench allocations`. Apart from the benches that take the time, because
//! counting slows every allocation down.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "dispatch/held.rs"]
mod held;
#[path = "wire/layers.rs"]
mod layers;

use std::process::ExitCode;

use backstop::provider::ScriptedToolCall;
use backstop::{
    Agent, Budget, Limits, MemoryErrorStore, MemoryLog, OpenAi, ScriptedAnswer, ScriptedProvider,
    ToolError,
};
use backstop_testkit::measure::{Goal, Row, Spread};
use backstop_testkit::{Ending, Loopback, Reply};
use serde_json::json;

use crate::held::{RUNS, Runs, Way};
use crate::layers::{asked, bare, stacked};

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
    let turn = Row::new("allocations of a turn without a store", ratios, Goal::Within("60"));
    let layers = layers_around_an_attempt(&runtime);
    let mut rows = vec![turn, layers, runs_in_flight(&runtime)];
    rows.extend(dispatches_in_flight(&runtime));
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts what the layers around an attempt allocate when it is answered.
fn layers_around_an_attempt(runtime: &tokio::runtime::Runtime) -> Row {
    let (stack, bare) = (stacked(), bare());
    let count = |work: &mut dyn FnMut()| {
        work();
        allocation_counter::measure(work).count_total
    };
    let with = count(&mut || runtime.block_on(asked(&stack, 100)));
    let without = count(&mut || runtime.block_on(asked(&bare, 100)));
    let more = f64::from(u32::try_from(with - without).unwrap_or(u32::MAX)) / 100.0;
    let more = Spread::of([more / 3.0]);
    Row::new("allocations of the layers around an attempt", more, Goal::Within("3"))
}

/// Counts the bytes that runs hold while their model is asked over HTTP, connections included.
fn runs_in_flight(runtime: &tokio::runtime::Runtime) -> Row {
    const RUNS: usize = 200;
    let hang = || Reply::json(200, &json!({})).ending(Ending::HangBeforeHead);
    let server = Loopback::serving(move |_| hang());
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).build();
    let agent = Agent::builder(openai.expect("it is configured"))
        .tool(add)
        .log(MemoryLog::new())
        .error_store(MemoryErrorStore::new())
        .build()
        .expect("the agent is complete");
    let mut runs = Vec::with_capacity(RUNS);
    let held = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..RUNS {
                let agent = agent.clone();
                runs.push(tokio::spawn(async move { agent.run("hello").await.map(drop) }));
            }
            while server.count() < RUNS {
                tokio::task::yield_now().await;
            }
        });
    });
    let each = f64::from(u32::try_from(held.bytes_current).unwrap_or(u32::MAX)) / RUNS as f64;
    runs.iter().for_each(tokio::task::JoinHandle::abort);
    let ratio = Spread::of([each / (64.0 * 1024.0)]);
    Row::new("bytes of a run in flight over HTTP", ratio, Goal::Within("64 KiB"))
}

/// Counts the bytes that many runs under one orchestrator hold while their model is asked, with their log
/// in memory and the tasks that wait for them, and those of the same runs without.
fn dispatches_in_flight(runtime: &tokio::runtime::Runtime) -> [Row; 2] {
    let held = |way| {
        let mut runs = Runs::new(way);
        let held = allocation_counter::measure(|| runs.begin(runtime)).bytes_current;
        runs.end(runtime);
        f64::from(u32::try_from(held).unwrap_or(u32::MAX)) / RUNS as f64
    };
    let [dispatched, alone] = [held(Way::Dispatched), held(Way::Alone)];
    let bytes = Spread::of([dispatched / (64.0 * 1024.0)]);
    let ratio = Spread::of([dispatched / alone]);
    [
        Row::new("bytes of one of 10,000 dispatches in flight", bytes, Goal::Within("64 KiB")),
        Row::new("bytes of a dispatch in flight to its agent's run", ratio, Goal::None),
    ]
}

/// Makes an agent that calls its tool once a turn.
fn agent(turns: u32) -> Agent {
    let turn = |number: u32| {
        ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(
            format!("call-{number}"),
            "add",
            json!({"x": number, "y": 2}),
        )])
    };
    let mut answers: Vec<_> = (0..turns).map(turn).collect();
    answers.push(ScriptedAnswer::saying("done"));
    Agent::builder(ScriptedProvider::new(answers))
        .tool(add)
        .limits(Limits::new().max_iterations(u32::MAX))
        .budget(Budget::new().model_calls(None).tool_calls(None))
        .build()
        .expect("the agent is complete")
}

/// Add two integers.
#[backstop::tool(idempotent)]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}
