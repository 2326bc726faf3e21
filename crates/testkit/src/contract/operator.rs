//! The contract of every operator.

use std::sync::Arc;

use futures_util::future::join_all;
use layer0::Operator;
use layer0::name::check_name;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::Stop;

use super::suite::{Suite, checks};

/// An operator with a task that it completes.
#[derive(Clone)]
pub struct OperatorSample {
    operator: Arc<dyn Operator>,
    task: Task,
}

impl OperatorSample {
    /// Combines an operator with a task that it completes each time.
    pub fn new(operator: Arc<dyn Operator>, task: Task) -> Self {
        Self { operator, task }
    }

    async fn run(&self, context: &Context) -> Answer {
        let ran = self.operator.run(self.task.clone(), context).await;
        let answer = ran.unwrap_or_else(|error| panic!("the sample fails: {error:?}"));
        assert_eq!(answer.stop, Stop::Completed, "the sample is completed");
        answer
    }
}

/// Checks operators against the contract of [`Operator`]: it can be called by its name, and completes a task wherever
/// it is dispatched. `make` makes an operator and a task for each trial.
///
/// Specification: O1.
pub fn operator(make: impl AsyncFn() -> OperatorSample + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            can_be_called_by_its_name,
            completes_its_task,
            ends_when_it_is_cancelled,
            names_each_run_it_records,
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
    sample.run(&Context::root()).await;
    assert_eq!(sample.operator.name(), name, "the same before and after");
}

async fn completes_its_task(sample: OperatorSample) {
    let answer = sample.run(&Context::root()).await;
    assert!(!answer.output.is_null(), "an answer says something");
}

async fn runs_again(sample: OperatorSample) {
    for _ in 0..3 {
        sample.run(&Context::root()).await;
    }
}

async fn runs_at_once(sample: OperatorSample) {
    let context = Context::root();
    join_all((0..4).map(|_| sample.run(&context))).await;
}

/// Two runs have two records.
async fn names_each_run_it_records(sample: OperatorSample) {
    let first = sample.run(&Context::root()).await;
    let second = sample.run(&Context::root()).await;
    assert_eq!(first.run.is_some(), second.run.is_some(), "it records each or none");
    assert!(first.run.is_none() || first.run != second.run, "each run has a name of its own");
}

/// The caller knows the run by this id before it begins.
async fn records_under_the_name_it_is_given(sample: OperatorSample) {
    let mut context = Context::root();
    context.run = Some("run_given".into());
    let answer = sample.run(&context).await;
    assert!(answer.run.is_none_or(|run| run == "run_given".into()), "it is known by that name");
}

/// An operator that is cancelled before it begins may still complete its task, but it ends.
async fn ends_when_it_is_cancelled(sample: OperatorSample) {
    let context = Context::root();
    context.signals.push(Signal::cancel());
    let ran = sample.operator.run(sample.task.clone(), &context).await;
    let stop = ran.map(|answer| answer.stop);
    assert!(!matches!(stop, Ok(Stop::WaitingApproval)), "it does not wait for anything: {stop:?}");
}

/// In the session of its caller, several dispatches deep.
async fn runs_below_another(sample: OperatorSample) {
    let (session, parent) = (Some("s".into()), Some("run_0".into()));
    let mut context = Context::root();
    (context.session, context.parent, context.depth) = (session, parent, 3);
    sample.run(&context).await;
    sample.run(&context).await;
}

/// A dispatch is dropped at its deadline and when its caller is cancelled.
async fn survives_a_dropped_run(sample: OperatorSample) {
    let context = Context::root();
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
