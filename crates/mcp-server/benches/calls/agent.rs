//! The calls as an agent makes them: a scripted model, a log in memory, and one run of so many turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_mcp::McpClient;
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, Budget, Limits};
use layer0::stop::Stop;

use crate::{CALLS, input};

/// Makes an agent that calls the server's tool so often.
pub(crate) fn of(server: &Arc<McpClient>) -> Agent {
    let calls = AtomicU32::new(0);
    let model = ScriptedProvider::from_fn(move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        call if call < CALLS => ScriptedAnswer::calling("bench__echo", input(call)),
        _ => ScriptedAnswer::saying("done"),
    });
    let mut limits = Limits::default();
    limits.max_iterations = CALLS + 1;
    let mut budget = Budget::default();
    budget.max_model_calls = None;
    budget.max_tool_calls = None;
    budget.max_events = None;
    let agent = Agent::builder(model).tool_source(Arc::clone(server) as _);
    let agent = agent.grant("process:spawn").grant("network:outbound:127.0.0.1");
    agent.limits(limits).budget(budget).build().expect("the agent can be built")
}

/// Has it make its calls.
pub(crate) async fn run(agent: &Agent) {
    let outcome = agent.run("go").await.expect("the run ends");
    assert_eq!((outcome.stop, outcome.usage.tool_calls), (Stop::Completed, CALLS));
}
