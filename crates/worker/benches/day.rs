//! The busiest minutes of a day, for real: so many runs a day come in at five times the mean, each of ten turns of
//! three seconds, to four workers and one server. It says how many are in flight, how long they wait for a worker, and
//! what they cost.
//!
//! `cargo bench -p backstop-worker --bench day` for a million, two and four; with numbers behind `--` for those, as in
//! `-- 500000`; with `-- --quick` for a glance. It needs the programs of a PostgreSQL server, and two minutes for each.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use backstop_clock::{Clock, SystemClock};
use backstop_provider::{ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::Agent;
use backstop_store_postgres::{Database, Enqueue, Options, QueueFilter};
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::now;
use backstop_tool::{ToolError, tool};
use backstop_worker::{RunChange, Worker, WorkerReport};
use layer0::id::RunId;
use layer0::message::Message;
use layer0::operator::Task;
use serde_json::json;
use sqlx::PgPool;
use tokio::runtime::Runtime;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 4;
/// More than ever are in flight, so that what holds a run up is the work and no limit.
const CONCURRENCY: usize = 10_000;
/// The number of the last of ten turns.
const LAST: usize = 9;
/// How much busier the busiest hour is than the mean.
const PEAK: f64 = 5.0;

struct Effort {
    turn: Duration,
    /// How long runs come in before it is counted, and while it is.
    before: Duration,
    counted: Duration,
}

const FULL: Effort = Effort {
    turn: Duration::from_secs(3),
    before: Duration::from_secs(40),
    counted: Duration::from_secs(60),
};
const QUICK: Effort = Effort {
    turn: Duration::from_millis(300),
    before: Duration::from_secs(5),
    counted: Duration::from_secs(5),
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let effort = if arguments.iter().any(|it| it == "--quick") { QUICK } else { FULL };
    let mut days: Vec<f64> = arguments.iter().filter_map(|it| it.parse().ok()).collect();
    if days.is_empty() {
        days = vec![1e6, 2e6, 4e6];
    }
    let Some(server) = PostgresServer::start() else { return ExitCode::SUCCESS };
    let runtime = Runtime::new().expect("a runtime can be made");
    println!(
        "runs a day, runs a second, in flight, wait of the median and of one in a hundred (ms), events a second, \
         cores of the workers and of the server, rows and bytes a run"
    );
    for runs in days {
        let seen = runtime.block_on(simulate(&server, &effort, runs * PEAK / 86_400.0));
        println!(
            "{runs:.0}, {:.0}, {:.0}, {:.0} and {:.0}, {:.0}, {:.2} and {:.2}, {:.0} and {:.0}",
            seen.rate,
            seen.in_flight,
            seen.wait.0,
            seen.wait.1,
            seen.events,
            seen.cores.0,
            seen.cores.1,
            seen.rows,
            seen.bytes
        );
    }
    ExitCode::SUCCESS
}

/// What was seen while it was counted.
struct Seen {
    rate: f64,
    in_flight: f64,
    wait: (f64, f64),
    events: f64,
    cores: (f64, f64),
    rows: f64,
    bytes: f64,
}

/// Looks for something, which takes no time.
#[tool(idempotent)]
async fn look(at: u32) -> Result<String, ToolError> {
    Ok(format!("There are {at} left, and three of them are blue."))
}

/// An agent whose model answers after a turn's time.
fn agent(database: &Database, turn: Duration) -> Agent {
    let delay_ms = u64::try_from(turn.as_millis()).expect("a few");
    let model = ScriptedProvider::from_fn(move |request| {
        let messages = request.messages.messages().iter();
        let turn = messages.filter(|it| matches!(***it, Message::Tool { .. })).count();
        let call = ScriptedToolCall::new(format!("call_{turn}"), "look", json!({"at": turn}));
        let mut answer = match turn {
            LAST => ScriptedAnswer::saying("done"),
            _ => ScriptedAnswer::default().tool_calls([call]),
        };
        answer.delay_ms = delay_ms;
        answer
    });
    let agent = Agent::builder(model).name("agent").instructions("You look.").tool(look);
    agent.log(database.log()).build().expect("the agent is complete")
}

async fn open(url: &str, connections: u32) -> Database {
    let options = Options::new(url).expect("a URL").connections(connections);
    Database::connect_with(options).await.expect("the database is there")
}

async fn simulate(server: &PostgresServer, effort: &Effort, rate: f64) -> Seen {
    let url = server.database().await;
    let database = open(&url, 4).await;
    let stop = CancellationToken::new();
    let (mut tasks, mut begun) = (Vec::new(), Vec::new());
    for _ in 0..WORKERS {
        let database = open(&url, 8).await;
        let worker = Worker::builder(&database).operator(agent(&database, effort.turn));
        let worker = worker.concurrency(CONCURRENCY).drain(Duration::ZERO);
        let worker = worker.build().expect("the worker is complete");
        begun.push(tokio::spawn(begins(worker.subscribe())));
        let stop = stop.clone();
        tasks.push(tokio::spawn(async move {
            worker.run(stop).await.expect("the database is there");
            database.close().await;
        }));
    }
    come_in(&database, rate, effort.before).await;
    let before = Moment::look(&url).await;
    let queued = come_in(&database, rate, effort.counted).await;
    let after = Moment::look(&url).await;
    let in_flight = database.queue().list(&QueueFilter::new()).await.expect("it is there").len();
    while !database
        .queue()
        .list(&QueueFilter::new().limit(1))
        .await
        .expect("it is there")
        .is_empty()
    {
        SystemClock.sleep(Duration::from_millis(100)).await;
    }
    let (rows, bytes) = held(&url).await;
    stop.cancel();
    for task in tasks {
        task.await.expect("a worker does not panic");
    }
    let mut began: HashMap<RunId, Instant> = HashMap::new();
    for heard in begun {
        began.extend(heard.await.expect("what is heard is noted"));
    }
    database.close().await;
    let mut waits: Vec<f64> = (queued.iter())
        .filter_map(|(run, at)| Some(began.get(run)?.saturating_duration_since(*at).as_secs_f64()))
        .collect();
    waits.sort_by(f64::total_cmp);
    let of_hundred = |part: usize| waits.get(waits.len() * part / 100).map_or(0.0, |it| it * 1e3);
    let lasted = after.at.duration_since(before.at).as_secs_f64();
    let rate_of = |of: fn(&Moment) -> f64| (of(&after) - of(&before)) / lasted;
    Seen {
        rate,
        in_flight: f64::from(u32::try_from(in_flight).unwrap_or(u32::MAX)),
        wait: (of_hundred(50), of_hundred(99)),
        events: rate_of(|it| it.events),
        cores: (rate_of(|it| it.workers), rate_of(|it| it.server)),
        rows,
        bytes,
    }
}

/// Puts runs in at a rate, as they come by chance; returns when each came.
async fn come_in(database: &Database, rate: f64, lasts: Duration) -> Vec<(RunId, Instant)> {
    let (began, mut next) = (now(), Duration::ZERO);
    let (mut queued, mut chance) = (Vec::new(), 0.5_f64);
    while began.elapsed() < lasts {
        // A Weyl sequence is even enough; gaps are distributed exponentially.
        chance = (chance + 0.618_033_988_749_895).fract();
        next += Duration::from_secs_f64(-(1.0 - chance).ln() / rate);
        SystemClock.sleep(next.saturating_sub(began.elapsed())).await;
        let at = now();
        let request = Enqueue::new("agent", Task::text("What is left, and what colour has it?"));
        let put = database.queue().enqueue(&request).await.expect("it is queued");
        queued.push((put.run, at));
    }
    queued
}

/// Notes when runs begin, until the worker is gone.
async fn begins(mut reports: Receiver<WorkerReport>) -> HashMap<RunId, Instant> {
    let mut began = HashMap::new();
    loop {
        match reports.recv().await {
            Ok(WorkerReport::Run(RunChange::Begun { run, .. })) => {
                began.entry(run).or_insert_with(now);
            }
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return began,
        }
    }
}

/// What was used up to a moment.
struct Moment {
    at: Instant,
    /// Events that were written.
    events: f64,
    /// Seconds of CPU time.
    workers: f64,
    server: f64,
}

impl Moment {
    async fn look(url: &str) -> Self {
        let pool = PgPool::connect(url).await.expect("the database is there");
        let events: i64 = sqlx::query_scalar("SELECT sum(last_seq)::bigint FROM backstop.runs")
            .fetch_one(&pool)
            .await
            .expect("the runs are there");
        let pids: Vec<i32> = sqlx::query_scalar("SELECT pid FROM pg_stat_activity")
            .fetch_all(&pool)
            .await
            .expect("the server says");
        pool.close().await;
        let server = pids.iter().map(|pid| cpu(&pid.to_string())).sum();
        let events = f64::from(u32::try_from(events).unwrap_or(u32::MAX));
        Self { at: now(), events, workers: cpu("self"), server }
    }
}

/// The CPU time of a process, in seconds: fields 14 and 15 of its `stat`, in ticks of 10 ms.
fn cpu(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).map(f64::from).sum::<f64>() / 100.0
}

/// Returns how many rows and bytes a run has left, of all that have ended.
async fn held(url: &str) -> (f64, f64) {
    let pool = PgPool::connect(url).await.expect("the database is there");
    let (runs, events, bytes): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM backstop.runs), (SELECT count(*) FROM backstop.events), \
         (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class \
         WHERE relnamespace = 'backstop'::regnamespace AND relkind = 'r')",
    )
    .fetch_one(&pool)
    .await
    .expect("the tables are there");
    pool.close().await;
    let number = |count: i64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let runs = number(runs).max(1.0);
    (number(events) / runs + 1.0, number(bytes) / runs)
}
