//! Bounds of what the steps of a workflow use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::MemoryLog;
use backstop_orchestrator::{OnFailure, Parallel, Sequence};
use backstop_provider::ScriptedAnswer;
use backstop_react::{Budget, OperatorTool};
use layer0::Orchestrator;
use layer0::operator::{Context, Task};
use layer0::usage::Allowance;
use serde_json::json;

use crate::agents::{agent, has_answers, pay};
use crate::process::own;
use crate::workflows::{named, workflow};
use crate::{builder, on, start};

pub(crate) fn model_calls(count: u32) -> Allowance {
    let mut allowance = Allowance::without_bounds();
    allowance.model_calls = Some(count);
    allowance
}

/// Spec: B1.
#[tokio::test]
async fn task_bounds_a_root_of_any_kind() {
    let mut used = Vec::new();
    for name in ["talker", "line", "plain", "plain2"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let n = AtomicU32::new(0);
        let talker = agent(&clock, &log, move |_| match n.fetch_add(1, Ordering::SeqCst) {
            9 => ScriptedAnswer::saying("done"),
            at => ScriptedAnswer::calling("pay", json!({ "at": at })),
        });
        let paid = Arc::<AtomicU32>::default();
        let talker = talker.name("talker").tool(pay).state(paid).build().unwrap();
        let orchestrator = builder(&clock)
            .operator(talker)
            .operator(workflow(Sequence::new("line", ["talker"]), &clock, &log))
            .operator(Sequence::new("plain", ["talker"]))
            .operator(Sequence::new("plain2", ["quick", "talker"]))
            .operator(named("quick").0)
            .build()
            .unwrap();
        let task = Task::text("x").allowance(model_calls(2));
        let answer =
            on(&clock, async move { orchestrator.dispatch(name, task, Context::root()).await })
                .await;
        let answer = answer.unwrap();
        used.push(answer.usage.model_attempts);
    }
    assert!(used.iter().all(|used| *used <= 2), "{used:?}");
}

/// Spec: B1.
#[tokio::test]
async fn step_gets_no_more_than_its_task_allows() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let n = AtomicU32::new(0);
    let talker = agent(&clock, &log, move |_| {
        let at = n.fetch_add(1, Ordering::SeqCst);
        ScriptedAnswer::calling("pay", json!({ "at": at }))
    });
    let talker = talker.name("talker").tool(pay).state(Arc::<AtomicU32>::default());
    let code = own("own", |task, context| async move {
        context.step("talk").dispatch("talker", task.allowance(model_calls(2))).await
    });
    let orchestrator = builder(&clock)
        .operator(talker.build().unwrap())
        .operator(workflow(code, &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    context.allowance = Some(model_calls(20));
    let answer =
        on(&clock, async move { orchestrator.dispatch("own", Task::text("x"), context).await })
            .await;
    let answer = answer.unwrap();
    assert_eq!(answer.usage.model_attempts, 2);
}

/// Spec: B1.
#[tokio::test]
async fn steps_that_want_more_do_not_hang() {
    for way in ["workflow", "plain", "below an agent"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let talker = |name: &'static str| {
            let n = AtomicU32::new(0);
            let talker = agent(&clock, &log, move |_| {
                let at = n.fetch_add(1, Ordering::SeqCst);
                ScriptedAnswer::calling("pay", json!({ "at": at }))
            });
            talker.name(name).tool(pay).state(Arc::<AtomicU32>::default()).build().unwrap()
        };
        let both = || Parallel::new("both", ["left", "right"]).on_failure(OnFailure::Collect);
        let lead = agent(&clock, &log, |request| match has_answers(request) {
            true => ScriptedAnswer::saying("done"),
            false => ScriptedAnswer::calling("both", json!({ "input": "go" })),
        });
        let lead = lead
            .name("lead")
            .budget(Budget::new().model_calls(12).wall(Duration::from_secs(600)))
            .tool(OperatorTool::new("both", "Asks both."))
            .build()
            .unwrap();
        let orchestrator =
            builder(&clock).operator(talker("left")).operator(talker("right")).operator(lead);
        let orchestrator = match way {
            "plain" => orchestrator.operator(both()),
            _ => orchestrator.operator(workflow(both(), &clock, &log)),
        };
        let orchestrator = orchestrator.build().unwrap();
        let (name, allowance) =
            if way == "below an agent" { ("lead", None) } else { ("both", Some(model_calls(4))) };
        let mut context = Context::root();
        context.allowance = allowance;
        let began = clock.now();
        let answer =
            on(&clock, async move { orchestrator.dispatch(name, Task::text("x"), context).await });
        answer.await.unwrap();
        assert!(clock.now().since(began) < Duration::from_secs(60), "{way}");
    }
}
