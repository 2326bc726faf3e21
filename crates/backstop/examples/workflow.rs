//! A workflow that waits is left, and taken up by `cargo run -p backstop --example workflow` again.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::{env, sync::Arc};

use backstop::layer0::operator::{Context, Task};
use backstop::prelude::*;
use backstop::{Durability, Orchestrator, Sequence, Workflow, event_log::Inbox};

/// Pay an invoice.
#[tool(approval)]
async fn pay() -> Result<&'static str, ToolError> {
    Ok("paid")
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let path = env::args_os().nth(1).map_or_else(|| env::temp_dir().join("flow.db"), Into::into);
    let store = Database::open(&path, Durability::Normal).await?;
    let (log, mut context) = (Arc::new(store.log()), Context::root());
    context.run = Some("run_flow".into());
    let waiting = log.open_approvals().await?;
    let model = ScriptedProvider::calling("pay", serde_json::json!({}), "R-7 is paid.");
    let model = model.starting_at(waiting.len());
    let payer = Agent::builder(model).name("payer").tool(pay).store(&store).build()?;
    let model = ScriptedProvider::saying(["R-7 is due."]);
    let clerk = Agent::builder(model).name("clerk").store(&store).build()?;
    let flow = Workflow::new(Sequence::new("invoices", ["clerk", "payer"]), log);
    let operators = LocalOrchestrator::builder().operator(clerk).operator(payer.clone());
    let (operators, task) = (operators.operator(flow).build()?, Task::text("Is R-7 due?"));
    let Some(approval) = waiting.first() else {
        println!("{:?}", operators.dispatch("invoices", task, context).await?.stop);
        return Ok(());
    };
    payer.approve(&approval.id, "ada").await?;
    println!("{}", operators.resume("invoices", "run_flow".into()).await?.output);
    Ok(())
}
