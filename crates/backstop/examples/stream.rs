//! A run that is printed as it goes on.
//!
//! Run it with `cargo run -p backstop --example stream`. It needs no key: the model is a script.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use serde_json::json;

/// Add two integers.
#[tool(idempotent, timeout = "5s")]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    x.checked_add(y).ok_or_else(|| ToolError::ExecutionFailed("the sum is too large".into()))
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::calling("add", json!({"x": 40, "y": 2}), "It is 42.");
    let agent = Agent::builder(model).tool(add).build()?;
    let outcome = agent.stream("What is 40 + 2?").print().await?;
    eprintln!("{} tool call", outcome.usage.tool_calls);
    Ok(())
}
