//! Several agents of one server.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::EventLog;
use backstop_mcp_server::{Offer, Server};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::ScriptedProvider;
use backstop_react::Agent;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};

use crate::bench::{Bench, call, connect, shown};

/// Serves the agent of the bench next to `cook`, both with records in one log.
fn both(bench: &Bench) -> Server {
    let log = Arc::clone(&bench.log) as Arc<dyn EventLog>;
    let cook = Agent::builder(ScriptedProvider::saying(["soup"])).name("cook");
    let cook = cook.shared_log(Arc::clone(&log)).build().unwrap();
    let orchestrator =
        LocalOrchestrator::builder().operator(bench.clerk()).operator(cook).shared_log(log);
    Server::new(orchestrator.build().unwrap())
        .offer(Offer::new("clerk", "Does what it is told."))
        .offer(Offer::new("cook", "Cooks."))
        .answer_within(Duration::from_millis(200))
}

/// Spec: Q10. A run is one of its own agent alone, whether it is at work, over, or known by its record.
#[tokio::test]
async fn run_is_not_shown_by_another_agent() {
    let bench = Bench::new();
    let client = connect(both(&bench)).await;
    let (_, _, at_work) = call(&client, json!({"input": "hang"})).await;
    let (_, _, over) = call(&client, json!({"input": "the clerk's secret"})).await;
    let others = connect(both(&bench)).await;
    for (client, run, code) in [
        (&client, &at_work, "input.invalid"),
        (&client, &over, "input.invalid"),
        (&others, &over, "replay.diverged"),
    ] {
        let run = &run["run"];
        let arguments = json!({"run": run}).as_object().cloned().unwrap();
        let asked = CallToolRequestParams::new("cook").with_arguments(arguments);
        let (is_error, text, said) = shown(client.call_tool(asked).await.unwrap());
        assert!(is_error, "{text}");
        assert_eq!(said["error"]["code"], code, "{text}");
        assert!(!text.contains("secret") && said["output"] == Value::Null, "{said}");
    }
    let (is_error, text, _) = call(&client, json!({"run": over["run"]})).await;
    assert_eq!((is_error, text.as_str()), (false, "did: the clerk's secret"));
}
