//! The record of a workflow decides: by whom it can be resumed, how long, and as what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{MemoryLog, current_agent};
use layer0::Orchestrator;
use layer0::failure::Failure;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::json;

use crate::process::{died, own, record, resume, run_of};
use crate::workflows::{dispatch, echo, payer, steps, types, workflow};
use crate::{builder, on, start};

/// Spec: O6. An answer is that of the operator that was asked.
#[tokio::test]
async fn run_of_another_operator_answers_nothing() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let code =
        |name| {
            let code = own(name, |task, context| async move {
                context.step("one").dispatch("echo", task).await
            });
            workflow(code, &clock, &log)
        };
    let process = builder(&clock)
        .operator(echo("echo", &clock, &log))
        .operator(echo("mirror", &clock, &log))
        .operator(code("one"))
        .operator(code("two"))
        .build()
        .unwrap();
    let run = dispatch(&clock, &process, "one", "go").await.unwrap().run.unwrap();
    let agent = run_of(&log, "echo").await;
    let other_agent = dispatch(&clock, &process, "mirror", "go").await.unwrap().run.unwrap();
    for (operator, other) in [("two", &run), ("two", &agent), ("echo", &other_agent)] {
        let refused = resume(&clock, &process, operator, other.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "replay.diverged", "{operator}");
    }
    assert!(resume(&clock, &process, "one", run).await.is_ok());
}

/// Spec: O6. A step is asked with its images, schema and history, too.
#[tokio::test]
async fn task_of_a_step_is_recorded_whole() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |way: u32| {
        let code = own("own", move |task: Task, context: Context| async move {
            let task = match way {
                1 => task.output_schema(json!({"type": "object"})),
                2 => task.with_history(),
                _ => task,
            };
            context.step("pay").dispatch("payer", task).await
        });
        builder(&clock)
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(code, &clock, &log))
            .build()
            .unwrap()
    };
    let run = dispatch(&clock, &process(0), "own", "go").await.unwrap().run.unwrap();
    for changed in [1, 2] {
        let refused = resume(&clock, &process(changed), "own", run.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "replay.diverged", "{changed}");
    }
    let same = resume(&clock, &process(0), "own", run).await.unwrap();
    assert_eq!(same.stop, Stop::WaitingApproval);
}

/// Spec: J2w, O6. A process that dies before the code is known to fit leaves the run to the code that began it.
#[tokio::test]
async fn misfit_definition_is_never_recorded() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |steps: [&'static str; 2]| {
        let line = backstop_orchestrator::Sequence::new("both", steps);
        builder(&clock)
            .operator(echo("echo", &clock, &log))
            .operator(echo("other", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(line, &clock, &log))
            .build()
            .unwrap()
    };
    let run = dispatch(&clock, &process(["echo", "payer"]), "both", "go").await.unwrap().run;
    let (run, before) = (run.unwrap(), types(&record(&log, "both").await).len());
    let (other, of) = (process(["echo", "other"]), run.clone());
    let misfit = on(&clock, async move {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(of), true, true);
        context.adopts = true;
        other.dispatch("both", Task::text(""), context).await
    });
    assert_eq!(misfit.await.unwrap_err().code(), "replay.diverged");
    let events = record(&log, "both").await;
    let adopting = events.iter().filter(|it| match &it.kind {
        layer0::event::EventKind::RunResumed(resumed) => resumed.agent.is_some(),
        _ => false,
    });
    assert_eq!(adopting.count(), 0, "{:?}", types(&events[before..]));
    assert!(current_agent(&events).unwrap().definition.get().contains("payer"));
    let still = resume(&clock, &process(["echo", "payer"]), "both", run).await.unwrap();
    assert_eq!(still.stop, Stop::WaitingApproval);
}

/// Spec: O2, O6. Code whose time had passed before its process died begins no further step.
#[tokio::test]
async fn resumed_workflow_past_its_time_begins_nothing() {
    let (clock, log, begun) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |log: &Arc<MemoryLog>| {
        let begun = Arc::clone(&begun);
        let slow = {
            let clock = clock.clone();
            own("slow", move |_, _| {
                let clock = clock.clone();
                async move {
                    clock.sleep(Duration::from_secs(60)).await;
                    Ok(Answer::from_output("slow".into()))
                }
            })
        };
        let next = own("next", move |_, _| {
            begun.fetch_add(1, Ordering::SeqCst);
            async { Ok(Answer::from_output("next".into())) }
        });
        let code = own("own", |task, context| async move {
            drop(context.step("slow").dispatch("slow", task.clone()).await);
            context.step("next").dispatch("next", task).await
        });
        builder(&clock)
            .operator(slow)
            .operator(next)
            .operator(workflow(code, &clock, log))
            .build()
            .unwrap()
    };
    let first = process(&log);
    let mut context = Context::root();
    context.deadline = Some(clock.now().after(Duration::from_secs(3)));
    let late = on(&clock, async move { first.dispatch("own", Task::text("x"), context).await });
    assert_eq!(late.await.unwrap().stop.reason().unwrap(), *"budget.wall_time");
    let rest = died(&log, "own", |it| it.kind.event_type() == "operator.returned").await;
    let resumed = resume(&clock, &process(&rest), "own", run_of(&rest, "own").await).await;
    assert_eq!(resumed.unwrap().stop.reason().unwrap(), *"budget.wall_time");
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    let events = record(&rest, "own").await;
    assert_eq!(steps(&events), [("own/slow", "slow")]);
}
