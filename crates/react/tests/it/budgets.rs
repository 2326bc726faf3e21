//! Usage of child runs within the budget of their caller.

use std::time::Duration;

use backstop_event_log::{RunFilter, Runs};
use backstop_provider::{ErrorKind, ScriptedAnswer};
use backstop_react::{Agent, Budget, Price, replay};
use backstop_tool::{ToolError, tool};
use layer0::event::EventKind;
use layer0::id::RunId;
use layer0::stop::Stop;
use layer0::usage::{TokenUsage, Usage};
use serde_json::json;

use crate::bench::*;

/// Looks once more.
#[tool(idempotent)]
async fn look(n: u32) -> Result<u32, ToolError> {
    Ok(n)
}

fn ask(id: &str, name: &str) -> backstop_provider::ScriptedToolCall {
    call(id, name, json!({"input": "go"}))
}

/// A model that looks at something new as often as it is let.
fn looks(times: u32) -> Vec<ScriptedAnswer> {
    let mut answers: Vec<_> =
        (0..times).map(|n| calls([call("l", "look", json!({ "n": n }))])).collect();
    answers.push(says("seen"));
    answers
}

fn billed(answer: ScriptedAnswer, input_tokens: u64, output_tokens: u64) -> ScriptedAnswer {
    answer.usage(TokenUsage::new(input_tokens, output_tokens))
}

fn child(bench: &Bench, name: &'static str, answers: Vec<ScriptedAnswer>) -> Agent {
    bench.agent(answers).name(name).tool(look).build().unwrap()
}

fn budget(change: impl FnOnce(&mut Budget)) -> Budget {
    let mut budget = Budget::default();
    change(&mut budget);
    budget
}

/// Returns the usage of a bench's runs, by agent, and checks that every record replays.
async fn used(bench: &Bench) -> Vec<(String, Usage)> {
    let mut used = Vec::new();
    for run in bench.log.runs(RunFilter::default()).await.unwrap() {
        replay(&*bench.log, &run.run).await.unwrap();
        let (summary, events) =
            backstop_event_log::read_events(&*bench.log, &run.run).await.unwrap();
        let mut folded = backstop_event_log::RunSummary::new(run.run.clone());
        events.iter().for_each(|event| folded.apply(event));
        assert_eq!(folded, summary, "the row is the fold of the events");
        used.push((run.agent.to_string(), run.usage));
    }
    used.sort_by(|one, other| one.0.cmp(&other.0));
    used
}

/// Spec: B1, B2, O2
#[tokio::test]
async fn child_stays_within_its_callers_budget() {
    let bench = Bench::new();
    let child = child(&bench, "child", looks(10));
    let answers = vec![calls([ask("c", "child")]), says("done")];
    let parent = bench
        .agent(answers)
        .name("parent")
        .tool(child.as_tool("Looks."))
        .budget(budget(|budget| budget.max_model_calls = Some(3)));
    let outcome = bench.run(parent).await.unwrap();
    assert_eq!(outcome.text(), "done", "one call stays with the caller");
    assert_eq!(outcome.usage.model_attempts, 3);
    let texts = tool_texts(&outcome);
    assert!(texts[0].0.contains("Code budget.model_calls"), "{texts:?}");

    let used = used(&bench).await;
    assert_eq!(used[0].1.model_attempts, 1, "the child's");
    assert_eq!(used[1].1, outcome.usage, "the parent's, with the child's in it");
    let events = bench.events(&outcome.run_id).await;
    let kinds = types(&events);
    let at = |kind| kinds.iter().position(|other| *other == kind).unwrap();
    assert_eq!(at("operator.dispatched"), at("tool.requested") + 1);
    assert_eq!(at("tool.responded"), at("operator.returned") + 2, "the error is stored between");
    let EventKind::OperatorDispatched(dispatched) = &events[at("operator.dispatched")].kind else {
        panic!("it is one")
    };
    assert_eq!(dispatched.allowance.model_calls, Some(1));
    let child_events = bench.events(&dispatched.run).await;
    let EventKind::RunStarted(started) = &child_events[0].kind else { panic!("it starts") };
    assert_eq!(started.allowance.as_ref(), Some(&dispatched.allowance));
    assert_eq!((started.depth, started.machine), (1, 2));
    assert_eq!(
        (started.run.as_ref(), started.root.as_ref()),
        (Some(&dispatched.run), Some(&outcome.run_id))
    );
    let deadline = started.deadline.expect("the caller's time is bounded");
    assert_eq!(deadline, events[0].at.after(Duration::from_secs(30 * 60)));
}

/// Spec: B1, B2. Every dimension, and a run two levels down.
#[tokio::test]
async fn every_budget_holds_for_all_below() {
    type Check = fn(&Usage) -> bool;
    let cases: [(&str, Budget, Check); 6] = [
        ("model_calls", budget(|b| b.max_model_calls = Some(6)), |u| u.model_attempts <= 6),
        ("tool_calls", budget(|b| b.max_tool_calls = Some(5)), |u| u.tool_calls <= 5),
        // One answer may cross it, and no attempt follows.
        ("input_tokens", budget(|b| b.max_input_tokens = Some(100)), |u| u.input_tokens <= 130),
        ("output_tokens", budget(|b| b.max_output_tokens = Some(20)), |u| u.output_tokens <= 24),
        ("total_tokens", budget(|b| b.max_total_tokens = Some(100)), |u| u.total_tokens <= 134),
        ("cost", budget(|b| b.max_cost_usd = Some(0.0001)), |u| {
            u.cost_usd.is_some_and(|cost| cost <= 0.000_134)
        }),
    ];
    let price = Price::new(1.0, 1.0);
    for (dimension, budget, holds) in cases {
        let bench = Bench::new();
        let billed = |answers: Vec<ScriptedAnswer>| {
            answers.into_iter().map(|answer| billed(answer, 30, 4)).collect::<Vec<_>>()
        };
        let grandchild = bench
            .agent(billed(looks(20)))
            .name("a grandchild")
            .price(price)
            .tool(look)
            .build()
            .unwrap();
        let mut answers = vec![calls([ask("g", "a grandchild")])];
        answers.extend(looks(20));
        let child = bench
            .agent(billed(answers))
            .name("b child")
            .price(price)
            .tool(look)
            .tool(grandchild.as_tool("Looks."))
            .build()
            .unwrap();
        let mut answers = vec![calls([ask("c", "b child")])];
        answers.extend(looks(20));
        let parent = bench
            .agent(billed(answers))
            .name("c parent")
            .price(price)
            .budget(budget)
            .tool(look)
            .tool(child.as_tool("Asks."));
        let outcome = bench.run(parent).await.unwrap();
        assert!(matches!(outcome.stop, Stop::BudgetExhausted { .. }), "{dimension}: {outcome:?}");
        assert!(holds(&outcome.usage), "{dimension}: {:?}", outcome.usage);
        let used = used(&bench).await;
        assert_eq!(used.len(), 3, "{dimension}");
        assert_eq!(used[2].1, outcome.usage, "{dimension}");
        assert!(used[2].1.model_attempts > used[1].1.model_attempts, "{dimension}");
        assert!(used[1].1.model_attempts > used[0].1.model_attempts, "{dimension}");
    }
}

/// Spec: B1, O2. Those of one batch share what is left; with nothing left, and nothing else below that could
/// give some back, they end as exhausted.
#[tokio::test]
async fn dispatches_of_one_batch_share_what_is_left() {
    let bench = Bench::new();
    let twins = [child(&bench, "one", looks(5)), child(&bench, "two", looks(5))];
    let answers = vec![calls([ask("c1", "one"), ask("c2", "two")]), says("done")];
    let [one, two] = twins.map(|twin| twin.as_tool("Looks."));
    let parent = bench
        .agent(answers)
        .name("parent")
        .tool(one)
        .tool(two)
        .budget(budget(|budget| budget.max_model_calls = Some(10)));
    let outcome = bench.run(parent).await.unwrap();
    assert_eq!(outcome.usage.model_attempts, 10);
    let events = bench.events(&outcome.run_id).await;
    let dispatches: Vec<_> =
        types(&events).into_iter().filter(|kind| kind.starts_with("operator.")).collect();
    assert_eq!(
        dispatches,
        [["operator.dispatched"; 2], ["operator.waiting"; 2], ["operator.returned"; 2],].concat()
    );
    let given = events.iter().filter_map(|event| match &event.kind {
        EventKind::OperatorDispatched(dispatched) => Some(dispatched.allowance.model_calls),
        _ => None,
    });
    assert_eq!(given.collect::<Vec<_>>(), [Some(4), Some(4)]);
    let granted = events.iter().filter_map(|event| match &event.kind {
        EventKind::BudgetGranted(granted) => Some(granted.allowance.is_none()),
        _ => None,
    });
    assert_eq!(granted.collect::<Vec<_>>(), [true, true], "nothing was left");
    let used = used(&bench).await;
    let attempts: Vec<_> = used.iter().map(|(_, usage)| usage.model_attempts).collect();
    assert_eq!(attempts, [4, 10, 4], "of the first, of all, of the second");
    for run in bench.log.runs(RunFilter::default()).await.unwrap() {
        replay(&*bench.log, &run.run).await.unwrap();
    }
}

/// Spec: B1, O2. What one gives back is there for the other.
#[tokio::test]
async fn what_a_sibling_gives_back_is_granted() {
    let bench = Bench::new();
    let quick = child(&bench, "one", vec![says("found")]);
    let long = child(&bench, "two", looks(6));
    let answers = vec![calls([ask("c1", "one"), ask("c2", "two")]), says("done")];
    let parent = bench
        .agent(answers)
        .name("parent")
        .tool(quick.as_tool("Looks."))
        .tool(long.as_tool("Looks."))
        .budget(budget(|budget| budget.max_model_calls = Some(10)));
    let outcome = bench.run(parent).await.unwrap();
    let used = used(&bench).await;
    let attempts: Vec<_> = used.iter().map(|(_, usage)| usage.model_attempts).collect();
    assert_eq!(attempts, [1, outcome.usage.model_attempts, 7]);
    let texts = tool_texts(&outcome);
    assert!(texts.iter().all(|(_, is_error)| !is_error), "{texts:?}");
    for run in bench.log.runs(RunFilter::default()).await.unwrap() {
        replay(&*bench.log, &run.run).await.unwrap();
    }
}

/// Spec: O2. The call is answered with the budget's code, and the run goes on.
#[tokio::test]
async fn a_dispatch_with_nothing_left_does_not_start() {
    for (limit, price, reason) in [
        (budget(|b| b.max_model_calls = Some(2)), None, "budget.model_calls"),
        (budget(|b| b.max_cost_usd = Some(1.0)), Some(Price::new(1.0, 1.0)), "orch.price_unknown"),
    ] {
        let bench = Bench::new();
        let child = child(&bench, "child", looks(1));
        let answers = vec![calls([ask("c", "child")]), says("done")];
        let mut parent =
            bench.agent(answers).name("parent").tool(child.as_tool("Looks.")).budget(limit);
        if let Some(price) = price {
            parent = parent.price(price);
        }
        let outcome = bench.run(parent).await.unwrap();
        assert_eq!(outcome.text(), "done", "{reason}");
        let texts = tool_texts(&outcome);
        assert!(texts[0].0.contains(&format!("Code {reason}: not started:")), "{texts:?}");
        assert_eq!(used(&bench).await.len(), 1, "{reason}: no run began");
    }
}

/// Spec: B1. Of time, a child has what is left of its caller's.
#[tokio::test]
async fn child_ends_with_its_callers_deadline() {
    let bench = Bench::new();
    let slow = vec![says("late").delay_ms(60_000)];
    let child = bench.agent(slow).name("child").build().unwrap();
    let tool = child.as_tool("Is slow.").timeout(Duration::from_secs(100));
    let first = calls([ask("c", "child")]).delay_ms(4_000);
    let parent = bench
        .agent(vec![first, says("done")])
        .name("parent")
        .tool(tool)
        .budget(budget(|budget| budget.max_wall_ms = Some(10_000)));
    let outcome = bench.run(parent).await.unwrap();
    assert_eq!(outcome.stop.reason(), Some("budget.wall_time".into()));
    assert_eq!(bench.elapsed(), Duration::from_secs(10));
    // The attempt that was cut counts on both sides.
    assert_eq!(outcome.usage.model_attempts, 2);
    let used = used(&bench).await;
    assert_eq!((used[0].1.model_attempts, used[0].1.wall_ms), (1, 6_000));
    assert_eq!(used[1].1, outcome.usage);
}

/// Spec: B1, B3. A child that is given up counts with what it used until it had closed its record.
#[tokio::test]
async fn a_child_that_is_given_up_counts() {
    let bench = Bench::new();
    let answers = || vec![says("late").delay_ms(60_000)];
    let child = bench.agent(answers()).name("child").build().unwrap();
    let tool = child.as_tool("Is slow.").timeout(Duration::from_secs(5));
    let parent =
        bench.agent(vec![calls([ask("c", "child")]), says("done")]).name("parent").tool(tool);
    let outcome = bench.run(parent).await.unwrap();
    assert!(tool_texts(&outcome)[0].0.starts_with("Tool 'child' timed out after 5s"));
    assert_eq!(outcome.usage.model_attempts, 3);
    let events = bench.events(&outcome.run_id).await;
    let returned = events.iter().find_map(|event| match &event.kind {
        EventKind::OperatorReturned(returned) => Some(returned.clone()),
        _ => None,
    });
    assert_eq!(returned.unwrap().reason, Some("budget.wall_time".into()));
    assert_eq!(used(&bench).await[1].1, outcome.usage);
}

/// Spec: B2, T8. A runtime retry of a tool is an execution, and never one too many.
#[tokio::test]
async fn retries_of_a_tool_count_as_executions() {
    /// Fails, and says how long to wait.
    #[tool(idempotent)]
    async fn flaky() -> Result<u32, ToolError> {
        Err(ToolError::ExecutionFailed("busy".into())
            .with_retry(layer0::failure::Retry::After(Duration::from_millis(5))))
    }
    for (limit, executions) in [(200, 6), (5, 5), (3, 3)] {
        let bench = Bench::new();
        let two = [call("c1", "flaky", json!({})), call("c2", "flaky", json!({}))];
        let parent = bench
            .agent(vec![calls(two), says("done")])
            .tool(flaky)
            .budget(budget(|budget| budget.max_tool_calls = Some(limit)));
        let outcome = bench.run(parent).await.unwrap();
        assert_eq!(outcome.usage.tool_calls, executions, "of {limit}");
        let events = bench.events(&outcome.run_id).await;
        let begun = types(&events)
            .into_iter()
            .filter(|kind| ["tool.requested", "tool.attempted"].contains(kind))
            .count();
        assert_eq!(begun, usize::try_from(executions).unwrap(), "of {limit}");
        assert_eq!(used(&bench).await[0].1, outcome.usage);
    }
}

/// Spec: B2. Tokens are looked at before a retry and before another provider is asked.
#[tokio::test]
async fn tokens_are_looked_at_before_every_attempt() {
    let fails = || billed(fails(ErrorKind::Transient), 40, 10);
    for with_fallback in [false, true] {
        let bench = Bench::new();
        let first = if with_fallback {
            vec![billed(self::fails(ErrorKind::QuotaExhausted), 100, 0)]
        } else {
            vec![fails(); 9]
        };
        let mut agent = bench
            .agent(first)
            .budget(budget(|budget| budget.max_input_tokens = Some(80)))
            .retry(backstop_retry::RetryConfig::new().attempts(9));
        if with_fallback {
            agent = agent.fallback(backstop_provider::ScriptedProvider::saying(["never asked"]));
        }
        let outcome = bench.run(agent).await.unwrap();
        assert_eq!(outcome.stop.reason(), Some("budget.input_tokens".into()));
        assert_eq!(outcome.usage.model_attempts, if with_fallback { 1 } else { 2 });
    }
}

/// Spec: D5, B2. What a child used before the process died counts after it.
#[tokio::test]
async fn a_child_that_died_with_its_caller_counts() {
    let bench = Bench::new();
    let _time_stands_still = bench.clock.hold();
    let answers =
        vec![calls([call("l", "look", json!({"n": 1}))]), says("late").delay_ms(60_000_000)];
    let child = child(&bench, "child", answers);
    let parent = |answers| bench.agent(answers).name("parent").tool(child.as_tool("Is slow."));
    let first = parent(vec![calls([ask("c", "child")])]).build().unwrap();
    let run = RunId::from("run_parent");
    let request = backstop_react::RunRequest::new("go").run(run.clone());
    let task = tokio::spawn(async move { first.run(request).await });
    let is_at_work = async || {
        let runs = bench.log.runs(RunFilter::default()).await.unwrap();
        let child = runs.iter().find(|run| &*run.agent == "child");
        child.is_some_and(|child| child.usage.model_calls == 2)
    };
    while !is_at_work().await {
        tokio::task::yield_now().await;
    }
    task.abort();
    let _ = task.await;
    let again = parent(vec![says("done")]).build().unwrap();
    let outcome = again.resume(run.clone()).await.unwrap();
    assert_eq!(outcome.text(), "done");
    // Two of the caller, and those in the child's record.
    assert!(outcome.usage.model_attempts >= 3, "{:?}", outcome.usage);
    assert_eq!(outcome.usage.tool_calls, 2, "the call and what the child ran");
    let events = bench.events(&run).await;
    let kinds = types(&events);
    let at = |kind| kinds.iter().position(|other| *other == kind).unwrap();
    assert!(at("operator.returned") > at("run.recovered"), "its record says how it ended");
    assert!(matches!(replay(&*bench.log, &run).await, Ok(Some(_))));
}
