//! The contract of every orchestrator.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Failure, Retry};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::{Operator, Orchestrator, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::suite::{Suite, checks};

type Operators = Vec<Arc<dyn Operator>>;
type Make = Arc<dyn Fn(Operators) -> Arc<dyn Orchestrator> + Send + Sync>;

/// Depth of nested calls after which this suite gives up.
const DEEP: u32 = 32;

/// Checks orchestrators against the contract of [`Orchestrator`]: operators are found by name, receive the task of
/// their caller, and fail with their own errors. `make` makes an orchestrator of these operators for each trial.
///
/// Specification: O1, O5.
pub fn orchestrator(
    make: impl Fn(Operators) -> Arc<dyn Orchestrator> + Send + Sync + 'static,
) -> Suite {
    let make: Make = Arc::new(make);
    Suite::new(
        async move || Arc::clone(&make),
        checks![
            a_dropped_dispatch_stops_its_operator,
            a_failure_stays_what_it_is,
            a_panic_is_a_failed_dispatch,
            answers_many_in_the_order_asked,
            dispatches_by_name,
            gives_an_operator_its_task_and_context,
            has_no_unknown_operator,
            has_no_unknown_workflow,
            lets_an_operator_dispatch_another,
            one_failure_stops_no_other,
            refuses_endless_depth,
            repeats_nothing_that_may_have_acted,
            runs_many_at_once,
            starts_nothing_after_its_deadline,
        ],
    )
}

type Run = dyn Fn(Task, &Context) -> Result<Value, OperatorError> + Send + Sync;

/// Operator that runs a function.
struct Scripted {
    name: &'static str,
    run: Box<Run>,
}

#[async_trait]
impl Operator for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        (self.run)(task, context).map(Answer::from_output)
    }
}

fn scripted(
    name: &'static str,
    run: impl Fn(Task, &Context) -> Result<Value, OperatorError> + Send + Sync + 'static,
) -> Arc<dyn Operator> {
    Arc::new(Scripted { name, run: Box::new(run) })
}

/// Returns an operator that answers with its name and its input.
fn echo(name: &'static str) -> Arc<dyn Operator> {
    scripted(name, move |task, _| Ok(json!([name, task.input])))
}

fn failing(name: &'static str) -> Arc<dyn Operator> {
    scripted(name, |_, _| Err(refusal()))
}

fn refusal() -> OperatorError {
    OperatorError::NonRetryable("it is not for me".into())
}

async fn output(orchestrator: &Arc<dyn Orchestrator>, operator: &str, input: &str) -> Value {
    let answer = orchestrator.dispatch(operator, Task::text(input), Context::root()).await;
    answer.unwrap_or_else(|error| panic!("`{operator}`: {error:?}")).output
}

async fn dispatches_by_name(make: Make) {
    let orchestrator = make(vec![echo("one"), echo("two")]);
    assert_eq!(output(&orchestrator, "two", "x").await, json!(["two", "x"]));
    assert_eq!(output(&orchestrator, "one", "y").await, json!(["one", "y"]));
}

async fn has_no_unknown_operator(make: Make) {
    let orchestrator = make(vec![echo("one")]);
    for unknown in ["two", "", "ONE", "on"] {
        let refused = orchestrator.dispatch(unknown, Task::text("x"), Context::root()).await;
        let is_it = matches!(&refused, Err(OrchError::OperatorNotFound(name)) if name == unknown);
        assert!(is_it, "`{unknown}`: {refused:?}");
    }
    assert_eq!(output(&orchestrator, "one", "x").await, json!(["one", "x"]));
}

async fn gives_an_operator_its_task_and_context(make: Make) {
    let given = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&given);
    let looks = scripted("looks", move |task, context| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((task, context.clone()));
        Ok(json!("seen"))
    });
    let far = Timestamp::from_millis(i64::MAX / 2);
    let mut context = Context::root();
    (context.session, context.parent) = (Some("s".into()), Some("run_0".into()));
    (context.depth, context.deadline) = (2, Some(far));
    let task = Task::json(json!({ "a": [1, null] })).idempotent();
    let answer = make(vec![looks]).dispatch("looks", task.clone(), context).await;
    assert_eq!(answer.map(|answer| answer.output).ok(), Some(json!("seen")));
    let given = given.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (given, context) = given.expect("it ran");
    assert_eq!(given, task);
    assert_eq!((context.session, context.parent), (Some("s".into()), Some("run_0".into())));
    assert_eq!((context.depth, context.deadline), (2, Some(far)));
    assert!(context.orchestrator.is_some(), "it can dispatch");
}

/// Operator that calls another one with its own input.
struct Caller {
    name: &'static str,
    calls: &'static str,
    depths: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Operator for Caller {
    fn name(&self) -> &str {
        self.name
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        self.depths.lock().unwrap_or_else(PoisonError::into_inner).push(context.depth);
        assert!(context.depth < DEEP, "operators call each other without end");
        context.dispatch(self.calls, task).await
    }
}

fn caller(name: &'static str, calls: &'static str) -> (Arc<dyn Operator>, Arc<Mutex<Vec<u32>>>) {
    let depths = Arc::default();
    (Arc::new(Caller { name, calls, depths: Arc::clone(&depths) }), depths)
}

async fn lets_an_operator_dispatch_another(make: Make) {
    let inner = scripted("inner", |task, context| {
        Ok(json!([task.input, context.depth, context.session.as_ref().map(ToString::to_string)]))
    });
    let (outer, _) = caller("outer", "inner");
    let orchestrator = make(vec![outer, inner]);
    let mut context = Context::root();
    context.session = Some("s".into());
    let answer = orchestrator.dispatch("outer", Task::text("x"), context).await;
    let output = answer.map(|answer| answer.output);
    assert_eq!(output.ok(), Some(json!(["x", 1, "s"])), "one deeper, in the same session");
}

async fn refuses_endless_depth(make: Make) {
    let (endless, depths) = caller("endless", "endless");
    let result = make(vec![endless]).dispatch("endless", Task::text("x"), Context::root()).await;
    assert!(result.is_err(), "{result:?}");
    let depths = depths.lock().unwrap_or_else(PoisonError::into_inner);
    let deepest = depths.iter().max().copied().unwrap_or_default();
    assert!(deepest < DEEP - 1, "it went {deepest} deep");
}

async fn a_failure_stays_what_it_is(make: Make) {
    let orchestrator = make(vec![failing("fails")]);
    let result = orchestrator.dispatch("fails", Task::text("x"), Context::root()).await;
    let error = result.expect_err("it fails");
    let expected = refusal();
    assert!(matches!(error, OrchError::OperatorError(_)), "{error:?}");
    assert_eq!((error.code(), error.retry()), (expected.code(), expected.retry()));
    assert_eq!((error.effect(), error.retry()), (expected.effect(), Retry::Never));
}

async fn a_panic_is_a_failed_dispatch(make: Make) {
    let panics = scripted("panics", |_, _| panic!("out of coffee"));
    let orchestrator = make(vec![panics, echo("one")]);
    let result = orchestrator.dispatch("panics", Task::text("x"), Context::root()).await;
    let is_it = matches!(&result, Err(OrchError::Panicked(why)) if why.contains("coffee"));
    assert!(is_it, "{result:?}");
    assert_eq!(output(&orchestrator, "one", "x").await, json!(["one", "x"]), "it goes on");
}

fn tasks<const N: usize>(operators: [&str; N]) -> Vec<(String, Task)> {
    operators.iter().map(|name| ((*name).to_owned(), Task::text("x"))).collect()
}

async fn answers_many_in_the_order_asked(make: Make) {
    let orchestrator = make(vec![echo("one"), echo("two"), echo("three")]);
    let asked = ["three", "one", "two", "one"];
    let answers = orchestrator.dispatch_many(tasks(asked), Context::root()).await;
    let names: Vec<_> = answers.into_iter().map(|answer| answer.map(|it| it.output).ok()).collect();
    assert_eq!(names, asked.map(|name| Some(json!([name, "x"]))));
    assert!(orchestrator.dispatch_many(Vec::new(), Context::root()).await.is_empty());
}

async fn one_failure_stops_no_other(make: Make) {
    let orchestrator = make(vec![echo("one"), failing("fails")]);
    let asked = tasks(["fails", "one", "unknown", "one"]);
    let answers = orchestrator.dispatch_many(asked, Context::root()).await;
    let ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [false, true, false, true], "{answers:?}");
}

/// Operator whose runs each wait for all the others.
struct Meets(Barrier);

#[async_trait]
impl Operator for Meets {
    fn name(&self) -> &str {
        "meets"
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.0.wait().await;
        Ok(Answer::from_output(json!("met")))
    }
}

async fn runs_many_at_once(make: Make) {
    let orchestrator = make(vec![Arc::new(Meets(Barrier::new(3)))]);
    let asked = tasks(["meets", "meets", "meets"]);
    let answers = orchestrator.dispatch_many(asked, Context::root()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// Operator that hangs, and reports that it was stopped.
struct NeverAnswers {
    begun: tokio::sync::mpsc::UnboundedSender<()>,
    alive: Arc<()>,
}

#[async_trait]
impl Operator for NeverAnswers {
    fn name(&self) -> &str {
        "hangs"
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        let _alive = Arc::clone(&self.alive);
        let _ = self.begun.send(());
        std::future::pending().await
    }
}

async fn a_dropped_dispatch_stops_its_operator(make: Make) {
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let alive = Arc::new(());
    let orchestrator = make(vec![Arc::new(NeverAnswers { begun, alive: Arc::clone(&alive) })]);
    for dispatch in [
        orchestrator.dispatch_many(tasks(["hangs"]), Context::root()),
        orchestrator.dispatch_many(tasks(["hangs", "hangs"]), Context::root()),
    ] {
        tokio::select! {
            biased;
            answers = dispatch => panic!("it hangs: {answers:?}"),
            _ = begins.recv() => {}
        }
        // Two references are ours: this one and the operator's.
        while Arc::strong_count(&alive) > 2 {
            tokio::task::yield_now().await;
        }
    }
}

async fn repeats_nothing_that_may_have_acted(make: Make) {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let acts = scripted("acts", move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Err(OperatorError::Other("it may have acted".into()))
    });
    let result = make(vec![acts]).dispatch("acts", Task::text("x"), Context::root()).await;
    assert!(result.is_err(), "{result:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

async fn starts_nothing_after_its_deadline(make: Make) {
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let acts = scripted("acts", move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(json!("done"))
    });
    let mut context = Context::root();
    context.deadline = Some(Timestamp::from_millis(1));
    let result = make(vec![acts]).dispatch("acts", Task::text("x"), context).await;
    assert!(matches!(result, Err(OrchError::DeadlinePassed(_))), "{result:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

async fn has_no_unknown_workflow(make: Make) {
    let orchestrator = make(vec![echo("one")]);
    output(&orchestrator, "one", "x").await;
    for unknown in ["", "one", "wf_0"] {
        let signal = Signal::new("cancel", Value::Null);
        let signalled = orchestrator.signal(&unknown.into(), signal).await;
        assert!(matches!(signalled, Err(OrchError::WorkflowNotFound(_))), "{signalled:?}");
        let queried = orchestrator.query(&unknown.into()).await;
        assert!(matches!(queried, Err(OrchError::WorkflowNotFound(_))), "{queried:?}");
    }
}
