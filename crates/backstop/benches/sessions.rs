//! What a turn costs late in a session, beside an early one: in a process that made the turns before it, and in one
//! that knows nothing of them.
//!
//! `cargo bench -p backstop --bench sessions`; with `-- --quick` for a glance. Without the programs of a PostgreSQL
//! server its rows are left out.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backstop::event_log::EventLog;
use backstop::{
    Agent, Database, Durability, PostgresDatabase, RunRequest, ScriptedAnswer, ScriptedProvider,
};
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use tokio::runtime::Runtime;

/// The turns that are compared with the early ones.
const LATE: [usize; 2] = [400, 1_000];
const EARLY: usize = 5;
/// The number of turns that are measured around each of them.
const AROUND: usize = 9;
const GOAL: Goal = Goal::AtMost(1.5);

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let late = if quick { &LATE[..1] } else { &LATE[..] };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    println!("{}", Row::HEAD);
    let path = folder.path().join("sessions.db");
    let mut rows = runtime.block_on(async {
        let database = Database::open(path, Durability::Normal).await.expect("a new file opens");
        compare("SQLite", &(Arc::new(database.log()) as _), late).await
    });
    if let Some(server) = PostgresServer::start() {
        rows.extend(runtime.block_on(async {
            let database = PostgresDatabase::connect(&server.database().await).await;
            let database = database.expect("the database is there");
            compare("PostgreSQL", &(Arc::new(database.log()) as _), late).await
        }));
    }
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes an agent that answers at once and has read nothing yet.
fn agent(log: &Arc<dyn EventLog>) -> Agent {
    let model = ScriptedProvider::from_fn(|_| ScriptedAnswer::saying("It is 42."));
    Agent::builder(model).shared_log(Arc::clone(log)).build().expect("the agent is complete")
}

/// Compares late turns of two sessions with early ones, which are measured in sessions of their own at the same time.
async fn compare(store: &str, log: &Arc<dyn EventLog>, late: &[usize]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (way, is_new) in [("a new process", true), ("one process", false)] {
        let mut session = Session::new(log, format!("ses_{is_new}"), is_new);
        for turn in late {
            session.go_on(turn - AROUND / 2).await;
            let (mut late, mut early) = (Vec::new(), Vec::new());
            for number in 0..AROUND {
                late.push(session.turn().await);
                let name = format!("ses_{is_new}_{turn}_{number}");
                let mut other = Session::new(log, name, is_new);
                other.go_on(EARLY).await;
                early.push(other.turn().await);
            }
            let name = format!("{store}, {way}: turn {turn} to turn {EARLY}");
            let row = Row::new(name, Spread::of(ratios(&late, &early)), GOAL);
            println!("{row}");
            rows.push(row);
        }
    }
    rows
}

/// A session that goes on turn by turn.
struct Session<'a> {
    log: &'a Arc<dyn EventLog>,
    name: String,
    /// The agent of all turns; each has its own if `None`.
    agent: Option<Agent>,
    turns: usize,
}

impl<'a> Session<'a> {
    fn new(log: &'a Arc<dyn EventLog>, name: String, is_new: bool) -> Self {
        Self { log, name, agent: (!is_new).then(|| agent(log)), turns: 0 }
    }

    /// Makes the turns before one.
    async fn go_on(&mut self, until: usize) {
        while self.turns + 1 < until {
            self.turn().await;
        }
    }

    /// Returns the time that the next turn takes.
    async fn turn(&mut self) -> Duration {
        let agent = self.agent.clone().unwrap_or_else(|| agent(self.log));
        self.turns += 1;
        let began = now();
        let run = agent.run(RunRequest::new("What is 40 + 2?").session(&*self.name)).await;
        let took = began.elapsed();
        let outcome = run.expect("nothing fails");
        assert_eq!(outcome.transcript.messages().len(), 2 * self.turns);
        took
    }
}
