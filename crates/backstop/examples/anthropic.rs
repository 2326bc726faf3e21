//! A model of Anthropic and a tool, and what happens when they fail.
//!
//! Run it with `cargo run -p backstop --example anthropic`. It needs a key in `ANTHROPIC_API_KEY`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::{Agent, Anthropic, ToolError};

/// Add two integers.
#[backstop::tool(idempotent, timeout = "5s")]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = Anthropic::from_env("claude-sonnet-4-5")?.build()?;
    let agent = Agent::builder(model).tool(add).build()?;
    match agent.run("What is 40 + 2?").await {
        Ok(outcome) => println!("{}", outcome.text()), // completed, or stopped with a reason
        Err(failure) => eprintln!("{}: {failure:#}", failure.code()), // usage and partial work inside
    }
    Ok(())
}
