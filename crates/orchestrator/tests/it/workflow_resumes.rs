//! Resumed workflows give the answers of undisturbed ones.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{EventLog, Inbox, MemoryLog};
use backstop_orchestrator::{OnFailure, Parallel, Sequence};
use backstop_redact::Redactor;
use layer0::Operator;
use layer0::Orchestrator;
use layer0::error::OperatorError;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::parked::{HOUR, busy};
use crate::process::{died, own, resume, run_of};
use crate::workflow_bounds::model_calls;
use crate::workflows::{Hanging, dispatch, echo, payer, workflow};
use crate::{builder, on, start};

/// Spec: O6.
#[tokio::test]
async fn resume_knows_that_its_task_is_idempotent() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let times = Arc::<AtomicU32>::default();
    let process = |log: &Arc<MemoryLog>| {
        let times = Arc::clone(&times);
        let look = own("look", move |_, _| {
            times.fetch_add(1, Ordering::SeqCst);
            async move { Ok(Answer::from_output("looked".into())) }
        });
        builder(&clock)
            .operator(look)
            .operator(workflow(Sequence::new("line", ["look"]), &clock, log))
            .build()
            .unwrap()
    };
    let first = process(&log);
    let task = Task::text("x").idempotent();
    let live = on(&clock, async move { first.dispatch("line", task, Context::root()).await }).await;
    assert_eq!(live.unwrap().output, "looked");
    let log = died(&log, "line", |it| it.kind.event_type() == "operator.dispatched").await;
    let resumed = resume(&clock, &process(&log), "line", run_of(&log, "line").await).await;
    assert_eq!(resumed.unwrap().output, "looked", "the task was idempotent");
}

/// Spec: O6.
#[tokio::test]
async fn resume_knows_that_its_task_reads_history() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let process = |log: &Arc<MemoryLog>| {
        let seen = Arc::clone(&seen);
        let code = own("own", move |task, context| {
            seen.lock().unwrap().push((task.history, task.idempotent));
            async move { context.step("one").dispatch("echo", task).await }
        });
        builder(&clock)
            .operator(echo("echo", &clock, log))
            .operator(workflow(code, &clock, log))
            .build()
            .unwrap()
    };
    let first = process(&log);
    let task = Task::text("x").with_history().idempotent();
    on(&clock, async move { first.dispatch("own", task, Context::root()).await }).await.unwrap();
    let log = died(&log, "own", |it| it.kind.event_type() == "run.started").await;
    resume(&clock, &process(&log), "own", run_of(&log, "own").await).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen[0], seen[1]);
}

/// Spec: O5, D11. The process that resumes a run does not know what its task allowed.
#[tokio::test]
async fn resume_knows_how_long_its_run_may_park() {
    for (name, last) in [("busy", "model.requested"), ("line", "run.started")] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let process = |log: &Arc<MemoryLog>, times| {
            builder(&clock)
                .operator(busy(&clock, log, times).build().unwrap())
                .operator(workflow(Sequence::new("line", ["busy"]), &clock, log))
                .build()
                .unwrap()
        };
        let first = process(&log, 0);
        let task = Task::text("x").max_park(2 * HOUR);
        let live = async move { first.dispatch(name, task, Context::root()).await.unwrap() };
        on(&clock, live).await;
        let log = died(&log, name, |it| it.kind.event_type() == last).await;
        let (began, next) = (clock.monotonic(), process(&log, 1));
        let resumed = resume(&clock, &next, name, run_of(&log, name).await).await;
        assert_eq!(resumed.unwrap().output, "I am back.", "{name}: it was parked");
        assert!(clock.monotonic() - began >= HOUR, "{name}");
    }
}

/// Spec: O6.
#[tokio::test]
async fn redacted_answer_is_told_as_recorded() {
    const SECRET: &str = "sk-4716203958aa";
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |log: &Arc<MemoryLog>| {
        let fetch = own("fetch", |_, _| async {
            Ok(Answer::from_output(json!({"url": format!("https://x/?key={SECRET}")})))
        });
        let line = workflow(Sequence::new("line", ["fetch", "use"]), &clock, log)
            .redactor(Redactor::new().with_secret(SECRET));
        builder(&clock)
            .operator(fetch)
            .operator(echo("use", &clock, log))
            .operator(line)
            .build()
            .unwrap()
    };
    drop(dispatch(&clock, &process(&log), "line", "x").await);
    // The process dies while the second step, which keeps a record, is running.
    let log = died(
        &log,
        "line",
        |it| matches!(&it.kind, EventKind::OperatorDispatched(it) if &*it.operator == "use"),
    )
    .await;
    let resumed = resume(&clock, &process(&log), "line", run_of(&log, "line").await).await;
    assert!(resumed.is_ok(), "the same code goes on with its own record");
}

/// Spec: O6.
#[tokio::test]
async fn refused_step_reads_the_same_after_a_resume() {
    struct Picky;
    #[async_trait]
    impl Operator for Picky {
        fn name(&self) -> &str {
            "picky"
        }
        fn can_go_on(&self) -> bool {
            true
        }
        fn input_schema(&self) -> Option<&Value> {
            static SCHEMA: std::sync::LazyLock<Value> =
                std::sync::LazyLock::new(|| json!({"type": "object"}));
            Some(&SCHEMA)
        }
        async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
            unreachable!()
        }
    }
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |log: &Arc<MemoryLog>| {
        let code = own("own", |task, context| async move {
            let both = Parallel::new("both", ["picky", "fine"]).on_failure(OnFailure::Collect);
            let ends = both.run(task, &context).await?;
            context.step("sum").dispatch("sum", Task::json(ends.output)).await
        });
        builder(&clock)
            .operator(Picky)
            .operator(echo("fine", &clock, log))
            .operator(echo("sum", &clock, log))
            .operator(workflow(code, &clock, log))
            .build()
            .unwrap()
    };
    drop(dispatch(&clock, &process(&log), "own", "x").await);
    let log = died(
        &log,
        "own",
        |it| matches!(&it.kind, EventKind::OperatorDispatched(it) if &*it.operator == "sum"),
    )
    .await;
    let resumed = resume(&clock, &process(&log), "own", run_of(&log, "own").await).await;
    assert!(resumed.is_ok(), "the same code goes on with its own record");
}

/// Spec: O3, O6.
#[tokio::test]
async fn refusal_for_want_of_budget_is_recorded() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |log: &Arc<MemoryLog>| {
        let code = own("own", |task, context| async move {
            let (one, two) = futures_util::future::join(
                context.step("one").dispatch("one", task.clone()),
                context.step("two").dispatch("two", task),
            )
            .await;
            let said = |end: Result<Answer, OperatorError>| match end {
                Ok(answer) => answer.output,
                Err(error) => error.code().into(),
            };
            let ends = json!([said(one), said(two)]);
            context.step("sum").dispatch("sum", Task::json(ends)).await
        });
        let quiet =
            |name| own(name, move |_, _| async move { Ok(Answer::from_output(name.into())) });
        builder(&clock)
            .operator(quiet("one"))
            .operator(quiet("two"))
            .operator(echo("sum", &clock, log))
            .operator(workflow(code, &clock, log))
            .build()
            .unwrap()
    };
    let orchestrator = process(&log);
    let mut context = Context::root();
    context.allowance = Some(model_calls(1));
    let live =
        on(&clock, async move { orchestrator.dispatch("own", Task::text("x"), context).await })
            .await;
    let log = died(
        &log,
        "own",
        |it| matches!(&it.kind, EventKind::OperatorDispatched(it) if &*it.operator == "sum"),
    )
    .await;
    let resumed = resume(&clock, &process(&log), "own", run_of(&log, "own").await).await;
    assert_eq!(resumed.unwrap().output, live.unwrap().output);
}

/// Spec: O6.
#[tokio::test]
async fn diverging_code_leaves_an_open_step_alone() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |is_changed: bool| {
        let code = own("own", move |task, context| async move {
            let second = if is_changed { "draft" } else { "other" };
            let (one, two) = futures_util::future::join(
                context.step("pay").dispatch("payer", task.clone()),
                async {
                    let draft = context.step("draft").dispatch("draft", task).await?;
                    context.step("then").dispatch(second, Task::json(draft.output)).await
                },
            )
            .await;
            two?;
            one
        });
        builder(&clock)
            .operator(echo("draft", &clock, &log))
            .operator(echo("other", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(code, &clock, &log))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let answer = dispatch(&clock, &process(false), "own", "go").await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
    let run = answer.run.unwrap();
    let error = resume(&clock, &process(true), "own", run.clone()).await.unwrap_err();
    assert_eq!(error.code(), "replay.diverged");
    let again = resume(&clock, &process(false), "own", run).await.unwrap();
    assert_eq!(again.stop, Stop::WaitingApproval);
    assert_eq!(log.open_approvals().await.unwrap().len(), 1, "what waits still does");
}

/// Spec: O6.
#[tokio::test]
async fn fail_fast_ends_the_same_after_a_death() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let process = |log: &Arc<MemoryLog>| {
        let listens = own("listens", |_, context| async move {
            std::future::poll_fn(|cx| context.signals.poll_has(Signal::CANCEL, cx)).await;
            let mut answer = Answer::from_output("".into());
            answer.stop = Stop::Cancelled;
            Ok(answer)
        });
        let time = clock.clone();
        let bad = own("bad", move |_, _| {
            let time = time.clone();
            async move {
                time.sleep(Duration::from_secs(1)).await;
                Err(OperatorError::NonRetryable("the tank is empty".to_owned()))
            }
        });
        builder(&clock)
            .operator(listens)
            .operator(bad)
            .operator(Hanging)
            .operator(workflow(Parallel::new("all", ["listens", "bad", "hanging"]), &clock, log))
            .build()
            .unwrap()
    };
    drop(dispatch(&clock, &process(&log), "all", "x").await);
    let log = died(
        &log,
        "all",
        |it| matches!(&it.kind, EventKind::OperatorReturned(it) if &*it.operator == "listens"),
    )
    .await;
    let resumed = resume(&clock, &process(&log), "all", run_of(&log, "all").await).await;
    assert_eq!(resumed.map_err(|it| it.code()).unwrap_err(), "operator.non_retryable");
}
