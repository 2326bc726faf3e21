//! A call that waits until a person agrees.
//!
//! `cargo run -p backstop --example approval`: the run waits, is approved, and goes on.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use backstop::{MemoryLog, ResumeRequest};
use serde_json::json;

/// Pay an invoice.
#[tool(approval)]
async fn pay(invoice: String, euros: u64) -> Result<String, ToolError> {
    Ok(format!("paid {euros} euros for {invoice}"))
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let arguments = json!({"invoice": "R-7", "euros": 120});
    let model = ScriptedProvider::calling("pay", arguments, "R-7 is paid.");
    let agent = Agent::builder(model).tool(pay).log(MemoryLog::new()).build()?;

    let waiting = agent.run("Pay R-7.").await?;
    for approval in &waiting.approvals {
        println!("{} waits: {} {}", approval.id, approval.tool, approval.arguments);
        agent.approve(&approval.id, "ada").await?;
    }
    let outcome = agent.resume(ResumeRequest::new(waiting.run_id)).await?;
    println!("{}", outcome.text());
    Ok(())
}
