//! Copies of a run whose tools answer from its record (SPEC D7).

use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::Decision;
use backstop_react::{ForkRequest, RecordedTools, RunOutcome};
use backstop_tool::{FnTool, ToolError};
use layer0::event::{EventKind, ToolResponded};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, on, says, tool_texts};

fn tool(name: &str) -> FnTool {
    FnTool::new(name, "Works.", |_: Value| async { Ok::<_, ToolError>("done") }).map_spec(
        |mut spec| {
            spec.schema =
                json!({ "type": "object", "properties": { "sum": { "type": "number" } } }).into();
            spec
        },
    )
}

fn tools(bench: &Bench) -> Vec<FnTool> {
    let clock = bench.clock.clone();
    let slow = FnTool::new("slow", "Sleeps.", move |_: Value| {
        let clock = clock.clone();
        async move {
            clock.sleep(Duration::from_secs(600)).await;
            Ok::<_, ToolError>("late")
        }
    });
    let large = FnTool::new("large", "Tells much.", |_: Value| async {
        Ok::<_, ToolError>(json!({ "rows": vec!["x".repeat(40); 1_000] }))
    });
    let fails = FnTool::new("fails", "Fails.", |_: Value| async {
        Err::<&str, _>(
            ToolError::ExecutionFailed("no such row\nlong story".into()).with_code("SQL"),
        )
    });
    let large = large.map_spec(|mut spec| {
        let rows = json!({ "type": "object", "properties": { "rows": { "type": "array" } }, "required": ["rows"] });
        spec.output_schema = Some(rows.into());
        spec
    });
    let any = |tool: FnTool| {
        tool.map_spec(|mut spec| {
            spec.schema = json!({ "type": "object" }).into();
            spec
        })
    };
    let asked = |name: &str| tool(name).map_spec(layer0::ToolSpec::approval);
    vec![tool("pay"), any(slow), any(large), any(fails), asked("denied"), asked("changed")]
}

async fn answers(bench: &Bench, outcome: &RunOutcome) -> Vec<ToolResponded> {
    let events = bench.events(&outcome.run_id).await;
    let mut answers: Vec<_> = events
        .into_iter()
        .filter_map(|event| match event.kind {
            EventKind::ToolResponded(answer) => Some(answer),
            _ => None,
        })
        .collect();
    answers.sort_by(|one, other| one.call_id.cmp(&other.call_id));
    answers
}

/// Spec: D7, T13. Each answer is the recorded fact, those of tools that are not here and of people too.
#[tokio::test]
async fn copies_get_the_recorded_answers() {
    let bench = Bench::new();
    let names = ["pay", "slow", "large", "fails", "denied", "changed"];
    let asks = |sum: Value| {
        let calls_of = names.iter().enumerate();
        calls(calls_of.map(|(at, name)| call(&format!("c{at}"), name, json!({ "sum": sum }))))
    };
    let model = |sum: Value| vec![asks(sum), says("done")];
    let agent = bench.agent(model(json!(7.5)));
    let agent = tools(&bench).into_iter().fold(agent, |agent, tool| agent.tool(tool));
    let agent = agent.build().unwrap();
    let first = agent.clone();
    let waiting = on(&bench, async move { first.run("input").await }).await.unwrap();
    assert_eq!(waiting.approvals.len(), 2);
    for approval in &waiting.approvals {
        let decision = match &*approval.tool {
            "denied" => Decision::deny("ops", "no"),
            _ => Decision::approve("ops").with_arguments(json!({ "sum": 1 })),
        };
        agent.decide(&approval.id, decision).await.unwrap();
    }
    let run = waiting.run_id.clone();
    let original = on(&bench, async move { agent.resume(run).await }).await.unwrap();
    let recorded = RecordedTools::from_events(&bench.events(&original.run_id).await);

    // The agent has none of the recorded tools, and a new one.
    let copy = bench.agent(model(json!(7.50))).tool(tool("new")).require_approval("new");
    let copy = copy.recorded_tools(recorded).build().unwrap();
    let fork = ForkRequest::new(original.run_id.clone(), 1);
    let fork = on(&bench, async move { copy.fork(fork).await }).await.unwrap();
    assert_eq!(fork.stop, Stop::Completed, "nobody is asked");
    let (of_original, of_fork) = (answers(&bench, &original).await, answers(&bench, &fork).await);
    assert_eq!(of_original.len(), names.len());
    assert_eq!(of_original, of_fork);
    assert_eq!(tool_texts(&original), tool_texts(&fork));
    let codes: Vec<_> =
        of_fork.iter().map(|it| it.error.as_ref().map(|it| it.reason.as_str())).collect();
    let denied = Some("tool.approval_denied");
    let expected = [None, Some("tool.timeout"), None, Some("tool.execution_failed"), denied, None];
    assert_eq!(codes, expected);
}

/// Spec: D7
#[tokio::test]
async fn calls_without_a_record_are_unavailable() {
    let bench = Bench::new();
    let ask = |sum: Value| vec![calls([call("c1", "pay", json!({ "sum": sum }))]), says("done")];
    let original = bench.run(bench.agent(ask(json!(1))).tool(tool("pay"))).await.unwrap();
    let recorded = RecordedTools::from_events(&bench.events(&original.run_id).await);
    for (sum, told) in [(json!(1.0), "done"), (json!(2), "Tool 'pay' is not available")] {
        let copy = bench.agent(ask(sum)).recorded_tools(recorded.clone()).build().unwrap();
        let fork = ForkRequest::new(original.run_id.clone(), 1);
        let fork = on(&bench, async move { copy.fork(fork).await }).await.unwrap();
        assert!(tool_texts(&fork)[0].0.starts_with(told), "{:?}", tool_texts(&fork));
    }
}
