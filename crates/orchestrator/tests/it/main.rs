//! Dispatch, retry and sub-dispatch through the real path.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod agents;
mod at_hand;
mod below;
mod between;
mod detached;
mod grants;
mod own_work;
mod parked;
mod parked_time;
mod paths;
mod process;
mod refused;
mod schemas;
mod sessions;
mod signals;
mod supervising;
mod tap;
mod undecided;
mod waits;
mod workflow_adopting;
mod workflow_bounds;
mod workflow_ends;
mod workflow_lost_tail;
mod workflow_records;
mod workflow_resumes;
mod workflow_retries;
mod workflows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_orchestrator::{LocalOrchestrator, LocalOrchestratorBuilder, OperatorNameError};
use backstop_provider::{
    ErrorKind, ProviderError, ScriptedAnswer, ScriptedError, ScriptedProvider,
};
use backstop_react::Agent;
use backstop_retry::Jitter;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Chain, Effect, Facts, Failure, Retry, sources};
use layer0::id::WorkflowId;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::{Operator, Orchestrator, Timestamp};
use serde_json::{Value, json};

type Behaviour = dyn Fn(u32) -> Result<Value, OperatorError> + Send + Sync;

/// An operator that runs a closure with the number of the run.
struct Scripted {
    name: &'static str,
    runs: Arc<AtomicU32>,
    behaviour: Box<Behaviour>,
}

fn operator(
    name: &'static str,
    behaviour: impl Fn(u32) -> Result<Value, OperatorError> + Send + Sync + 'static,
) -> (Scripted, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    (Scripted { name, runs: Arc::clone(&runs), behaviour: Box::new(behaviour) }, runs)
}

#[async_trait]
impl Operator for Scripted {
    fn name(&self) -> &str {
        self.name
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        (self.behaviour)(run).map(Answer::from_output)
    }
}

/// Calls another operator, or itself for ever.
struct Caller {
    name: &'static str,
    calls: &'static str,
}

#[async_trait]
impl Operator for Caller {
    fn name(&self) -> &str {
        self.name
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let answer = context.dispatch(self.calls, task).await?;
        Ok(Answer::from_output(json!({"depth": context.depth, "inner": answer.output})))
    }
}

fn start() -> VirtualClock {
    VirtualClock::starting_at(Timestamp::default())
}

fn builder(clock: &VirtualClock) -> LocalOrchestratorBuilder {
    LocalOrchestrator::builder().clock(Arc::new(clock.clone())).jitter(Jitter::from_seed(1))
}

async fn on<T: Send + 'static>(
    clock: &VirtualClock,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let _ = done.send(work.await);
    })));
    result.await.unwrap()
}

/// Spec: R1, E5
#[tokio::test]
async fn a_transient_failure_is_dispatched_again() {
    let clock = start();
    let (flaky, runs) = operator("flaky", |run| match run {
        1 | 2 => Err(OperatorError::Retryable("queue is full".into())),
        _ => Ok(json!("done")),
    });
    let orchestrator = builder(&clock).operator(flaky).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("flaky", Task::text("x"), Context::root()).await
    });
    assert_eq!(answer.await.unwrap().output, "done");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

/// Spec: O5. The time for attempts of a model call bounds no operator.
#[tokio::test]
async fn long_operators_are_tried_again() {
    let (clock, runs) = (start(), Arc::<AtomicU32>::default());
    let (time, count) = (clock.clone(), Arc::clone(&runs));
    let flaky = process::own("flaky", move |_, _| {
        let (time, count) = (time.clone(), Arc::clone(&count));
        async move {
            time.sleep(Duration::from_secs(600)).await;
            match count.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(OperatorError::Retryable("queue is full".into())),
                _ => Ok(Answer::from_output(json!("done"))),
            }
        }
    });
    let orchestrator = builder(&clock).operator(flaky).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("flaky", Task::text("x"), Context::root()).await
    });
    assert_eq!(answer.await.unwrap().output, "done");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn missing_operators_and_workflows_are_named() {
    let orchestrator = LocalOrchestrator::builder().build().unwrap();
    let error =
        orchestrator.dispatch("nobody", Task::text("x"), Context::root()).await.unwrap_err();
    assert!(matches!(&error, OrchError::OperatorNotFound(name) if name == "nobody"));
    let unknown = WorkflowId::from("wf_0");
    let signal = Signal::new("stop", Value::Null);
    let error = orchestrator.signal(&unknown, signal).await.unwrap_err();
    assert!(matches!(&error, OrchError::WorkflowNotFound(id) if id == "wf_0"));
    assert!(matches!(orchestrator.query(&unknown).await, Err(OrchError::WorkflowNotFound(_))));
}

#[tokio::test]
async fn parallel_results_keep_order_despite_a_failure() {
    let (good, _) = operator("good", |_| Ok(json!("good")));
    let (bad, _) = operator("bad", |_| Err(OperatorError::NonRetryable("no".into())));
    let (wild, _) = operator("wild", |_| panic!("wild thing"));
    let orchestrator =
        LocalOrchestrator::builder().operator(good).operator(bad).operator(wild).build().unwrap();
    let tasks = ["good", "bad", "wild", "nobody", "good"];
    let tasks = tasks.map(|name| (name.to_owned(), Task::text("x"))).to_vec();
    let answers: Vec<String> = orchestrator
        .dispatch_many(tasks, Context::root())
        .await
        .into_iter()
        .map(|answer| match answer {
            Ok(answer) => answer.output.to_string(),
            Err(error) => format!("{}: {}", error.code(), Chain(&error)),
        })
        .collect();
    assert_eq!(
        answers,
        [
            "\"good\"",
            "operator.non_retryable: operator failed: no",
            "orch.panicked: operator panicked: `wild`: wild thing",
            "orch.operator_not_found: no operator named `nobody`",
            "\"good\"",
        ]
    );
}

/// Spec: O1
#[tokio::test]
async fn operators_call_each_other_and_not_for_ever() {
    let (leaf, _) = operator("leaf", |_| Ok(json!("leaf")));
    let orchestrator = LocalOrchestrator::builder()
        .operator(leaf)
        .operator(Caller { name: "outer", calls: "middle" })
        .operator(Caller { name: "middle", calls: "leaf" })
        .operator(Caller { name: "narcissus", calls: "narcissus" })
        .max_concurrent(1)
        .max_depth(3)
        .build()
        .unwrap();
    let answer = orchestrator.dispatch("outer", Task::text("x"), Context::root()).await.unwrap();
    assert_eq!(answer.output, json!({"depth": 0, "inner": {"depth": 1, "inner": "leaf"}}));
    let error =
        orchestrator.dispatch("narcissus", Task::text("x"), Context::root()).await.unwrap_err();
    assert_eq!(error.code(), "orch.depth");
    assert!(
        Chain(&error).to_string().ends_with("`narcissus` would be 4 levels deep, 3 are allowed"),
        "{}",
        Chain(&error)
    );
}

/// Spec: R4
#[tokio::test]
async fn only_idempotent_dispatch_repeats_unknown_effects() {
    #[derive(Debug, thiserror::Error)]
    #[error("half done")]
    struct HalfDone;
    impl Failure for HalfDone {
        fn facts(&self) -> Facts {
            Facts::backoff("test.half_done", Effect::Happened)
        }
    }
    for (task, expected) in [(Task::text("x"), 1), (Task::text("x").idempotent(), 3)] {
        let clock = start();
        let (half, runs) = operator("half", |_| Err(OperatorError::from_failure(HalfDone)));
        let orchestrator = builder(&clock).operator(half).build().unwrap();
        let result =
            on(&clock, async move { orchestrator.dispatch("half", task, Context::root()).await });
        assert_eq!(result.await.unwrap_err().code(), "test.half_done");
        assert_eq!(runs.load(Ordering::SeqCst), expected);
    }
}

/// Spec: R9, R10, E5
#[tokio::test]
async fn dispatch_does_not_multiply_model_attempts() {
    let clock = start();
    let mut error = ScriptedError::new(ErrorKind::Transient);
    error.status = Some(503);
    let answers = vec![ScriptedAnswer::default().error(error); 20];
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let model = ScriptedProvider::new(answers);
    let asked = model.requests();
    // Without a log it cannot continue after a failure.
    let agent = Agent::builder(model).name("agent").clock(shared).build().unwrap();
    let orchestrator = builder(&clock)
        .operator(agent)
        .operator(Caller { name: "outer", calls: "agent" })
        .build()
        .unwrap();
    let result = on(&clock, async move {
        orchestrator.dispatch("outer", Task::text("hi").idempotent(), Context::root()).await
    });
    let error = result.await.unwrap_err();
    assert_eq!((error.code(), error.retry()), ("provider.transient", Retry::Never));
    assert!(sources(&error).any(|cause| cause.is::<ProviderError>()));
    assert_eq!(asked.all().len(), 3);
}

struct Waits;

#[async_trait]
impl Operator for Waits {
    fn name(&self) -> &str {
        "waits"
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        loop {
            if let Some(signal) = context.signals.take() {
                return Ok(Answer::from_output(json!({"name": signal.name, "data": signal.data})));
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn dispatch_in_flight_can_be_queried_and_signalled() {
    let orchestrator = LocalOrchestrator::builder().operator(Waits).build().unwrap();
    let running = orchestrator.clone();
    let dispatch =
        tokio::spawn(
            async move { running.dispatch("waits", Task::text("x"), Context::root()).await },
        );
    let workflow = loop {
        match orchestrator.in_flight().pop() {
            Some(id) => break id,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(orchestrator.query(&workflow).await.unwrap()["operator"], "waits");
    let signal = Signal::new("go", json!(7));
    orchestrator.signal(&workflow, signal).await.unwrap();
    assert_eq!(dispatch.await.unwrap().unwrap().output, json!({"name": "go", "data": 7}));
    assert!(orchestrator.in_flight().is_empty());
}

#[tokio::test]
async fn a_deadline_ends_a_dispatch() {
    let clock = start();
    let orchestrator = builder(&clock).operator(Sleeps(clock.clone())).build().unwrap();
    let mut root = Context::root();
    root.deadline = Some(clock.now().after(Duration::from_secs(5)));
    let result =
        on(&clock, async move { orchestrator.dispatch("sleeps", Task::text("x"), root).await });
    let error = result.await.unwrap_err();
    assert_eq!(error.code(), "budget.wall_time");
    assert!(Chain(&error).to_string().ends_with("`sleeps` did not end in time"));
    assert_eq!(clock.now().since(Timestamp::default()), Duration::from_secs(5));
}

struct Sleeps(VirtualClock);

#[async_trait]
impl Operator for Sleeps {
    fn name(&self) -> &str {
        "sleeps"
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.0.sleep(Duration::from_secs(60)).await;
        Ok(Answer::from_output(Value::Null))
    }
}

/// Spec: O1
#[test]
fn operator_names_are_checked_at_build() {
    struct Named(&'static str);
    #[async_trait]
    impl Operator for Named {
        fn name(&self) -> &str {
            self.0
        }
        async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
            unreachable!("it is never dispatched")
        }
    }
    let build = |names: &[&'static str]| {
        let builder = LocalOrchestrator::builder();
        let builder = names.iter().fold(builder, |builder, name| builder.operator(Named(name)));
        builder.build().err()
    };
    assert_eq!(build(&["a", "b c", "a.b"]), None);
    assert_eq!(build(&["a", "b", "a"]), Some(OperatorNameError::Duplicate("a".to_owned())));
    for name in ["", " ", "a\nb", "---"] {
        assert!(matches!(build(&[name]), Some(OperatorNameError::Name(_))), "{name:?}");
    }
}
