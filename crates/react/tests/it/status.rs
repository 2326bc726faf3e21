//! A run as it is now.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{Erasures, EventLog, LogError, MemoryLog, RunState, RunWriter, Seed};
use backstop_react::{Budget, Price, ResumeError, RunStatus, status};
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::event::{Actor, AgentRecord, RunStarted};
use layer0::id::RunId;
use layer0::{JsonText, Timestamp, ToolSpec};
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

/// Spec: D4, D11. A definition that this version does not know is not taken for an empty one.
#[tokio::test]
async fn an_unknown_definition_is_no_default() {
    let bench = Bench::new();
    let begun = async |run: &str, definition: serde_json::Value| {
        let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
        let definition = JsonText::from(definition);
        let digest = backstop_event_log::text_digest(definition.get());
        let started = RunStarted::new("go", run.into(), AgentRecord::new("a", digest, definition));
        let mut writer = RunWriter::new(log, run.into());
        writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, started.into());
        writer.commit().await.unwrap();
    };
    begun("run_1", json!({ "budget": "some" })).await;
    let refused = status(&*bench.log, &RunId::from("run_1")).await;
    assert!(matches!(refused, Err(LogError::UnreadableRun { .. })), "{refused:?}");
    begun("run_2", json!("an agent")).await;
    let agent = bench.agent(vec![]).build().unwrap();
    let Err(ResumeError::Diverged(diverged)) = agent.replay(&RunId::from("run_2")).await else {
        panic!("it is another agent")
    };
    assert!(diverged.actual.to_string().contains("invalid type"), "{diverged:?}");
    // Without an agent to compare, it is a record that cannot be read.
    let unread = backstop_react::replay(&*bench.log, &RunId::from("run_2")).await;
    assert!(matches!(unread, Err(ResumeError::Log(LogError::Unreadable { .. }))), "{unread:?}");
}

/// Spec: D4, D1
#[tokio::test]
async fn erased_event_leaves_a_status() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("done")];
    let outcome = bench.run(bench.agent(answers).tool(add)).await.unwrap();
    let before = status(&*bench.log, &outcome.run_id).await.unwrap().unwrap();
    let erased = before.recent[3].seq;
    bench.log.erase(&outcome.run_id, erased).await.unwrap();
    let after = status(&*bench.log, &outcome.run_id).await.unwrap().unwrap();
    let mut expected = before.recent;
    expected.remove(3);
    assert_eq!(after.recent, expected);
}
