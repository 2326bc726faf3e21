//! What a dispatch in process costs beside what is dispatched, what a step of a workflow costs beside a
//! dispatch, and how fast runs start under one orchestrator.
//!
//! `cargo bench -p backstop --bench dispatch`; with `-- --quick` for a glance. What runs in flight hold is
//! counted by the bench of allocations.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "dispatch/held.rs"]
mod held;
#[path = "dispatch/steps.rs"]
mod steps;

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use backstop::layer0::error::OperatorError;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::{
    Agent, LocalOrchestrator, MemoryLog, Operator, Orchestrator, ScriptedAnswer, ScriptedProvider,
};
use backstop_testkit::measure::{Goal, Row, Spread, interleaved, now, ratios};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::held::{RUNS, Runs, Way};
use crate::steps::steps;

/// How much is measured.
struct Effort {
    rounds: usize,
    /// Rounds of runs in flight.
    floods: usize,
}

const FULL: Effort = Effort { rounds: 101, floods: 11 };
const QUICK: Effort = Effort { rounds: 11, floods: 1 };

/// How many dispatches, or runs one after the other, make a round.
const TIMES: u32 = 1_000;

/// What a dispatch may cost beyond the work of its operator.
const BEYOND: Goal = Goal::Within("10 µs");

/// How fast runs start at least.
const STARTS: Goal = Goal::Within("5,000 a second");
const STARTS_A_SECOND: f64 = 5_000.0;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let one = Builder::new_current_thread().enable_all().build();
    let one = one.expect("a runtime of one thread can be made");
    let many = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let many = many.expect("a runtime of two threads can be made");
    println!("{}", Row::HEAD);
    let mut rows = vec![bare(&one, "one thread", &effort), bare(&many, "two threads", &effort)];
    rows.extend(agents(&one, &effort));
    rows.extend(steps(&one, effort.rounds));
    rows.extend(starts(&one, &effort));
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns how much longer one of `TIMES` took than its neighbour, to what it may.
fn beyond(over: &[Duration], under: &[Duration]) -> Spread {
    let ten_micros = 10e-6 * f64::from(TIMES);
    Spread::of(
        over.iter()
            .zip(under)
            .map(|(over, under)| (over.as_secs_f64() - under.as_secs_f64()) / ten_micros),
    )
}

/// Answers at once.
#[derive(Clone)]
struct Bare;

#[async_trait]
impl Operator for Bare {
    fn name(&self) -> &str {
        "bare"
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        Ok(Answer::from_output(Value::Null))
    }
}

/// An operator that does nothing, dispatched and called, by a task of the runtime.
fn bare(runtime: &Runtime, threads: &str, effort: &Effort) -> Row {
    let orchestrator = LocalOrchestrator::builder().operator(Bare).build();
    let orchestrator = orchestrator.expect("the name can be called");
    let dispatched = || {
        let orchestrator = orchestrator.clone();
        let work = runtime.spawn(async move {
            for _ in 0..TIMES {
                let answer = orchestrator.dispatch("bare", Task::text("x"), Context::root()).await;
                assert_eq!(answer.expect("nothing fails").output, Value::Null);
            }
        });
        runtime.block_on(work).expect("nothing panics");
    };
    let called = || {
        let work = runtime.spawn(async {
            for _ in 0..TIMES {
                let answer = Bare.run(Task::text("x"), &Context::root()).await;
                assert_eq!(answer.expect("nothing fails").output, Value::Null);
            }
        });
        runtime.block_on(work).expect("nothing panics");
    };
    let [dispatched, called] = interleaved(effort.rounds, [&mut { dispatched }, &mut { called }]);
    let name = format!("a dispatch beyond its operator, {threads}");
    Row::new(name, beyond(&dispatched, &called), BEYOND)
}

/// Runs of one turn with a log in memory, one after the other, dispatched and begun by their agent.
fn agents(runtime: &Runtime, effort: &Effort) -> [Row; 3] {
    // Each round has a log of its own, so that no round has more to carry than another.
    let agent = || {
        let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("done"));
        let agent = Agent::builder(model).name("agent").log(MemoryLog::new()).build();
        agent.expect("the agent is complete")
    };
    let dispatched = || {
        let orchestrator = LocalOrchestrator::builder().operator(agent()).build();
        let orchestrator = orchestrator.expect("the name can be called");
        runtime.block_on(async {
            for _ in 0..TIMES {
                let task = Task::text("hello");
                let answer = orchestrator.dispatch("agent", task, Context::root()).await;
                assert_eq!(answer.expect("nothing fails").output, "done");
            }
        });
    };
    let alone = || {
        let agent = agent();
        runtime.block_on(async {
            for _ in 0..TIMES {
                let outcome = agent.run("hello").await.expect("nothing fails");
                assert_eq!(outcome.text(), "done");
            }
        });
    };
    let [dispatched, alone] = interleaved(effort.rounds, [&mut { dispatched }, &mut { alone }]);
    let limit = f64::from(TIMES) / STARTS_A_SECOND;
    let whole = Spread::of(dispatched.iter().map(|took| took.as_secs_f64() / limit));
    [
        Row::new("a dispatched run beyond its agent's", beyond(&dispatched, &alone), BEYOND),
        Row::new(
            "a dispatched run to its agent's",
            Spread::of(ratios(&dispatched, &alone)),
            Goal::None,
        ),
        Row::new("dispatched runs, one after the other", whole, STARTS),
    ]
}

/// Runs that are all in flight at once: how long it takes until the model of each was asked, and the file
/// descriptors that are open then and were not before.
fn starts(runtime: &Runtime, effort: &Effort) -> [Row; 3] {
    let mut opened = Vec::new();
    let mut begin = |way| {
        let mut runs = Runs::new(way);
        let before = descriptors();
        let began = now();
        runs.begin(runtime);
        let took = began.elapsed();
        opened.push(descriptors() as f64 - before as f64);
        runs.end(runtime);
        took
    };
    let [mut dispatched, mut alone] = [Vec::new(), Vec::new()];
    for round in 0..=effort.floods {
        let took = [begin(Way::Dispatched), begin(Way::Alone)];
        // In the first round caches fill.
        if round > 0 {
            dispatched.push(took[0]);
            alone.push(took[1]);
        }
    }
    let limit = RUNS as f64 / STARTS_A_SECOND;
    let starts = Spread::of(dispatched.iter().map(|took| took.as_secs_f64() / limit));
    let ratio = Spread::of(ratios(&dispatched, &alone));
    [
        Row::new("starts of 10,000 runs in flight", starts, STARTS),
        Row::new("starts of 10,000 dispatched to their agent's", ratio, Goal::None),
        Row::new("descriptors that 10,000 runs open", Spread::of(opened), Goal::AtMost(0.0)),
    ]
}

/// Counts the file descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux lists them").count()
}
