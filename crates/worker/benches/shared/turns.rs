//! Turns of a long run, and what they leave in the database, beside LangGraph.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use backstop_provider::{ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::{Agent, Budget, RunRequest};
use backstop_store_postgres::Database;
use backstop_testkit::PostgresServer;
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use backstop_tool::{ToolError, tool};
use layer0::message::Message;
use serde::Deserialize;
use serde_json::json;
use sqlx::PgPool;

/// Which Python has LangGraph and its checkpointer.
const PYTHON: &str = "BACKSTOP_LANGGRAPH";

/// A long run.
#[derive(Deserialize)]
struct Turns {
    /// Of a turn, in seconds.
    seconds_a_turn: f64,
    /// What the turns 10 and 200 left in the database.
    bytes_at_10: f64,
    bytes_at_200: f64,
}

pub(crate) async fn compare(server: &PostgresServer, rounds: usize, turns: usize) -> Vec<Row> {
    let python = std::env::var(PYTHON).ok();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(run(&server.database().await, turns).await);
        if let Some(python) = &python {
            theirs.push(langgraph(python, &server.database().await, turns));
        }
    }
    let growth = |turns: &[Turns]| {
        Spread::of(turns.iter().map(|it| it.bytes_at_200 / it.bytes_at_10).collect::<Vec<_>>())
    };
    for (who, turns) in [("ours", &ours), ("LangGraph", &theirs)] {
        let of = |value: fn(&Turns) -> f64| {
            Spread::of(turns.iter().map(value).collect::<Vec<_>>()).median
        };
        println!(
            "{who}: {:.2} ms a turn, {:.0} bytes at turn 10, {:.0} at turn 200",
            of(|it| it.seconds_a_turn) * 1_000.0,
            of(|it| it.bytes_at_10),
            of(|it| it.bytes_at_200)
        );
    }
    let mut rows =
        vec![Row::new("bytes of turn 200, to those of turn 10", growth(&ours), Goal::AtMost(1.1))];
    if !theirs.is_empty() {
        let times = |turns: &[Turns]| -> Vec<Duration> {
            turns.iter().map(|it| Duration::from_secs_f64(it.seconds_a_turn)).collect()
        };
        let time = Spread::of(ratios(&times(&theirs), &times(&ours)));
        let bytes =
            theirs.iter().zip(&ours).map(|(theirs, ours)| theirs.bytes_at_200 / ours.bytes_at_200);
        rows.push(Row::new("LangGraph: the same of it", growth(&theirs), Goal::None));
        rows.push(Row::new("LangGraph: bytes of turn 200, to ours", Spread::of(bytes), Goal::None));
        rows.push(Row::new("LangGraph: time of a turn, to ours", time, Goal::None));
    }
    rows
}

/// Adds two integers.
#[tool(idempotent)]
async fn add(a: i64, b: i64) -> Result<String, ToolError> {
    Ok((a + b).to_string())
}

async fn run(url: &str, turns: usize) -> Turns {
    let database = Database::connect(url).await.expect("the database is there");
    let model = ScriptedProvider::from_fn(move |request| {
        let messages = request.messages.messages().iter();
        let turn = messages.filter(|it| matches!(***it, Message::Tool { .. })).count();
        if turn == turns {
            return ScriptedAnswer::saying("done");
        }
        let call = ScriptedToolCall::new(format!("call_{turn}"), "add", json!({"a": turn, "b": 1}));
        ScriptedAnswer::default().tool_calls([call])
    });
    let mut limits = backstop_react::Limits::default();
    limits.max_iterations = u32::try_from(turns).expect("a few") + 10;
    let agent = Agent::builder(model).name("agent").instructions("You add.").tool(add);
    let mut budget = Budget::default();
    (budget.max_model_calls, budget.max_tool_calls) = (None, None);
    let agent = agent.limits(limits).budget(budget).log(database.log());
    let agent = agent.build().expect("the agent is complete");
    let began = now();
    let outcome = agent.run(RunRequest::new("add numbers")).await.expect("it runs");
    let took = began.elapsed();
    assert_eq!(outcome.text(), "done", "{:?}", outcome.stop);
    let pool = PgPool::connect(url).await.expect("the database is there");
    let left = async |turn: usize| -> f64 {
        // Turns are told apart by the calls of the model.
        let bytes: i64 = sqlx::query_scalar(
            "WITH asked AS (SELECT seq, row_number() OVER (ORDER BY seq) AS turn FROM backstop.events \
             WHERE type = 'model.requested') \
             SELECT sum(pg_column_size(events.*)) FROM backstop.events, asked AS first, asked AS next \
             WHERE first.turn = $1 AND next.turn = $1 + 1 AND events.seq >= first.seq AND events.seq < next.seq",
        )
        .bind(i64::try_from(turn).expect("a few"))
        .fetch_one(&pool)
        .await
        .expect("the run is there");
        f64::from(u32::try_from(bytes).expect("a few"))
    };
    let (bytes_at_10, bytes_at_200) = (left(10).await, left(200.min(turns)).await);
    pool.close().await;
    database.close().await;
    let seconds_a_turn = took.as_secs_f64() / f64::from(u32::try_from(turns).expect("a few"));
    Turns { seconds_a_turn, bytes_at_10, bytes_at_200 }
}

/// Runs LangGraph's agent with its checkpointer.
fn langgraph(python: &str, url: &str, turns: usize) -> Turns {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/python/langgraph_postgres.py");
    let output = Command::new(python).arg(script).arg(url).arg(turns.to_string()).output();
    let output = output.expect("Python can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(said.lines().last().unwrap_or_default()).expect("it says what it measured")
}
