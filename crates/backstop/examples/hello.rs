//! The first program: a model, a tool, and what happens when it fails.
//!
//! Run it with `cargo run -p backstop --example hello`. It needs no key: the model is a script.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::{Agent, ScriptedProvider, ToolError};
use serde_json::json;

/// Add two integers.
#[backstop::tool(idempotent, timeout = "5s")]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::calling("add", json!({"x": 40, "y": 2}), "It is 42.");
    let agent = Agent::builder(model).tool(add).build()?;
    match agent.run("What is 40 + 2?").await {
        Ok(outcome) => println!("{}", outcome.text()), // completed, or stopped with a reason
        Err(failure) => eprintln!("{}: {failure:#}", failure.code()), // usage and partial work inside
    }
    Ok(())
}
