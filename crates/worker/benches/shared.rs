//! What sharing runs costs: starts and takeovers a second with four workers, and turns of a long run beside
//! LangGraph's agent with its PostgreSQL checkpointer on the same server. What the server acknowledges is on disk.
//!
//! `cargo bench -p backstop-worker`; with `-- --quick` for a glance. It needs the programs of a PostgreSQL server;
//! LangGraph takes part where `BACKSTOP_LANGGRAPH` names a Python that has `bench/python/requirements.txt`.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "shared/turns.rs"]
mod turns;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::Agent;
use backstop_store_postgres::{Database, Enqueue, Options, QueueFilter};
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::{Row, Spread, now};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use backstop_worker::{Worker, WorkerEnd};
use layer0::message::Message;
use layer0::operator::Task;
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How many workers there are, and how many runs each has at work.
const WORKERS: usize = 4;
const CONCURRENCY: usize = 16;

struct Effort {
    rounds: usize,
    /// How many runs are queued, and how many are left by a process.
    starts: usize,
    takeovers: usize,
    turns: usize,
}

const FULL: Effort = Effort { rounds: 7, starts: 2_000, takeovers: 500, turns: 200 };
const QUICK: Effort = Effort { rounds: 2, starts: 200, takeovers: 50, turns: 200 };

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let Some(server) = PostgresServer::start() else { return ExitCode::SUCCESS };
    let runtime = Runtime::new().expect("a runtime can be made");
    let rows = runtime.block_on(async {
        say("starts", &rates(&server, effort.rounds, effort.starts, starts).await);
        say("takeovers", &rates(&server, effort.rounds, effort.takeovers, takeovers).await);
        turns::compare(&server, effort.rounds, effort.turns).await
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(what: &str, rates: &[f64]) {
    let rate = Spread::of(rates.iter().copied());
    println!("{what}: {:.0} a second ({:.0} to {:.0})", rate.median, rate.min, rate.max);
}

/// Returns how many runs came to their end a second, in each round.
async fn rates(
    server: &PostgresServer,
    rounds: usize,
    runs: usize,
    work: impl AsyncFn(&str, usize) -> Duration,
) -> Vec<f64> {
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let took = work(&server.database().await, runs).await;
        rates.push(f64::from(u32::try_from(runs).expect("a few")) / took.as_secs_f64());
    }
    rates
}

async fn open(url: &str) -> Database {
    let options = Options::new(url).expect("a URL").lease(Duration::from_secs(3));
    Database::connect_with(options).await.expect("the database is there")
}

/// Calls a tool once, which waits for its permit, and answers then.
fn agent(database: &Database, gate: &Gate) -> Agent {
    let model = ScriptedProvider::from_fn(|request| {
        match request.messages.messages().last().map(|message| &**message) {
            Some(Message::Tool { .. }) => ScriptedAnswer::saying("done"),
            _ => ScriptedAnswer::calling("gate", json!({})),
        }
    });
    let agent = Agent::builder(model).name("agent").tool(gate.clone()).log(database.log());
    agent.build().expect("the agent is complete")
}

#[derive(Clone)]
struct Gate {
    spec: ToolSpec,
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn with(permits: usize) -> Self {
        let spec = ToolSpec::new("gate", "Waits.", json!({"type": "object"})).idempotent();
        Self { spec, begun: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(permits)) }
    }
}

#[async_trait]
impl Tool for Gate {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        self.begun.add_permits(1);
        self.open.acquire().await.expect("it is never closed").forget();
        Ok(JsonText::from(&json!("through")))
    }
}

struct Workers {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<WorkerEnd>>,
}

impl Workers {
    async fn start(url: &str, gate: &Gate, workers: usize, concurrency: usize) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = Vec::new();
        for _ in 0..workers {
            let database = open(url).await;
            let builder = Worker::builder(&database).operator(agent(&database, gate));
            let builder = builder.concurrency(concurrency).drain(Duration::ZERO);
            let worker = builder.build().expect("the worker is complete");
            let stop = stop.clone();
            tasks.push(tokio::spawn(async move {
                let end = worker.run(stop).await.expect("the database is there");
                database.close().await;
                end
            }));
        }
        Self { stop, tasks }
    }

    async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.expect("a worker does not panic");
        }
    }
}

async fn put(database: &Database, runs: usize) {
    for _ in 0..runs {
        let request = Enqueue::new("agent", Task::text("go"));
        database.queue().enqueue(&request).await.expect("it is queued");
    }
}

async fn all_ended(database: &Database) {
    loop {
        let left = database.queue().list(&QueueFilter::new().limit(1)).await;
        if left.expect("the database is there").is_empty() {
            return;
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

/// Queued runs, from the first start to the last end.
async fn starts(url: &str, runs: usize) -> Duration {
    let database = open(url).await;
    put(&database, runs).await;
    let began = now();
    let workers = Workers::start(url, &Gate::with(runs), WORKERS, CONCURRENCY).await;
    all_ended(&database).await;
    let took = began.elapsed();
    workers.stop().await;
    database.close().await;
    took
}

/// Runs that a process left in the middle of a tool, from the start of the others to the last end.
async fn takeovers(url: &str, runs: usize) -> Duration {
    let database = open(url).await;
    put(&database, runs).await;
    let gate = Gate::with(0);
    let left = Workers::start(url, &gate, 1, runs).await;
    let all = u32::try_from(runs).expect("a few");
    gate.begun.acquire_many(all).await.expect("it is never closed").forget();
    left.stop().await;
    let began = now();
    let workers = Workers::start(url, &Gate::with(runs), WORKERS, CONCURRENCY).await;
    all_ended(&database).await;
    let took = began.elapsed();
    workers.stop().await;
    database.close().await;
    took
}
