//! An agent that does the actions of a task with the tools of an airline, which another process serves.

use std::sync::Arc;
use std::time::Duration;

use backstop::layer0::id::RunId;
use backstop::layer0::stop::Stop;
use backstop::react::ResumeRequest;
use backstop::{
    Agent, Limits, McpServer, RetryConfig, RunRequest, ScriptedAnswer, ScriptedProvider,
};
use serde_json::{Value, json};

use crate::kept::Kept;
use crate::{Deadly, Failed};

/// The variables that name the server, and the actions: a list of objects with `name` and `arguments`.
const URL: &str = "AIRLINE_URL";
const ACTIONS: &str = "AIRLINE_ACTIONS";

/// Does what is left of the actions; `answered` of them were asked for before.
pub(crate) async fn act(
    database: Kept,
    log: Deadly,
    run: RunId,
    answered: usize,
    goes_on: bool,
) -> Result<Stop, Failed> {
    let server = McpServer::url("airline", std::env::var(URL)?).connect().await?;
    let actions: Vec<Value> = serde_json::from_str(&std::env::var(ACTIONS)?)?;
    let ask = |(place, action): (usize, &Value)| {
        let name = format!("airline__{}", action["name"].as_str().unwrap_or_default());
        json!({"tool_calls": [
            {"id": format!("c{place}"), "name": name, "arguments": action["arguments"]},
        ]})
    };
    let mut answers: Vec<Value> = actions.iter().enumerate().map(ask).collect();
    answers.push(json!({"text": "done"}));
    let answers: Vec<ScriptedAnswer> = serde_json::from_value(answers.into())?;
    let mut limits = Limits::default();
    limits.max_iterations = 100;
    let agent = Agent::builder(ScriptedProvider::new(answers).starting_at(answered))
        .name("clerk")
        .limits(limits)
        .retry(RetryConfig::new().base(Duration::ZERO).cap(Duration::ZERO))
        .grant("network:outbound:127.0.0.1")
        .tool_source(Arc::clone(&server) as _)
        .log(log)
        .build()?;
    let outcome = match goes_on {
        false => agent.run(RunRequest::new("go").run(run)).await?,
        true => agent.resume(ResumeRequest::new(run)).await?,
    };
    database.close().await;
    Ok(outcome.stop)
}
