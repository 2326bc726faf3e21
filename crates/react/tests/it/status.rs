//! A run as it is now.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{MemoryLog, RunState};
use backstop_react::{Budget, Price, RunStatus, status};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::id::RunId;
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::bench::*;

/// Looks at the run that calls it.
#[derive(Clone)]
struct Looks(ToolSpec, Arc<MemoryLog>, Arc<Mutex<Vec<RunStatus>>>);

#[async_trait]
impl Tool for Looks {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }
    async fn call(&self, _: &Arguments, context: &ToolContext) -> Result<JsonText, ToolError> {
        let seen = status(&*self.1, &context.run).await.unwrap().expect("it runs");
        self.2.lock().unwrap().push(seen);
        Ok(JsonText::string("seen"))
    }
}

/// Spec: D4. What is durable is shown, while the run goes on and when it is over.
#[tokio::test]
async fn a_status_is_what_is_durable() {
    let bench = Bench::new();
    let spec = ToolSpec::new("look", "Looks.", json!({"type": "object"}));
    let looks = Looks(spec, bench.log.clone(), Arc::default());
    let budget = Budget::new().model_calls(7);
    let answers = vec![
        calls([call("c1", "look", json!({}))]),
        calls([call("c2", "broken", json!({"how": "long"}))]),
        says("done"),
    ];
    let agent = bench
        .agent(answers)
        .tool(looks.clone())
        .tool(broken)
        .budget(budget)
        .price(Price::new(1.0, 2.0))
        .shared_log(bench.log.clone())
        .build()
        .unwrap();
    let outcome = agent.run("go").await.unwrap();
    let during = looks.2.lock().unwrap().remove(0);
    assert_eq!(during.summary.state, RunState::Running);
    assert_eq!(types(&during.recent).last(), Some(&"tool.requested"));
    assert_eq!((during.summary.usage.model_calls, during.summary.usage.tool_calls), (1, 1));
    assert_eq!(during.budget.max_model_calls, Some(7));

    let after = agent.status(&outcome.run_id).await.unwrap().unwrap();
    assert_eq!(after.summary.state, RunState::Finished);
    assert_eq!(after.summary.usage, outcome.usage);
    assert!(after.summary.usage.cost_usd.is_some());
    let failure = after.summary.last_failure.unwrap();
    assert_eq!(failure.code.as_str(), "tool.execution_failed");
    let events = bench.events(&outcome.run_id).await;
    assert_eq!(after.recent, events[events.len() - 10..]);
    assert_eq!(agent.status(&RunId::from("run_none")).await.unwrap(), None);
}
