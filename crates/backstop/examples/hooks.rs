//! Hooks: a gate that may say no to a call. The model reads why, and the run goes on.
//! `cargo run -p backstop --example hooks`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use backstop::prelude::*;
use backstop::{BoxError, Gate, GateVerdict, HookContext, HookPoint, Moment, async_trait};
use serde_json::json;

struct OfficeHours;

#[async_trait]
impl Gate for OfficeHours {
    fn name(&self) -> &str {
        "office hours"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTool]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let sends = matches!(moment, Moment::BeforeTool { call, .. } if &*call.name == "send");
        Ok(if sends { GateVerdict::Abort("not at night".into()) } else { GateVerdict::Continue })
    }
}

/// Send a message.
#[tool]
async fn send(text: String) -> Result<String, ToolError> {
    Ok(format!("sent: {text}"))
}

#[tokio::main]
async fn main() -> Result<(), backstop::Error> {
    let model = ScriptedProvider::calling("send", json!({"text": "wake up"}), "Tomorrow, then.");
    let agent = Agent::builder(model).tool(send).gate(OfficeHours).build()?;
    println!("{}", agent.run("Wake them up.").await?.text());
    Ok(())
}
