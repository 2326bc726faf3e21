//! What a spend limit costs runs that start at once, beside the same runs without one.
//!
//! `cargo bench -p backstop --bench spending`; with `-- --quick` for a glance. Without the programs of a PostgreSQL
//! server its rows are left out.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backstop::event_log::EventLog;
use backstop::{
    Agent, Database, Durability, LimitPeriod, LimitScope, PostgresDatabase, Price, RunRequest,
    ScriptedAnswer, ScriptedProvider, SpendLimit, StateStore, Stop, TokenUsage,
};
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How much is measured.
struct Effort {
    rounds: usize,
    runs: usize,
}

const FULL: Effort = Effort { rounds: 15, runs: 400 };
const QUICK: Effort = Effort { rounds: 3, runs: 400 };
/// The most that runs under a limit may take, to runs without one.
const GOAL: Goal = Goal::AtMost(3.0);

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    println!("{}", Row::HEAD);
    let mut rows = Vec::new();
    let path = folder.path().join("spending.db");
    let sqlite = async {
        let database = Database::open(path, Durability::Full).await.expect("a new file opens");
        Stores { log: Arc::new(database.log()), state: Arc::new(database.state()) }
    };
    rows.extend(runtime.block_on(async { compare("SQLite", &sqlite.await, &effort).await }));
    if let Some(server) = PostgresServer::start() {
        let postgres = async {
            let database = PostgresDatabase::connect(&server.database().await).await;
            let database = database.expect("the database is there");
            Stores { log: Arc::new(database.log()), state: Arc::new(database.state()) }
        };
        let rows_of = async { compare("PostgreSQL", &postgres.await, &effort).await };
        rows.extend(runtime.block_on(rows_of));
    }
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The stores of one database.
struct Stores {
    log: Arc<dyn EventLog>,
    state: Arc<dyn StateStore>,
}

impl Stores {
    /// Makes an agent that answers at once, under a limit of all agents or under none.
    fn agent(&self, is_limited: bool) -> Agent {
        let model = ScriptedProvider::from_fn(|_| {
            ScriptedAnswer::saying("It is 42.").usage(TokenUsage::new(1_000, 10))
        });
        let agent = Agent::builder(model).name("bench").price(Price::new(1.0, 1.0));
        let agent = agent.shared_log(Arc::clone(&self.log));
        let agent = agent.shared_state_store(Arc::clone(&self.state));
        let agent = match is_limited {
            true => {
                agent.spend_limit(SpendLimit::new(LimitScope::Global, LimitPeriod::Day, 10_000.0))
            }
            false => agent,
        };
        agent.build().expect("the agent is complete")
    }
}

/// Compares runs of one agent, and runs with an agent each, with and without a limit, in turns.
async fn compare(name: &str, stores: &Stores, effort: &Effort) -> Vec<Row> {
    let [limited, free] = [true, false].map(|is_limited| vec![stores.agent(is_limited)]);
    let one = measure(effort, &limited, &free).await;
    let [limited, free] = [true, false]
        .map(|is_limited| (0..effort.runs).map(|_| stores.agent(is_limited)).collect::<Vec<_>>());
    let each = measure(effort, &limited, &free).await;
    let runs = effort.runs;
    let rows = [
        Row::new(format!("{name}: {runs} runs under a spend limit"), one, GOAL),
        Row::new(format!("{name}: {runs} runs, an agent each"), each, GOAL),
    ];
    rows.iter().for_each(|row| println!("{row}"));
    rows.into()
}

async fn measure(effort: &Effort, limited: &[Agent], free: &[Agent]) -> Spread {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    // Caches fill in the first round.
    for round in 0..=effort.rounds {
        let [under, out] =
            [start_at_once(effort, limited).await, start_at_once(effort, free).await];
        if round > 0 {
            with.push(under);
            without.push(out);
        }
    }
    Spread::of(ratios(&with, &without))
}

/// Returns the time that all runs take that start at once.
async fn start_at_once(effort: &Effort, agents: &[Agent]) -> Duration {
    let began = now();
    let mut runs = JoinSet::new();
    for agent in agents.iter().cycle().take(effort.runs) {
        let agent = agent.clone();
        runs.spawn(async move { agent.run(RunRequest::new("What is 40 + 2?")).await });
    }
    while let Some(run) = runs.join_next().await {
        let outcome = run.expect("no run panics").expect("nothing fails");
        assert!(matches!(outcome.stop, Stop::Completed), "{:?}", outcome.stop);
    }
    began.elapsed()
}
