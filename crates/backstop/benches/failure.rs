//! What failing costs, and what a turn costs, as ratios beside their goals.
//!
//! `cargo bench -p backstop --bench failure`; with `-- --quick` for a glance.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backstop::error_store::Summary;
use backstop::layer0::message::{StopReason, ToolCall};
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::{
    Agent, AgentError, Budget, Limits, MemoryLog, Provider, ProviderError, Redactor, ToolError,
};
use backstop_testkit::measure::{Goal, Row, Spread, interleaved, median, now};
use serde_json::json;

/// How much is measured.
struct Effort {
    rounds: usize,
    runs: usize,
}

const FULL: Effort = Effort { rounds: 1_001, runs: 1_001 };
const QUICK: Effort = Effort { rounds: 31, runs: 21 };

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    println!("{}", Row::HEAD);
    let mut rows = summaries(&effort);
    rows.extend(hostile(&effort));
    rows.push(late_turns(&effort));
    rows.extend(refusals(&effort));
    for row in &rows {
        println!("{row}");
    }
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Errors of several kinds, short and long, made fit for the store and the model.
fn summaries(effort: &Effort) -> Vec<Row> {
    let redactor = Redactor::new().with_secret("the-key-of-this-process");
    let summarise = |text: &str| {
        let text = redactor.redact(text);
        black_box(Summary::from_error(&text, Some("SQL_ERROR")));
    };
    let mut rows = Vec::new();
    for (chars, size, limit, goal) in [
        (3_000, "3,000 characters", Duration::from_micros(20), "20 µs"),
        (1_000_000, "1 MB", Duration::from_millis(20), "20 ms"),
    ] {
        let [log, traceback, json, secrets] =
            [log(chars), traceback(chars), json_error(chars), secrets(chars)];
        let times = interleaved(
            effort.rounds,
            [
                &mut || summarise(&log),
                &mut || summarise(&traceback),
                &mut || summarise(&json),
                &mut || summarise(&secrets),
            ],
        );
        for (kind, times) in ["log", "traceback", "JSON", "secrets"].iter().zip(times) {
            let ratio = Spread::of(times.iter().map(|took| took.div_duration_f64(limit)));
            let name = format!("redact and summarise {size}: {kind}");
            rows.push(Row::new(name, ratio, Goal::Within(goal)));
        }
    }
    rows
}

/// Text that makes a careless search look at each place again from every other: four times as much of
/// it costs four times as much, not sixteen.
fn hostile(effort: &Effort) -> Vec<Row> {
    let redactor = Redactor::new().with_secret("held-secret-key").with_secret("a".repeat(16));
    let units = [
        "sk-",
        "xeyJaaaaaaaa_",
        "token=",
        "token=self.",
        "password=\"\\",
        "password='",
        "-----BEGIN PRIVATE KEY-----\"",
        "://a:",
        "authorization: digest ",
        "cookie: a=b;",
        "\\",
        "%25",
        "&#",
        "aaaaaaaa",
        "held-\n ",
    ];
    let rows = units.into_iter().map(|unit| {
        let [short, long] = [16_384, 65_536].map(|bytes| unit.repeat(bytes / unit.len()));
        let redact = |text: &str| drop(black_box(redactor.redact(text)));
        let [short, long] =
            interleaved(effort.rounds.min(101), [&mut || redact(&short), &mut || redact(&long)]);
        let ratio = Spread::of([median(&long).div_duration_f64(median(&short))]);
        Row::new(format!("redact four times as much: {unit:?}"), ratio, Goal::AtMost(8.0))
    });
    rows.collect()
}

/// Begins with `head` and goes on, line by line, for so many characters.
fn lines(chars: usize, head: &str, line: impl Fn(usize) -> String) -> String {
    let mut text = head.to_owned();
    for number in 0.. {
        if text.len() >= chars {
            break;
        }
        let _ = writeln!(text, "{}", line(number));
    }
    text.truncate(chars);
    text
}

/// Lines without a secret.
fn log(chars: usize) -> String {
    lines(chars, "syntax error near 'FROM'\n", |number| {
        format!(
            "2026-01-01T00:00:{:02}Z WARN db::pool: connection {number} to db-{number}.internal:5432 was reset by peer",
            number % 60
        )
    })
}

/// Words that stand before secrets, and none.
fn traceback(chars: usize) -> String {
    let mut text = lines(chars - 40, "Traceback (most recent call last):\n", |number| {
        format!(
            "  File \"/srv/app/module_{number}.py\", line {number}, in call_{number}\n    return self.handler(request, token={number})"
        )
    });
    text.push_str("\nValueError: no such column: customer");
    text
}

/// The message is one field among many.
fn json_error(chars: usize) -> String {
    let row = |number: usize| json!({"path": ["rows", number], "error": "is not a number", "value": format!("{number}x")});
    let mut rows = Vec::new();
    let mut length = 60;
    for number in 0.. {
        let row = row(number);
        length += row.to_string().len() + 1;
        if length > chars {
            break;
        }
        rows.push(row);
    }
    json!({"message": "the query failed", "status": 500, "rows": rows}).to_string()
}

/// Three lines of four hold a secret.
fn secrets(chars: usize) -> String {
    lines(chars, "could not connect\n", |number| match number % 4 {
        0 => format!(
            "retry {number}: postgres://app:hunter{number:02}@db-{number}:5432/app refused the connection, see the log of the server"
        ),
        1 => format!(
            "request {number} with Authorization: Bearer abcdefghijklmnop{number} was answered with status 401"
        ),
        2 => format!(
            "DB_PASSWORD=hunter{number:04} DB_HOST=db-{number} DB_USER=app were read from the environment of the process"
        ),
        _ => format!(
            "step {number} took 12 ms and wrote 4096 bytes to /var/lib/app/data/{number}.bin, which is as much as before"
        ),
    })
}

/// Asks for one tool call a turn, and notes when it is asked.
struct Asking {
    turns: usize,
    asked: Arc<Mutex<Vec<Instant>>>,
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
        let turn = {
            let mut asked = self.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            asked.push(now());
            asked.len()
        };
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
#[backstop::tool(idempotent)]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

/// The turns around the 200th to those around the 10th, each run by itself.
fn late_turns(effort: &Effort) -> Row {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be made");
    let ratio = |_| {
        let turns = runtime.block_on(turns(203));
        let [early, late] = [8..=12, 198..=202].map(|place| median(&turns[place]));
        late.div_duration_f64(early)
    };
    let ratio = Spread::of((0..effort.runs).map(ratio));
    Row::new("turn 200 of a run to turn 10", ratio, Goal::AtMost(1.5))
}

/// Runs an agent, and returns how long each turn took; the first has index 1.
async fn turns(turns: usize) -> Vec<Duration> {
    let asked = Arc::new(Mutex::new(Vec::with_capacity(turns + 1)));
    let agent = Agent::builder(Asking { turns, asked: Arc::clone(&asked) })
        .tool(add)
        .limits(Limits::new().max_iterations(u32::MAX))
        .budget(Budget::new().model_calls(None).tool_calls(None))
        .build()
        .expect("the agent is complete");
    let outcome = agent.run("add").await.expect("nothing fails in this run");
    assert_eq!(outcome.text(), "done");
    let asked = asked.lock().expect("nothing panicked");
    let took = asked.windows(2).map(|turn| turn[1].duration_since(turn[0]));
    std::iter::once(Duration::ZERO).chain(took).collect()
}

/// Asks for many tool calls in one answer.
struct Flooding(Arc<[ToolCall]>);

#[async_trait]
impl Provider for Flooding {
    fn name(&self) -> &str {
        "bench"
    }

    fn model(&self) -> &str {
        "bench"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        Ok(ModelResponse::new("", Arc::clone(&self.0), StopReason::ToolUse, Default::default()))
    }
}

/// Returns the CPU time of this thread, as Linux counts it.
fn spent() -> Duration {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    let nanos = counted.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("the first number is the time in nanoseconds"))
}

/// 8,000 calls in one answer, which is refused: the CPU time of the whole run, on one thread.
fn refusals(effort: &Effort) -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be made");
    let call = |id: String, number: usize| ToolCall::new(id, "add", json!({"x": number, "y": 2}));
    let flood = |id: &dyn Fn(usize) -> String| -> Arc<[ToolCall]> {
        (0..8_000).map(|number| call(id(number), number)).collect()
    };
    let ids: [(&str, Arc<[ToolCall]>); 3] = [
        ("ids of their own", flood(&|number| format!("call-{number}"))),
        ("one id", flood(&|_| "call".to_owned())),
        ("no ids", flood(&|_| String::new())),
    ];
    let mut rows = Vec::new();
    for (name, calls) in ids {
        for (place, log) in [("no log", false), ("log in memory", true)] {
            let refuse = |_| {
                let agent = Agent::builder(Flooding(Arc::clone(&calls))).tool(add);
                let agent = if log { agent.log(MemoryLog::new()) } else { agent };
                let agent = agent.build().expect("the agent is complete");
                let began = spent();
                let failure = runtime.block_on(agent.run("add")).expect_err("they are too many");
                let took = spent() - began;
                assert!(
                    matches!(failure.error, AgentError::ParallelToolLimitExceeded { .. }),
                    "{}",
                    failure.error
                );
                took.div_duration_f64(Duration::from_millis(50))
            };
            let ratio = Spread::of((0..effort.runs.min(31)).map(refuse));
            let name = format!("refuse 8,000 calls in one answer: {name}, {place}");
            rows.push(Row::new(name, ratio, Goal::Within("50 ms")));
        }
    }
    rows
}
