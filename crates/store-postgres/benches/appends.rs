//! Acknowledged appends a second by many callers, compared in turns with other ways of appending to the same server,
//! and the cost of a turn of a long run compared with a short run. Acknowledged data is on disk (`fsync` on).
//!
//! `cargo bench -p backstop-store-postgres`; with `-- --quick` for a short run. It needs the programs of a PostgreSQL
//! server.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "appends/others.rs"]
mod others;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{EventLog, RunWriter, Seed};
use backstop_store_postgres::Database;
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use layer0::Timestamp;
use layer0::event::{Actor, AgentRecord, EventKind, RunStarted, Warning};
use tokio::runtime::Runtime;

use self::others::Others;

/// The amount of work to measure: rounds, and the time of each way in a round.
struct Effort {
    rounds: usize,
    time: Duration,
}

const FULL: Effort = Effort { rounds: 15, time: Duration::from_millis(1_000) };
const QUICK: Effort = Effort { rounds: 3, time: Duration::from_millis(300) };
/// Numbers of concurrent callers; the other ways have 64.
const CALLERS: [usize; 3] = [1, 64, 256];
const OTHERS: usize = 64;

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let Some(server) = PostgresServer::start() else { return ExitCode::SUCCESS };
    let runtime = Runtime::new().expect("a runtime can be made");
    let rows = runtime.block_on(measure(&server, &effort));
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The time of an acknowledged append, by each way in each round.
#[derive(Default)]
struct Times {
    ours: [Vec<Duration>; 3],
    pooled: Vec<Duration>,
    alone: Vec<Duration>,
    batched: Vec<Duration>,
}

async fn measure(server: &PostgresServer, effort: &Effort) -> Vec<Row> {
    let url = server.database().await;
    let database = Database::connect(&url).await.expect("the database is there");
    let others = Others::new(&server.database().await).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writers = Vec::new();
    for number in 0..256 {
        writers.push(begin(&log, &format!("run_{number}")).await);
    }
    let mut times = Times::default();
    for _ in 0..effort.rounds {
        for (callers, times) in CALLERS.into_iter().zip(&mut times.ours) {
            times.push(ours(&mut writers, callers, effort.time).await);
        }
        times.pooled.push(others.pooled(OTHERS, effort.time).await);
        times.alone.push(others.alone(effort.time).await);
        times.batched.push(others.batched(effort.time).await);
    }
    drop(writers);
    database.close().await;
    let Times { ours: [one, ours, many], pooled, alone, batched } = &times;
    for (what, times) in [
        ("1 caller", one),
        ("64 callers", ours),
        ("256 callers", many),
        ("64 over 16 connections", pooled),
        ("one connection", alone),
        ("batches of 64", batched),
    ] {
        let rate = Spread::of(times.iter().map(|time| 1.0 / time.as_secs_f64()));
        println!("{what}: {:.0} a second ({:.0} to {:.0})", rate.median, rate.min, rate.max);
    }
    let row = |name: &str, over, under, goal| Row::new(name, Spread::of(ratios(over, under)), goal);
    vec![
        row("64 over 16 connections, to our 64 callers", pooled, ours, Goal::AtLeast(2.0)),
        row("one connection, to our 64 callers", alone, ours, Goal::AtLeast(10.0)),
        row("our 64 callers, to batches of 64", ours, batched, Goal::AtMost(1.5)),
        row("our 64 callers, to our 256", ours, many, Goal::None),
        row("our 1 caller, to one connection", one, alone, Goal::None),
    ]
}

fn seed_and_time(writer: &RunWriter) -> (Seed, Timestamp) {
    let ms = i64::try_from(writer.summary().last_seq).unwrap_or(0);
    (Seed::new("bench"), Timestamp::from_millis(1_767_225_600_000 + ms))
}

async fn append(writer: &mut RunWriter, kind: EventKind) {
    let (seed, at) = seed_and_time(writer);
    writer.stage(&seed, at, Actor::Runtime, None, kind);
    writer.commit().await.expect("it is appended");
}

async fn begin(log: &Arc<dyn EventLog>, run: &str) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    let agent = AgentRecord::new("demo", "d", serde_json::json!({"name": "demo"}));
    append(&mut writer, RunStarted::new("hello", run.replace("run", "ses").into(), agent).into())
        .await;
    writer
}

/// Lets each writer append one event after the other, in its own task; returns the time per append of all together.
async fn ours(writers: &mut Vec<RunWriter>, callers: usize, time: Duration) -> Duration {
    let rest = writers.split_off(callers);
    let began = now();
    let tasks: Vec<_> = std::mem::replace(writers, rest)
        .into_iter()
        .map(|mut writer| {
            tokio::spawn(async move {
                let mut count = 0_u32;
                while began.elapsed() < time {
                    append(&mut writer, Warning::new(others::TEXT).into()).await;
                    count += 1;
                }
                (writer, count)
            })
        })
        .collect();
    let mut all = 0;
    for task in tasks {
        let (writer, count) = task.await.expect("a caller does not panic");
        writers.push(writer);
        all += count;
    }
    began.elapsed() / all
}
