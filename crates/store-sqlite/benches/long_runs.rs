//! The cost of loading and continuing a long run in SQLite.
//!
//! `cargo bench -p backstop-store-sqlite --bench long_runs`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::{EventLog, Log, RunWriter, Seed};
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_react::{Agent, Budget, Limits};
use backstop_store_sqlite::{Database, Durability, SqliteLog};
use backstop_testkit::measure::{Goal, Row, Spread, median, now};
use backstop_tool::{ToolError, tool};
use layer0::Timestamp;
use layer0::event::{Actor, Warning};
use layer0::message::{StopReason, ToolCall};
use serde_json::json;
use tokio::runtime::Runtime;

/// The amount of work to measure.
struct Effort {
    rounds: usize,
    /// Number of events of a long run.
    events: usize,
}

const FULL: Effort = Effort { rounds: 11, events: 100_000 };
const QUICK: Effort = Effort { rounds: 3, events: 5_000 };

/// Number of events of a turn with one tool call.
const EVENTS_PER_TURN: usize = 5;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rows = runtime.block_on(async {
        let path = folder.path().join("long.db");
        let database = Database::open(path, Durability::Normal).await.expect("a new file opens");
        let log = database.log();
        [replay(&effort, &log).await, step(&effort, &log).await]
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads, verifies and folds a run; the limit applies to 100,000 events.
async fn replay(effort: &Effort, log: &SqliteLog) -> Row {
    let agent = Agent::builder(Asking { turns: effort.events / EVENTS_PER_TURN, asked: 0.into() })
        .tool(add)
        .limits(Limits::new().max_iterations(u32::MAX))
        .budget(Budget::new().model_calls(None).tool_calls(None).events(None))
        .log(log.clone())
        .build()
        .expect("the agent is complete");
    let outcome = agent.run("add").await.expect("nothing fails in this run");
    let run = &outcome.run_id;
    let summary = log.summary(run).await.expect("the log answers").expect("the run is there");
    let events = f64::from(u32::try_from(summary.last_seq).expect("that many events"));
    let limit = Duration::from_secs(1).mul_f64(events / 100_000.0);
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let began = now();
        let finish = backstop_react::replay(log, run).await.expect("the run replays");
        ratios.push(began.elapsed().div_duration_f64(limit));
        assert!(finish.is_some(), "the run is finished");
    }
    let name = format!("load a run of {} events", summary.last_seq);
    Row::new(name, Spread::of(ratios), Goal::Within("1 s per 100,000"))
}

/// Appends to a long run and to one of 100 events, in turns.
async fn step(effort: &Effort, log: &SqliteLog) -> Row {
    let log: Arc<dyn EventLog> = Arc::new(log.clone());
    let writer = |run: &str| RunWriter::new(Arc::clone(&log), run.into());
    let (mut short, mut long) = (writer("run_short"), writer("run_long"));
    append(&mut short, 100).await;
    append(&mut long, effort.events).await;
    let mut ratios = Vec::new();
    for _ in 0..effort.rounds {
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..32 {
            for (run, took) in [&mut short, &mut long].into_iter().zip(&mut took) {
                let began = now();
                append(run, 1).await;
                took.push(began.elapsed());
            }
        }
        ratios.push(median(&took[1]).div_duration_f64(median(&took[0])));
    }
    let name = format!("a step in a run of {} events to one of 100", effort.events);
    Row::new(name, Spread::of(ratios), Goal::AtMost(1.1))
}

/// Appends events in one write.
async fn append(run: &mut RunWriter, events: usize) {
    for _ in 0..events {
        let warning = Warning::new("so it goes ".repeat(18));
        run.stage(
            &Seed::new("test"),
            Timestamp::from_millis(1_767_225_600_000),
            Actor::Machine,
            None,
            warning.into(),
        );
    }
    drop(run.commit().await.expect("nothing fails"));
}

/// A model that requests one tool call in each turn.
struct Asking {
    turns: usize,
    asked: AtomicUsize,
}

#[async_trait]
impl Provider for Asking {
    fn name(&self) -> &str {
        "bench"
    }

    fn model(&self) -> &str {
        "bench"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let call = || ToolCall::new(format!("call-{turn}"), "add", json!({"x": turn, "y": 2}));
        let ends = turn > self.turns;
        Ok(ModelResponse::new(
            if ends { "done" } else { "" },
            if ends { Arc::default() } else { [call()].into() },
            if ends { StopReason::End } else { StopReason::ToolUse },
            Default::default(),
        ))
    }
}

/// Add two integers.
#[tool(idempotent)]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}
