//! Orchestrators that break one promise each.

use std::sync::Arc;

use async_trait::async_trait;
use backstop::{LocalOrchestrator, Orchestrator};
use layer0::Operator;
use layer0::error::OrchError;
use layer0::id::WorkflowId;
use layer0::operator::{Answer, Context, Signal, Task};
use serde_json::{Value, json};

super::defects! {
    AnswersAsTheyCome => answers_many_in_the_order_asked,
    Detaches => a_dropped_dispatch_stops_its_operator,
    DispatchesTheFirst => dispatches_by_name,
    FindsNearNames => has_no_unknown_operator,
    GoesDeep => refuses_endless_depth,
    HidesTheFailure => a_failure_stays_what_it_is,
    IgnoresTheDeadline => starts_nothing_after_its_deadline,
    LosesTheDeadline => gives_an_operator_its_task_and_context,
    LosesTheSession => gives_an_operator_its_task_and_context,
    LosesTheTask => gives_an_operator_its_task_and_context,
    OneAfterTheOther => runs_many_at_once,
    PanicsToo => a_panic_is_a_failed_dispatch,
    QueriesNothing => has_no_unknown_workflow,
    RunsItAgain => repeats_nothing_that_may_have_acted,
    SignalsNothing => has_no_unknown_workflow,
    StopsAtAFailure => one_failure_stops_no_other,
    SubDispatchesAsRoot => lets_an_operator_dispatch_another,
}

use Defect as D;

/// Spec: O1
#[test]
fn every_defect_of_an_orchestrator_is_noticed() {
    super::check(DEFECTS, |defect| {
        backstop_testkit::contract::orchestrator(move |operators| make(Some(defect), operators))
    });
}

/// Spec: O1
#[tokio::test]
async fn the_local_orchestrator_keeps_the_contract() {
    backstop_testkit::contract::orchestrator(|operators| make(None, operators)).check().await;
}

fn make(defect: Option<Defect>, operators: Vec<Arc<dyn Operator>>) -> Arc<dyn Orchestrator> {
    let mut builder = LocalOrchestrator::builder();
    if defect == Some(D::GoesDeep) {
        builder = builder.max_depth(u32::MAX);
    }
    for operator in &operators {
        builder = builder.shared_operator(Arc::clone(operator));
    }
    let sound = builder.build().unwrap();
    match defect {
        Some(defect) => Arc::new(Defective { defect, sound, operators }),
        None => Arc::new(sound),
    }
}

/// Does one thing wrong, and leaves the rest to a sound orchestrator.
#[derive(Clone)]
struct Defective {
    defect: Defect,
    sound: LocalOrchestrator,
    operators: Vec<Arc<dyn Operator>>,
}

#[async_trait]
impl Orchestrator for Defective {
    async fn dispatch(
        &self,
        operator: &str,
        mut task: Task,
        mut context: Context,
    ) -> Result<Answer, OrchError> {
        let mut operator = operator;
        match self.defect {
            D::DispatchesTheFirst => operator = self.operators[0].name(),
            D::FindsNearNames => {
                let near = |it: &&Arc<dyn Operator>| it.name().eq_ignore_ascii_case(operator);
                operator = self.operators.iter().find(near).map_or(operator, |it| it.name());
            }
            D::IgnoresTheDeadline | D::LosesTheDeadline => context.deadline = None,
            D::LosesTheSession => context.session = None,
            D::LosesTheTask => task = Task::json(task.input),
            D::PanicsToo => {
                let named = |it: &&Arc<dyn Operator>| it.name() == operator;
                if let Some(operator) = self.operators.iter().find(named) {
                    return Ok(operator.run(task, &context).await?);
                }
            }
            D::SubDispatchesAsRoot => {
                let named = |it: &&Arc<dyn Operator>| it.name() == operator;
                if let Some(operator) = self.operators.iter().find(named) {
                    context.depth = 0;
                    context.orchestrator = Some(Arc::new(self.clone()));
                    if operator.name() != "endless" {
                        return Ok(operator.run(task, &context).await?);
                    }
                }
            }
            _ => {}
        }
        let again = (self.defect == D::RunsItAgain).then(|| (task.clone(), context.clone()));
        let result = match self.defect {
            D::Detaches => {
                let (sound, operator) = (self.sound.clone(), operator.to_owned());
                let dispatch = async move { sound.dispatch(&operator, task, context).await };
                tokio::spawn(dispatch).await.unwrap()
            }
            _ => self.sound.dispatch(operator, task, context).await,
        };
        match (result, again) {
            (Err(_), Some((task, context))) => self.sound.dispatch(operator, task, context).await,
            (Err(OrchError::OperatorError(error)), _) if self.defect == D::HidesTheFailure => {
                Err(OrchError::DispatchFailed(error.to_string()))
            }
            (result, _) => result,
        }
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        let one_by_one = async || {
            let mut answers = Vec::new();
            for (operator, task) in tasks.clone() {
                answers.push(self.dispatch(&operator, task, context.clone()).await);
            }
            answers
        };
        match self.defect {
            D::AnswersAsTheyCome => {
                let mut answers = one_by_one().await;
                answers.reverse();
                answers
            }
            D::Detaches => {
                let (sound, tasks) = (self.sound.clone(), tasks.clone());
                let dispatch = async move { sound.dispatch_many(tasks, context).await };
                tokio::spawn(dispatch).await.unwrap()
            }
            D::OneAfterTheOther => one_by_one().await,
            D::StopsAtAFailure => {
                let mut answers = one_by_one().await;
                let failed = answers.iter().position(Result::is_err).unwrap_or(answers.len());
                for answer in answers.iter_mut().skip(failed) {
                    *answer = Err(OrchError::DispatchFailed("another one failed".into()));
                }
                answers
            }
            _ => self.sound.dispatch_many(tasks, context).await,
        }
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        match self.defect {
            D::SignalsNothing => Ok(()),
            _ => self.sound.signal(workflow, signal).await,
        }
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        match self.defect {
            D::QueriesNothing => Ok(json!(null)),
            _ => self.sound.query(workflow).await,
        }
    }
}
