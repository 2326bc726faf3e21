//! An agent whose calls are probed, settled by a person and made once, whose result is kept by reference, and which has a
//! memory.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use backstop::clock::{Clock, SystemClock};
use backstop::error_store::Store;
use backstop::event_log::{InboxRequest, Settlement};
use backstop::layer0::error::BoxError;
use backstop::layer0::id::SessionId;
use backstop::react::{Memory, MemoryEntry, MemoryQuery};
use backstop::tool::Probe;
use backstop::{Agent, ResumeRequest, RunRequest, ToolContext, ToolError, tool};
use backstop_testkit::contract::{ActingRun, Ledger};
use serde_json::json;

use super::RUN;
use super::agents::{UNREADABLE, acting, agent, note};

async fn is_charged(context: &ToolContext) -> Result<Probe, ToolError> {
    note(context, "ask")?;
    Ok(Probe::happened_with(json!("charged")))
}

/// Charges, and loses the answer.
#[tool(probe = is_charged)]
async fn charge(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "charge")?;
    Err(ToolError::ExecutionFailed("no answer".into()))
}

/// Ships an order, once for each.
#[tool(once = "args.input")]
async fn ship(input: String, context: &ToolContext) -> Result<String, ToolError> {
    note(context, "ship")?;
    Ok(format!("shipped {input}"))
}

/// Files a paper, of which a person says that it happened before the tool does.
#[tool]
async fn file(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "file")?;
    let settlement = Settlement::call_happened("ops").with_output(json!("filed"));
    let (run, call) = (context.run.clone(), context.call_id.clone());
    let settle = InboxRequest::Settle { run, call, settlement };
    let sent = acting(context).log.send(settle, "ops", SystemClock.now()).await;
    sent.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?;
    pending().await
}

/// Answers more than a model reads at once.
#[tool(idempotent)]
async fn dump(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "dump")?;
    Ok("line ".repeat(5_000))
}

/// A memory whose uses count as acts.
struct Notes(Ledger);

#[async_trait]
impl Memory for Notes {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        self.0.act("recall");
        Ok(vec!["the customer is ada".into()])
    }
    async fn write(&self, _: MemoryEntry) -> Result<(), BoxError> {
        self.0.act("remember");
        Ok(())
    }
    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

/// The run of the agent.
pub(super) struct Careful;

impl Careful {
    const TURNS: &[&[&str]] =
        &[&["charge", "ship"], &["ship"], &["file"], &["dump"], &["get_tool_result"]];

    fn agent(stores: &Arc<dyn Store>, ledger: &Ledger) -> Agent {
        agent("careful", Self::TURNS, stores, ledger)
            .tool(charge)
            .tool(ship)
            .tool(file)
            .tool(dump)
            .memory(Notes(ledger.clone()))
            .build()
            .unwrap()
    }
}

#[async_trait]
impl ActingRun for Careful {
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let request = RunRequest::new("go").run(RUN.into());
        let outcome = Self::agent(&stores, &ledger).run(request).await;
        outcome.map(|it| it.text().to_owned()).map_err(|error| error.to_string())
    }
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String> {
        let outcome = Self::agent(&stores, &ledger).resume(ResumeRequest::new(RUN)).await;
        let outcome = outcome.map_err(|error| error.to_string())?;
        match outcome.text() {
            text if text.starts_with(UNREADABLE) => Err(text.to_owned()),
            text => Ok(text.to_owned()),
        }
    }
}
