//! The memory of an agent that never ran.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use backstop::event_log::Log;
use backstop::{Agent, AgentBuilder, Database, Provider, ScriptedProvider, tool};

/// Adds.
#[tool]
async fn add(x: i64, y: i64) -> Result<i64, backstop::ToolError> {
    Ok(x + y)
}

/// Spec: S7. Stores in memory are there for every agent, and take next to nothing until something is
/// kept.
#[test]
fn an_idle_agent_stays_small() {
    let provider: Arc<dyn Provider> = Arc::new(ScriptedProvider::saying(["hello"]));
    let build = || AgentBuilder::from_shared(Arc::clone(&provider)).tool(add).build().unwrap();
    // Builds one agent first, so that one-time allocations do not count.
    drop(build());
    let mut agents: Vec<Agent> = Vec::with_capacity(100);
    let held = allocation_counter::measure(|| agents.extend((0..100).map(|_| build())));
    let each = held.bytes_current / 100;
    println!("{each} bytes");
    assert!(each <= 2_600, "{each} bytes");
}

/// Spec: S7, D1
#[tokio::test]
async fn one_database_keeps_everything() {
    let database = Database::in_memory().await.unwrap();
    let agent = Agent::builder(ScriptedProvider::saying(["hello"])).tool(add).store(&database);
    let outcome = agent.build().unwrap().run("hi").await.unwrap();
    assert!(database.log().summary(&outcome.run_id).await.unwrap().is_some());
}
