//! The contract of every operator.

use std::sync::Arc;
use std::time::Duration;

use backstop_orchestrator::LocalOrchestrator;
use futures_util::future::join_all;
use layer0::error::OperatorError;
use layer0::name::check_name;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::Stop;
use layer0::{Operator, Orchestrator, Timestamp};

use super::dropped::assert_leaves_no_task;
use super::suite::{Suite, checks};

/// The time after a cancellation or a deadline at which an orchestrator drops an operator.
const GRACE: Duration = Duration::from_secs(5);

/// An operator with a task that it completes.
#[derive(Clone)]
pub struct OperatorSample {
    operator: Arc<dyn Operator>,
    task: Task,
    orchestrator: Option<Arc<dyn Orchestrator>>,
}

impl OperatorSample {
    /// Combines an operator with a task that it completes each time.
    pub fn new(operator: Arc<dyn Operator>, task: Task) -> Self {
        Self { operator, task, orchestrator: None }
    }

    /// Sets the orchestrator through which the operator dispatches others.
    #[must_use]
    pub fn dispatching(mut self, orchestrator: Arc<dyn Orchestrator>) -> Self {
        self.orchestrator = Some(orchestrator);
        self
    }

    fn context(&self) -> Context {
        let mut context = Context::root();
        context.orchestrator.clone_from(&self.orchestrator);
        context
    }

    async fn run(&self, context: &Context) -> Answer {
        let ran = self.operator.run(self.task.clone(), context).await;
        let answer = ran.unwrap_or_else(|error| panic!("the sample fails: {error:?}"));
        assert_eq!(answer.stop, Stop::Completed, "the sample is completed");
        assert_eq!(answer.parked_until, None, "completed work is not parked");
        answer
    }

    /// Runs the task, and asserts that it ends before an orchestrator drops it.
    #[expect(
        clippy::disallowed_methods,
        reason = "an orchestrator waits no longer, whatever the clock"
    )]
    async fn end(&self, context: &Context) -> Result<Answer, OperatorError> {
        let running = self.operator.run(self.task.clone(), context);
        let ended = tokio::time::timeout(GRACE, running).await;
        ended.unwrap_or_else(|_| panic!("it has not ended after {GRACE:?}"))
    }
}

/// Checks operators against the contract of [`Operator`]: it can be called by its name, and completes a task wherever
/// it is dispatched. `make` makes an operator and a task for each trial.
///
/// The suite turns on no feature of other crates: without the feature `json-schema` an orchestrator refuses an operator
/// that declares a schema, and so does the suite.
///
/// Specification: O1, O2, O5.
pub fn operator(make: impl AsyncFn() -> OperatorSample + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            can_be_called_by_its_name,
            completes_a_task_that_is_dispatched,
            completes_its_task,
            completes_its_task_before_a_deadline,
            ends_at_its_deadline,
            ends_when_it_is_cancelled,
            has_one_digest,
            leaves_no_work_when_dropped,
            names_each_run_it_records,
            records_each_run_it_can_continue,
            records_under_the_name_it_is_given,
            runs_again,
            runs_at_once,
            runs_below_another,
            survives_a_dropped_run,
        ],
    )
}

async fn can_be_called_by_its_name(sample: OperatorSample) {
    let name = sample.operator.name().to_owned();
    assert!(check_name(&name).is_ok(), "`{name}`: {:?}", check_name(&name));
    sample.run(&sample.context()).await;
    assert_eq!(sample.operator.name(), name, "the same before and after");
}

async fn completes_its_task(sample: OperatorSample) {
    let answer = sample.run(&sample.context()).await;
    assert!(!answer.output.is_null(), "an answer says something");
}

/// The declared schemas are valid, and the task and its answer fit them.
async fn completes_a_task_that_is_dispatched(sample: OperatorSample) {
    let unnamed = || Arc::new(LocalOrchestrator::builder().build_unnamed()) as _;
    let orchestrator = sample.orchestrator.clone().unwrap_or_else(unnamed);
    let (operator, task) = (Arc::clone(&sample.operator), sample.task.clone());
    let answer = orchestrator.perform(operator, task, sample.context()).await;
    let answer = answer.unwrap_or_else(|error| panic!("its dispatch fails: {error:?}"));
    assert_eq!(answer.stop, Stop::Completed, "the sample is completed");
}

async fn completes_its_task_before_a_deadline(sample: OperatorSample) {
    let mut context = sample.context();
    context.deadline = Some(Timestamp::from_millis(i64::MAX / 2));
    sample.run(&context).await;
}

/// An orchestrator drops other operators at their deadline.
async fn ends_at_its_deadline(sample: OperatorSample) {
    if !sample.operator.can_go_on() {
        return;
    }
    let mut context = sample.context();
    context.deadline = Some(Timestamp::from_millis(1));
    let ended = sample.end(&context).await;
    let is_completed = matches!(&ended, Ok(answer) if answer.stop == Stop::Completed);
    assert!(!is_completed, "it enforces its deadline itself: {ended:?}");
}

/// A run is continued only by an operator with the digest of the one that began it.
async fn has_one_digest(sample: OperatorSample) {
    let digest = sample.operator.digest();
    sample.run(&sample.context()).await;
    assert_eq!(sample.operator.digest(), digest, "the same before and after");
}

async fn records_each_run_it_can_continue(sample: OperatorSample) {
    let answer = sample.run(&sample.context()).await;
    let has_record = answer.run.is_some();
    assert!(has_record || !sample.operator.can_go_on(), "a run to continue has a record");
}

/// The future of a run is the run: its caller may have ended when it is dropped.
async fn leaves_no_work_when_dropped(sample: OperatorSample) {
    let context = sample.context();
    sample.run(&context).await;
    assert_leaves_no_task(|| sample.run(&context)).await;
}

async fn runs_again(sample: OperatorSample) {
    for _ in 0..3 {
        sample.run(&sample.context()).await;
    }
}

async fn runs_at_once(sample: OperatorSample) {
    let context = sample.context();
    join_all((0..4).map(|_| sample.run(&context))).await;
}

/// Two runs have two records.
async fn names_each_run_it_records(sample: OperatorSample) {
    let first = sample.run(&sample.context()).await;
    let second = sample.run(&sample.context()).await;
    assert_eq!(first.run.is_some(), second.run.is_some(), "it records each or none");
    assert!(first.run.is_none() || first.run != second.run, "each run has a name of its own");
}

/// The caller knows the run by this id before it begins.
async fn records_under_the_name_it_is_given(sample: OperatorSample) {
    let mut context = sample.context();
    context.run = Some("run_given".into());
    let answer = sample.run(&context).await;
    assert!(answer.run.is_none_or(|run| run == "run_given".into()), "it is known by that name");
}

/// An operator that is cancelled before it begins may still complete its task, but it ends.
async fn ends_when_it_is_cancelled(sample: OperatorSample) {
    let context = sample.context();
    context.signals.push(Signal::cancel());
    let stop = sample.end(&context).await.map(|answer| answer.stop);
    assert!(!matches!(stop, Ok(Stop::WaitingApproval)), "it does not wait for anything: {stop:?}");
}

/// In the session of its caller, several dispatches deep.
async fn runs_below_another(sample: OperatorSample) {
    let (session, parent) = (Some("s".into()), Some("run_0".into()));
    let mut context = sample.context();
    (context.session, context.parent, context.depth) = (session, parent, 3);
    sample.run(&context).await;
    sample.run(&context).await;
}

/// A dispatch is dropped at its deadline and when its caller is cancelled.
async fn survives_a_dropped_run(sample: OperatorSample) {
    let context = sample.context();
    drop(sample.run(&context));
    {
        let run = sample.run(&context);
        tokio::select! {
            biased;
            _ = run => {}
            () = std::future::ready(()) => {}
        }
    }
    sample.run(&context).await;
}
