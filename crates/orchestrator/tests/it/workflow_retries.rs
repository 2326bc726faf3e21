//! Steps that are repeated when a workflow is retried.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::MemoryLog;
use backstop_orchestrator::{OnFailure, Parallel, Sequence};
use backstop_provider::{ErrorKind, ModelRequest, ScriptedAnswer, ScriptedProvider};
use backstop_react::Agent;
use backstop_retry::RetryConfig;
use layer0::Orchestrator;
use layer0::error::OperatorError;
use layer0::failure::{Effect, Facts, Failure, Retry};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use serde_json::Value;

use crate::agents::agent;
use crate::process::{Away, Lost, own, record, run_of};
use crate::tap::{Hook, Tap, recorded};
use crate::workflow_bounds::model_calls;
use crate::workflows::{dispatch, workflow};
use crate::{builder, on, start};

/// Spec: O5, R4.
#[tokio::test]
async fn unknown_effect_is_not_repeated_by_a_retry() {
    for in_a_workflow in [false, true] {
        let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
        let count = Arc::clone(&paid);
        let pays = own("pays", move |_, _| {
            let count = Arc::clone(&count);
            async move {
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(OperatorError::from_failure(Lost)),
                    _ => Ok(Answer::from_output("paid".into())),
                }
            }
        });
        let orchestrator = builder(&clock)
            .operator(pays)
            .operator(workflow(Sequence::new("line", ["pays"]), &clock, &log))
            .build()
            .unwrap();
        let name = if in_a_workflow { "line" } else { "pays" };
        let error = dispatch(&clock, &orchestrator, name, "invoice 7").await.unwrap_err();
        assert_eq!(error.code(), "tool.timeout");
        assert_eq!(
            paid.load(Ordering::SeqCst),
            1,
            "{name}: it may have acted, and is not idempotent"
        );
    }
}

/// Spec: O5, R4.
#[tokio::test]
async fn nested_workflows_do_not_repeat_an_unknown_effect() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let count = Arc::clone(&paid);
    let pays = own("pays", move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async move { Err(OperatorError::from_failure(Lost)) }
    });
    let orchestrator = builder(&clock)
        .operator(pays)
        .operator(workflow(Sequence::new("inner", ["pays"]), &clock, &log))
        .operator(workflow(Sequence::new("outer", ["inner"]), &clock, &log))
        .build()
        .unwrap();
    dispatch(&clock, &orchestrator, "outer", "invoice 7").await.unwrap_err();
    assert_eq!(paid.load(Ordering::SeqCst), 1, "it may have acted, and is not idempotent");
}

/// Spec: O5, O6.
#[tokio::test]
async fn fail_fast_can_be_tried_again() {
    let mut ends = Vec::new();
    for on_failure in [OnFailure::Collect, OnFailure::FailFast] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let left = Arc::new(AtomicU32::new(1));
        let away = Arc::clone(&left);
        let time = clock.clone();
        let shaky = own("shaky", move |_, _| {
            let (away, time) = (Arc::clone(&away), time.clone());
            async move {
                time.sleep(Duration::from_secs(1)).await;
                match away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1))
                {
                    Ok(_) => Err(OperatorError::from_failure(Away)),
                    Err(_) => Ok(Answer::from_output("up again".into())),
                }
            }
        });
        let slow = agent(&clock, &log, |_| ScriptedAnswer::saying("slow answer").delay_ms(60_000));
        let orchestrator = builder(&clock)
            .retry(RetryConfig::new().attempts(1))
            .operator(slow.name("slow").build().unwrap())
            .operator(shaky)
            .operator(workflow(
                Parallel::new("both", ["slow", "shaky"]).on_failure(on_failure),
                &clock,
                &log,
            ))
            .build()
            .unwrap();
        let answer = dispatch(&clock, &orchestrator, "both", "x").await;
        ends.push(answer.map(|it| it.stop == Stop::Completed).unwrap_or_default());
    }
    assert_eq!(ends, [true; 2], "nobody cancelled it");
}

/// Spec: O5, O6.
#[tokio::test]
async fn stopped_sibling_resumes_with_the_retry() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let left = AtomicU32::new(7);
    let shaky = agent(&clock, &log, move |_| {
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1)) {
            Ok(_) => ScriptedAnswer::failing(ErrorKind::Transient),
            Err(_) => ScriptedAnswer::saying("up again"),
        }
    });
    let slow = agent(&clock, &log, |_| ScriptedAnswer::saying("slow answer").delay_ms(120_000));
    let timeout = Duration::from_secs(600);
    let orchestrator = builder(&clock)
        .operator(slow.name("slow").attempt_timeout(timeout).build().unwrap())
        .operator(shaky.name("shaky").build().unwrap())
        .operator(workflow(Parallel::new("both", ["slow", "shaky"]), &clock, &log))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "both", "x").await;
    assert_ne!(
        answer.map_err(|it| it.code()).unwrap().stop,
        Stop::Cancelled,
        "nobody cancelled it"
    );
}

/// Spec: D12.
#[tokio::test]
async fn completed_run_is_not_opened_again() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let (runs, left) = (Arc::<AtomicU32>::default(), Arc::new(AtomicU32::new(1)));
    let shaky = || {
        let (runs, left) = (Arc::clone(&runs), Arc::clone(&left));
        own("shaky", move |_, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            let less =
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
            async move {
                match less {
                    Ok(_) => Err(OperatorError::from_failure(Away)),
                    Err(_) => Ok(Answer::from_output("up".into())),
                }
            }
        })
    };
    // The first process gives up; its run has failed.
    let once = RetryConfig::new().attempts(1);
    let first = builder(&clock)
        .retry(once)
        .reopen(once)
        .operator(shaky())
        .operator(workflow(Sequence::new("line", ["shaky"]), &clock, &log))
        .build()
        .unwrap();
    dispatch(&clock, &first, "line", "x").await.unwrap_err();
    let run = run_of(&log, "line").await;
    let other = builder(&clock)
        .operator(shaky())
        .operator(workflow(Sequence::new("line", ["shaky"]), &clock, &log))
        .build()
        .unwrap();
    // Two try it again; the other one is quicker.
    let mut tap = Tap::new(&log);
    let quicker: Hook = Box::new({
        let run = run.clone();
        move || -> futures_util::future::BoxFuture<'static, ()> {
            Box::pin(async move {
                let mut context = Context::root();
                (context.run, context.goes_on, context.is_recorded) = (Some(run), true, true);
                context.attempt = 2;
                let answer =
                    other.dispatch("line", Task::json(Value::Null), context).await.unwrap();
                assert_eq!(answer.stop, Stop::Completed);
            })
        }
    });
    (tap.at, tap.hook) = (1, Mutex::new(Some(quicker)));
    let late = builder(&clock)
        .operator(shaky())
        .operator(recorded(Sequence::new("line", ["shaky"]), &clock, tap))
        .build()
        .unwrap();
    let answer = on(&clock, async move {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(run), true, true);
        context.attempt = 2;
        late.dispatch("line", Task::json(Value::Null), context).await
    })
    .await;
    assert_eq!(answer.unwrap().stop, Stop::Completed);
    let events = record(&log, "line").await;
    let ends = events.iter().filter(|it| it.kind.event_type() == "run.finished").count();
    assert_eq!(ends, 1, "a completed run is not opened again");
}

/// Spec: R8, B1.
#[tokio::test]
async fn usage_of_all_attempts_counts() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let asked = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&asked);
    let model = ScriptedProvider::from_fn(move |_: &ModelRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        ScriptedAnswer::saying("said")
    });
    // An agent without a log.
    let talker = Agent::builder(model.with_clock(Arc::new(clock.clone())))
        .clock(Arc::new(clock.clone()))
        .name("talker")
        .build()
        .unwrap();
    let times = Arc::<AtomicU32>::default();
    let middle = own("middle", move |task, context| {
        let run = times.fetch_add(1, Ordering::SeqCst);
        async move {
            let answer = context.dispatch("talker", task).await?;
            match run {
                0 | 1 => Err(OperatorError::from_failure(Away)),
                _ => Ok(answer),
            }
        }
    });
    let orchestrator = builder(&clock)
        .operator(talker)
        .operator(middle)
        .operator(workflow(Sequence::new("line", ["middle"]), &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    context.allowance = Some(model_calls(2));
    let answer =
        on(&clock, async move { orchestrator.dispatch("line", Task::text("x"), context).await })
            .await;
    assert_eq!(answer.unwrap().stop, Stop::BudgetExhausted { reason: "budget.model_calls".into() });
    assert!(asked.load(Ordering::SeqCst) <= 2);
}

/// The failure of an order for an unknown article.
#[derive(Debug, thiserror::Error)]
#[error("no article")]
struct NoArticle;

impl Failure for NoArticle {
    fn facts(&self) -> Facts {
        Facts::never("shop.no_article", Effect::None)
    }
}

/// Spec: O6, E5. Live, and read from its record.
#[tokio::test]
async fn own_codes_survive_a_workflow() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let shop = own("shop", |_, _| async { Err(OperatorError::from_failure(NoArticle)) });
    let orchestrator = builder(&clock)
        .operator(shop)
        .operator(workflow(Sequence::new("line", ["shop"]), &clock, &log))
        .build()
        .unwrap();
    for operator in ["shop", "line"] {
        let error = dispatch(&clock, &orchestrator, operator, "rope").await.unwrap_err();
        assert_eq!(error.code(), "shop.no_article", "{operator}");
    }
    let run = run_of(&log, "line").await;
    let again = on(&clock, async move { orchestrator.resume("line", run).await }).await;
    assert_eq!(again.unwrap_err().code(), "shop.no_article");
}

/// Spec: O6, D3. A workflow is not started under the id of a run.
#[tokio::test]
async fn a_taken_id_starts_no_workflow() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let shop = own("shop", |_, _| async { Ok(Answer::from_output("sold".into())) });
    let orchestrator = builder(&clock)
        .operator(shop)
        .operator(workflow(Sequence::new("line", ["shop"]), &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    context.run = Some("order-7".into());
    let work = async move {
        let first = orchestrator.dispatch("line", Task::text("rope"), context.clone()).await;
        (first, orchestrator.dispatch("line", Task::text("rope"), context).await)
    };
    let (first, second) = on(&clock, work).await;
    assert!(first.is_ok());
    let error = second.unwrap_err();
    assert_eq!(
        (error.code(), error.retry(), error.effect()),
        ("run.exists", Retry::Never, Effect::None)
    );
}
