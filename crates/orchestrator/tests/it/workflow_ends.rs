//! Workflows that end while their steps begin, wait or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Inbox, Log, MemoryLog, RunFilter, RunWriter, Runs, Seed};
use backstop_orchestrator::Sequence;
use backstop_provider::{ErrorKind, ScriptedAnswer};
use backstop_redact::Redactor;
use backstop_retry::RetryConfig;
use layer0::error::OperatorError;
use layer0::event::{Actor, EventKind, RunRecovered, RunResumed, SignalReceived};
use layer0::failure::Failure;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::{Outcome, Stop};
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};

use crate::agents::agent;
use crate::workflows::{Hanging, dispatch, echo, events_of, named, payer, steps, types, workflow};
use crate::{builder, on, start};

type Code = dyn Fn(Task, Context) -> Work + Send + Sync;
type Work = std::pin::Pin<Box<dyn Future<Output = Result<Answer, OperatorError>> + Send>>;

/// An operator that runs a closure.
struct Own(Box<Code>);

fn own<W>(code: impl Fn(Task, Context) -> W + Send + Sync + 'static) -> Own
where
    W: Future<Output = Result<Answer, OperatorError>> + Send + 'static,
{
    Own(Box::new(move |task, context| Box::pin(code(task, context))))
}

#[async_trait]
impl Operator for Own {
    fn name(&self) -> &str {
        "own"
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        (self.0)(task, context.clone()).await
    }
}

/// Spec: O6. A run that waits, and that another process cancels, leaves no step open: also one that its code
/// has not asked for again.
#[tokio::test]
async fn cancelled_elsewhere_closes_what_waits() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = || {
        builder(&clock)
            .operator(echo("draft", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(Sequence::new("line", ["draft", "payer"]), &clock, &log))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap()
    };
    let answer = dispatch(&clock, &process(), "line", "go").await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
    let (other, id) = (process(), WorkflowId::new(answer.run.unwrap().as_str()));
    on(&clock, async move { other.signal(&id, Signal::cancel()).await }).await.unwrap();
    assert!(!log.runs(RunFilter::new().agent("line")).await.unwrap()[0].is_open());
    assert!(!log.runs(RunFilter::new().agent("payer")).await.unwrap()[0].is_open());
    assert!(log.open_approvals().await.unwrap().is_empty());
    let events = events_of(&log, "line").await;
    let returned = types(&events).iter().filter(|it| **it == "operator.returned").count();
    assert_eq!(returned, 2, "{:?}", types(&events));
}

/// Spec: O6, O3. A step that its code gave up before its dispatch was durable never was.
#[tokio::test]
async fn step_given_up_at_once_is_not_recorded() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let code = own(|task, context| async move {
        let (good, bad) = (context.step("good"), context.step("bad"));
        let good = good.dispatch("good", task.clone());
        let bad = bad.dispatch("nowhere", task);
        let bad = std::pin::pin!(bad);
        let good = std::pin::pin!(good);
        match futures_util::future::select(good, bad).await {
            futures_util::future::Either::Left((answer, _))
            | futures_util::future::Either::Right((answer, _)) => answer,
        }
    });
    let (good, runs) = named("good");
    let orchestrator =
        builder(&clock).operator(good).operator(workflow(code, &clock, &log)).build().unwrap();
    let error = dispatch(&clock, &orchestrator, "own", "x").await.unwrap_err();
    assert_eq!(error.code(), "orch.operator_not_found");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    let recorded = types(&events_of(&log, "own").await);
    assert_eq!(recorded, ["run.started", "operator.refused", "run.failed"]);
}

/// Spec: S9. What a workflow is asked, told and answered stands in its record without the keys of objects, the
/// names and the numbers that spell a secret.
#[tokio::test]
async fn records_hold_no_secret_in_any_place() {
    const SECRET: &str = "4716203958";
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let code = own(|task, context| async move {
        let answer = context.step("first").dispatch("keys", task).await?;
        context.step("second").dispatch("keys", Task::json(answer.output)).await
    });
    let recorded = workflow(code, &clock, &log).redactor(Redactor::new().with_secret(SECRET));
    let orchestrator = builder(&clock).operator(Keys).operator(recorded).build().unwrap();
    let task = Task::json(json!({ SECRET: [SECRET, 4_716_203_958_u64] }));
    let context = Context::root();
    context.signals.push(Signal::new(SECRET, json!({ SECRET: 4_716_203_958_u64 })));
    on(&clock, async move { orchestrator.dispatch("own", task, context).await }).await.unwrap();
    let events = events_of(&log, "own").await;
    assert_eq!(types(&events).iter().filter(|it| **it == "signal.received").count(), 1);
    assert_eq!(steps(&events).len(), 2);
    for event in events {
        let line = serde_json::to_string(&event).unwrap();
        assert!(!line.contains(SECRET), "{line}");
    }
}

/// Answers with an object that has its input as a key, and as a value.
struct Keys;

#[async_trait]
impl Operator for Keys {
    fn name(&self) -> &str {
        "keys"
    }
    async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
        let asked = task.input.to_string();
        Ok(Answer::from_output(json!({ asked: task.input })))
    }
}

/// Spec: O6. Code that goes on after it was told that it diverged changes nothing either.
#[tokio::test]
async fn ignored_divergence_changes_nothing() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let process = |is_changed: bool| {
        let code = own(move |task, context| async move {
            let first = if is_changed { "other" } else { "draft" };
            let answer = context.step("first").dispatch(first, task.clone()).await;
            let next = answer.map_or(task, |answer| Task::json(answer.output));
            if is_changed {
                return context.step("more").dispatch("other", next).await;
            }
            context.step("pay").dispatch("payer", next).await
        });
        builder(&clock)
            .operator(echo("draft", &clock, &log))
            .operator(echo("other", &clock, &log))
            .operator(payer(&clock, &log, &paid))
            .operator(workflow(code, &clock, &log))
            .build()
            .unwrap()
    };
    let answer = dispatch(&clock, &process(false), "own", "go").await.unwrap();
    let run = answer.run.unwrap();
    let before = steps(&events_of(&log, "own").await).len();
    let (changed, resumed) = (process(true), run.clone());
    let error = on(&clock, async move { changed.resume("own", resumed).await }).await.unwrap_err();
    assert_eq!(error.code(), "replay.diverged");
    assert_eq!(steps(&events_of(&log, "own").await).len(), before);
    assert_eq!(log.open_approvals().await.unwrap().len(), 1, "what waits still does");
}

/// Spec: O5, O6. A failure that the code has gone on from stays one when the run is opened again.
#[tokio::test]
async fn handled_failure_stays_one_after_a_retry() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let asked = Arc::<AtomicU32>::default();
    let flaky = |name: &'static str, failures: u32| {
        let left = AtomicU32::new(failures);
        let asked = Arc::clone(&asked);
        let model = agent(&clock, &log, move |_| {
            let less = |left: u32| left.checked_sub(1);
            match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
                Ok(_) => ScriptedAnswer::failing(ErrorKind::Transient),
                Err(_) => {
                    asked.fetch_add(1, Ordering::SeqCst);
                    ScriptedAnswer::saying(format!("{name} at last"))
                }
            }
        });
        model.name(name).retry(RetryConfig::new().attempts(1)).build().unwrap()
    };
    let code = own(|task, context| async move {
        let answer = match context.step("first").dispatch("first", task.clone()).await {
            Ok(answer) => answer,
            Err(_) => context.step("instead").dispatch("instead", task).await?,
        };
        let next = Task::json(answer.output);
        context.step("last").dispatch("last", next).await
    });
    let orchestrator = builder(&clock)
        .operator(flaky("first", 2))
        .operator(flaky("instead", 0))
        .operator(flaky("last", 2))
        .operator(workflow(code, &clock, &log))
        .reopen(RetryConfig::new().attempts(2).deadline(Duration::MAX))
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "own", "x").await.unwrap();
    assert_eq!(answer.output, "last at last");
    assert_eq!(asked.load(Ordering::SeqCst), 2, "`first` was not begun again");
    let events = events_of(&log, "own").await;
    assert!(types(&events).contains(&"run.reopened"), "{:?}", types(&events));
}

/// Spec: O2, O6. Workflows in one another that are given up close their records within 5 s, the innermost
/// first, also when a step does not listen.
#[tokio::test]
async fn nested_workflows_close_in_time() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let orchestrator = builder(&clock)
        .operator(Hanging)
        .operator(workflow(Sequence::new("inner", ["hanging"]), &clock, &log))
        .operator(workflow(Sequence::new("outer", ["inner"]), &clock, &log))
        .build()
        .unwrap();
    on(&clock.clone(), async move {
        let dispatched = orchestrator.dispatch("outer", Task::text("x"), Context::root());
        drop(futures_util::future::select(dispatched, clock.sleep(Duration::from_secs(1))).await);
        // Cancelled operators have 5 s.
        clock.sleep(Duration::from_millis(4_999)).await;
        for operator in ["inner", "outer"] {
            let events = events_of(&log, operator).await;
            let last = events.last().map(|event| &event.kind);
            let Some(EventKind::RunFinished(finished)) = last else {
                panic!("{operator}: {last:?}")
            };
            assert_eq!(finished.outcome, Outcome::Cancelled, "{operator}");
        }
    })
    .await;
}

/// Spec: O6, B3. What a workflow was told outlives its process: one that was cancelled is not gone on with.
#[tokio::test]
async fn cancellation_outlives_its_process() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock)
        .operator(payer(&clock, &log, &paid))
        .operator(workflow(Sequence::new("line", ["payer"]), &clock, &log))
        .build()
        .unwrap();
    let run = dispatch(&clock, &orchestrator, "line", "go").await.unwrap().run.unwrap();
    let told = SignalReceived::new(Signal::CANCEL, Value::Null).into();
    die_after(&log, &clock, &run, [RunResumed::new("ops").into(), told]).await;
    let answer = on(&clock, async move { orchestrator.resume("line", run).await }).await.unwrap();
    assert_eq!(answer.stop, Stop::Cancelled);
    assert!(log.open_approvals().await.unwrap().is_empty());
    let told = types(&events_of(&log, "line").await);
    assert_eq!(told.iter().filter(|it| **it == "signal.received").count(), 1, "{told:?}");
}

/// Spec: O6, D6. How often its process died counts a step that keeps a record for itself: a workflow that only
/// waits for it does not end of it.
#[tokio::test]
async fn long_step_outlives_many_processes() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock)
        .operator(payer(&clock, &log, &paid))
        .operator(workflow(Sequence::new("line", ["payer"]), &clock, &log))
        .build()
        .unwrap();
    let run = dispatch(&clock, &orchestrator, "line", "go").await.unwrap().run.unwrap();
    let recovered = || RunRecovered::new(Vec::new(), Vec::new(), 0).into();
    let kinds = [RunResumed::new("ops").into(), recovered(), recovered(), recovered()];
    die_after(&log, &clock, &run, kinds).await;
    let answer = on(&clock, async move { orchestrator.resume("line", run).await }).await.unwrap();
    assert_eq!(answer.stop, Stop::WaitingApproval);
}

/// Spec: O6, B3. Where no process has its code, a workflow is closed as cancelled, and what is below it.
#[tokio::test]
async fn cancel_without_its_code_closes_the_tree() {
    let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock)
        .operator(echo("draft", &clock, &log))
        .operator(payer(&clock, &log, &paid))
        .operator(workflow(Sequence::new("line", ["draft", "payer"]), &clock, &log))
        .build()
        .unwrap();
    let run = dispatch(&clock, &orchestrator, "line", "go").await.unwrap().run.unwrap();
    let shared = Arc::clone(&log) as Arc<dyn EventLog>;
    assert!(backstop_react::cancel(shared, &run, "ops").await.unwrap());
    let summary = log.summary(&run).await.unwrap().unwrap();
    assert_eq!(summary.outcome, Some(Outcome::Cancelled));
    assert_eq!(summary.usage.model_calls, 2);
    assert!(log.open_approvals().await.unwrap().is_empty());
    let events = events_of(&log, "line").await;
    let Some(EventKind::RunFinished(finished)) = events.last().map(|event| &event.kind) else {
        panic!("{events:?}")
    };
    assert_eq!(finished.usage.model_calls, 2);
}

/// Writes these events as a process that dies behind them.
async fn die_after<const N: usize>(
    log: &Arc<MemoryLog>,
    clock: &VirtualClock,
    run: &RunId,
    kinds: [EventKind; N],
) {
    let claim = log.claim(run).await.unwrap();
    let summary = log.summary(run).await.unwrap().unwrap();
    let mut dying = RunWriter::resume(Arc::clone(log) as Arc<dyn EventLog>, summary, claim);
    for kind in kinds {
        dying.stage(&Seed::new("seed"), clock.now(), Actor::Runtime, None, kind);
    }
    dying.commit().await.unwrap();
}
