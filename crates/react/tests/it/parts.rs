//! Parts that an application combines.

use std::time::Duration;

use backstop_event_log::{RunFilter, Runs};
use backstop_provider::ErrorKind;
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::EventKind;
use serde_json::json;

use crate::bench::*;

/// Spec: T1
#[tokio::test]
async fn tools_reach_what_the_application_gave_them() {
    /// Greets.
    #[tool]
    async fn greet(context: &ToolContext) -> Result<String, ToolError> {
        Ok(format!("hello {}", context.state::<String>().map_or("nobody", String::as_str)))
    }
    let bench = Bench::new();
    let answers = || vec![calls([call("c1", "greet", json!({}))]), says("done")];
    let outcome =
        bench.run(bench.agent(answers()).tool(greet).state("Ada".to_owned())).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "hello Ada");
    let outcome = bench.run(bench.agent(answers()).tool(greet)).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "hello nobody");
}

/// Spec: O1, E5
#[tokio::test]
async fn an_agent_is_a_tool_of_another_one() {
    let bench = Bench::new();
    let expert = bench.agent(vec![says("42")]).name("expert").build().unwrap();
    let poor = bench.agent(vec![fails(ErrorKind::QuotaExhausted)]).name("broken").build().unwrap();
    let cut = says("half an").stop_reason(layer0::message::StopReason::MaxTokens);
    let short = bench.agent(vec![cut]).name("short").build().unwrap();
    let ask = |id: &str, name: &str| call(id, name, json!({"input": "What is it?"}));
    let answers =
        vec![calls([ask("c1", "expert"), ask("c2", "broken"), ask("c3", "short")]), says("done")];
    let agent = bench
        .agent(answers)
        .tool(expert.as_tool("Knows."))
        .tool(poor.as_tool("Does not know."))
        .tool(short.as_tool("Knows half.").timeout(Duration::from_secs(5)));
    let outcome = bench.run(agent).await.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0], ("42".into(), false));
    assert!(
        texts[1].0.starts_with("Tool 'broken' failed: Code provider.quota_exhausted: run `run_"),
        "{}",
        texts[1].0
    );
    assert!(texts[2].0.contains("Code model.max_tokens: stopped before the end"), "{}", texts[2].0);

    let runs = bench.log.runs(RunFilter::new().session(outcome.session)).await.unwrap();
    assert_eq!(runs.len(), 4, "sub-runs share the session");
    let events = bench.events(&runs.iter().find(|run| &*run.agent == "expert").unwrap().run).await;
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("it starts") };
    assert_eq!(started.parent.as_ref(), Some(&outcome.run_id));
}

/// Spec: B1, O2, O4. An agent that would be too deep does not start.
#[tokio::test]
async fn an_agent_deeper_than_its_budget_does_nothing() {
    let bench = Bench::new();
    let budget = backstop_react::Budget::new().depth(1);
    let ask = |name: &'static str| calls([call("c", name, json!({"input": "and you?"}))]);
    let third =
        bench.agent(vec![says("never asked")]).name("third").budget(budget).build().unwrap();
    let second = bench
        .agent(vec![ask("third"), says("nobody below")])
        .name("second")
        .tool(third.as_tool("Is deeper."))
        .build()
        .unwrap();
    let first = bench.agent(vec![ask("second"), says("done")]).tool(second.as_tool("Is deep."));
    let outcome = bench.run(first).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "nobody below");
    let runs = bench.log.runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 2, "the third never started");
    let second = runs.iter().find(|run| &*run.agent == "second").unwrap();
    let events = bench.events(&second.run).await;
    assert!(!types(&events).contains(&"operator.dispatched"));
    let answers = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => answer.error.as_ref(),
        _ => None,
    });
    let codes: Vec<_> = answers.map(|error| error.code.as_deref().unwrap_or_default()).collect();
    assert_eq!(codes, ["orch.depth"]);
    let deep = bench.agent(vec![says("never asked")]).budget(budget).build().unwrap();
    let request = backstop_react::RunRequest::new("go").depth(2);
    assert_eq!(deep.run(request).await.unwrap_err().code(), "orch.depth");
}
