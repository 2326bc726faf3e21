//! An agent that is another agent's tool: what the inner one uses counts for the outer one.
//!
//! `cargo run -p backstop --example sub_agent`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let lawyer = Agent::builder(ScriptedProvider::saying(["Clause 4 says 30 days."]))
        .name("lawyer")
        .instructions("You know the contracts.")
        .build()?;

    let model = ScriptedProvider::calling(
        "lawyer",
        json!({"input": "How long do they have to pay?"}),
        "They have 30 days.",
    );
    let clerk = Agent::builder(model)
        .name("clerk")
        .tool(lawyer.as_tool("Answers what is in the contracts."))
        .budget(Budget::new().model_calls(10))
        .build()?;

    let outcome = clerk.run("When is it due?").await?;
    println!("{} ({} model calls)", outcome.text(), outcome.usage.model_calls);
    Ok(())
}
