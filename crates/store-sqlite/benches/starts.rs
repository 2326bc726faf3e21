//! The cost of starting a run in a long session and in a full store, compared with the first run of an empty store.
//!
//! `cargo bench -p backstop-store-sqlite --bench starts`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::process::ExitCode;
use std::time::Duration;

use async_trait::async_trait;
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_react::{Agent, RunRequest, StreamItem};
use backstop_store_sqlite::{Database, Durability};
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use futures_util::future::join_all;
use layer0::event::EventKind;
use layer0::message::StopReason;
use tokio::runtime::Runtime;

/// The amount of work to measure.
struct Effort {
    rounds: usize,
    /// Number of runs of the long session.
    session: usize,
    /// Number of runs of the full store.
    store: usize,
}

const FULL: Effort = Effort { rounds: 101, session: 1_000, store: 100_000 };
const QUICK: Effort = Effort { rounds: 11, session: 100, store: 2_000 };
/// Number of concurrent runs while the store is filled.
const AT_ONCE: usize = 256;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rows = runtime.block_on(async {
        let open = async |name: &str| {
            let path = folder.path().join(name);
            agent(&Database::open(path, Durability::Normal).await.expect("a new file opens"))
        };
        let row = in_a_long_session(&effort, &open("session.db").await).await;
        let (empty, full) = (open("empty.db").await, open("full.db").await);
        [row, in_a_full_store(&effort, &empty, &full).await]
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// An agent that answers at once.
fn agent(database: &Database) -> Agent {
    Agent::builder(Answering).log(database.log()).build().expect("the agent is complete")
}

/// The next run of a session with many runs, and the first run of a new session, in turns.
async fn in_a_long_session(effort: &Effort, agent: &Agent) -> Row {
    for _ in 1..effort.session {
        drop(agent.run(request("ses_long")).await.expect("nothing fails"));
    }
    let (mut first, mut late) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        first.push(start(agent, &format!("ses_{round}")).await);
        late.push(start(agent, "ses_long").await);
    }
    let name = format!("start run {} of a session to run 1", effort.session);
    Row::new(name, Spread::of(ratios(&late, &first)), Goal::AtMost(2.0))
}

/// The first run of a session in a store with many runs, and in an empty one, in turns.
async fn in_a_full_store(effort: &Effort, empty: &Agent, full: &Agent) -> Row {
    let numbers: Vec<usize> = (0..effort.store).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let runs = numbers.iter().map(|number| full.run(request(&format!("ses_full_{number}"))));
        join_all(runs).await.into_iter().for_each(|run| drop(run.expect("nothing fails")));
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        let session = format!("ses_{round}");
        without.push(start(empty, &session).await);
        with.push(start(full, &session).await);
    }
    let name = format!("start a run in a store of {} to an empty one", effort.store);
    Row::new(name, Spread::of(ratios(&with, &without)), Goal::AtMost(1.5))
}

/// Runs once, and returns the time until `run.started` was durable.
async fn start(agent: &Agent, session: &str) -> Duration {
    let began = now();
    let mut stream = agent.stream(request(session));
    let first = stream.next().await;
    let took = began.elapsed();
    let Some(StreamItem::Logged(event)) = first else { panic!("the run did not start: {first:?}") };
    assert!(matches!(event.kind, EventKind::RunStarted(_)), "the first event is `run.started`");
    drop(stream.finish().await.expect("nothing fails"));
    took
}

fn request(session: &str) -> RunRequest {
    RunRequest::new("What is 40 + 2?").session(session)
}

/// A model with the same answer to every input.
struct Answering;

#[async_trait]
impl Provider for Answering {
    fn name(&self) -> &str {
        "bench"
    }

    fn model(&self) -> &str {
        "bench"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        Ok(ModelResponse::new("It is 42.", [].into(), StopReason::End, Default::default()))
    }
}
