//! How an agent is tested: a scripted model, real tools, and what is asserted.
//!
//! `cargo run -p backstop --example testing`; in a crate of your own, `main` is a `#[tokio::test]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use backstop::{MemoryLog, read_events, replay};
use serde_json::json;

/// Divide two integers.
#[tool(idempotent)]
async fn divide(x: i64, y: i64) -> Result<i64, ToolError> {
    x.checked_div(y).ok_or_else(|| ToolError::ExecutionFailed("division by zero".into()))
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::new(vec![
        ScriptedAnswer::calling("divide", json!({"x": 4, "y": 0})),
        ScriptedAnswer::saying("That cannot be done."),
    ]);
    let asked = model.requests();
    let log = std::sync::Arc::new(MemoryLog::new());
    let agent = Agent::builder(model).tool(divide).shared_log(log.clone()).build()?;

    let outcome = agent.run("What is 4 / 0?").await?;
    assert_eq!(outcome.stop, Stop::Completed, "a failing tool ends no run");
    let Some(read) = asked.all()[1].messages.messages().last().cloned() else { return Ok(()) };
    println!("the model read: {read:?}");
    let (_, events) = read_events(&*log, &outcome.run_id).await?;
    println!("{} events, and every decision follows from them", events.len());
    replay(&*log, &outcome.run_id).await?;
    Ok(())
}
