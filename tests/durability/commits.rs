//! What storing errors costs a run in commits.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock, VirtualClock};
use backstop_error_store::{ErrorFilter, ErrorStore};
use backstop_provider::{ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::Agent;
use backstop_store_sqlite::{Database, Durability};
use backstop_tool::{ToolError, tool};
use serde_json::json;

/// Fails with a long text.
#[tool]
async fn broken(number: u32) -> Result<u32, ToolError> {
    Err(ToolError::ExecutionFailed(format!("boom {number}\n{}", "trace\n".repeat(100))))
}

/// Runs an agent whose tool fails `turns` times `calls_per_turn`, and returns the commits of its run.
async fn commits(database: &Database, turns: u32, calls_per_turn: u32, stores: bool) -> u64 {
    let call = |turn: u32, place: u32| {
        let number = turn * calls_per_turn + place;
        let arguments = json!({ "number": number });
        ScriptedToolCall::new(format!("c{number}"), "broken", arguments)
    };
    let turn = |turn: u32| {
        ScriptedAnswer::default().tool_calls((0..calls_per_turn).map(|place| call(turn, place)))
    };
    let mut answers: Vec<_> = (0..turns).map(turn).collect();
    answers.push(ScriptedAnswer::saying("done"));

    // Nothing here waits, so time stands still.
    let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let _hold = clock.hold();
    let mut agent = Agent::builder(ScriptedProvider::new(answers))
        .clock(Arc::new(clock.clone()))
        .tool(broken)
        .log(database.log());
    if stores {
        agent = agent.error_store(database.errors());
    }
    let before = database.commits();
    agent.build().unwrap().run("input").await.unwrap();
    database.commits() - before
}

/// Waits until nothing is written in the background.
async fn come_to_rest(database: &Database) {
    loop {
        let before = database.commits();
        SystemClock.sleep(Duration::from_millis(200)).await;
        if database.commits() == before {
            return;
        }
    }
}

/// Spec: S12
#[tokio::test]
async fn failed_call_costs_one_commit_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        async |name| Database::open(folder.path().join(name), Durability::Normal).await.unwrap();
    let (with, without) = (open("with.db").await, open("without.db").await);
    // The first error prunes in the background, which no run pays for.
    commits(&with, 1, 1, true).await;
    come_to_rest(&with).await;
    come_to_rest(&without).await;
    for (turns, calls_per_turn) in [(1, 1), (12, 1), (4, 8)] {
        let calls = u64::from(turns * calls_per_turn);
        let stored = commits(&with, turns, calls_per_turn, true).await;
        let logged = commits(&without, turns, calls_per_turn, false).await;
        assert!((logged + 1..=logged + calls).contains(&stored), "{stored}, {logged}, {calls}");
    }
    assert_eq!(with.errors().list(ErrorFilter::default()).await.unwrap().len(), 1 + 1 + 12 + 32);
}
