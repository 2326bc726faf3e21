use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::Operator;
use layer0::error::{OperatorError, OrchError};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::text::plain;
use serde_json::Value;

use super::fan_out::{done_by, propagate_stop};

type Choice = dyn Fn(&Value) -> String + Send + Sync;

/// One of several operators, chosen from the input by a function or by another operator.
///
/// The choice is recorded as `workflow.routed`, and stays the same when the run is resumed. The step of the chosen
/// operator is `1`, the step of the choosing operator is `choose`. A choice that is not one of the operators fails like
/// an operator that is not registered.
///
/// ```
/// use backstop_orchestrator::Route;
/// use layer0::Operator;
///
/// let desk = Route::by("desk", ["billing", "support"], |input| {
///     let is_about_money = input.as_str().is_some_and(|text| text.contains("invoice"));
///     if is_about_money { "billing".into() } else { "support".into() }
/// });
/// assert_eq!(desk.calls(), ["billing", "support"]);
/// // An agent that answers with the name of one of them.
/// let desk = Route::with("desk", "dispatcher", ["billing", "support"]);
/// assert_eq!(desk.calls(), ["dispatcher", "billing", "support"]);
/// ```
#[derive(Clone)]
pub struct Route {
    name: String,
    chooser: Chooser,
    operators: Vec<String>,
}

#[derive(Clone)]
enum Chooser {
    Function(Arc<Choice>),
    Operator(String),
}

impl Route {
    /// Builds a route whose operator a function chooses by name.
    pub fn by(
        name: impl Into<String>,
        operators: impl IntoIterator<Item = impl Into<String>>,
        choose: impl Fn(&Value) -> String + Send + Sync + 'static,
    ) -> Self {
        let operators = operators.into_iter().map(Into::into).collect();
        Self { name: name.into(), chooser: Chooser::Function(Arc::new(choose)), operators }
    }

    /// Builds a route whose operator is chosen by another operator, which answers with the name of one of these.
    pub fn with(
        name: impl Into<String>,
        chooser: impl Into<String>,
        operators: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let operators = operators.into_iter().map(Into::into).collect();
        Self { name: name.into(), chooser: Chooser::Operator(chooser.into()), operators }
    }
}

#[async_trait]
impl Operator for Route {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> Vec<&str> {
        let chooser = match &self.chooser {
            Chooser::Operator(operator) => Some(operator),
            Chooser::Function(_) => None,
        };
        chooser.into_iter().chain(&self.operators).map(String::as_str).collect()
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let mut done = Vec::new();
        let choice = match &self.chooser {
            Chooser::Function(choose) => choose(&task.input),
            Chooser::Operator(operator) => {
                let mut asked = Task::json(task.input.clone()).images(Arc::clone(&task.images));
                (asked.idempotent, asked.history) = (task.idempotent, task.history);
                let answer = context.step("choose").sharing(2).dispatch(operator, asked).await?;
                if answer.stop != Stop::Completed {
                    return Ok(propagate_stop(answer));
                }
                done.push(done_by("choose", operator, &answer));
                plain(&answer.output).trim().to_owned()
            }
        };
        let context = context.step("1").sharing(1);
        let choice = context.route(choice).await?;
        if !self.operators.contains(&choice) {
            let unknown = OrchError::OperatorNotFound(choice.clone());
            return Err(OperatorError::sub_dispatch(choice, unknown).after(done));
        }
        let answer = context.dispatch(&choice, task).await.map_err(|error| error.after(done))?;
        Ok(propagate_stop(answer))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("name", &self.name)
            .field("operators", &self.operators)
            .finish_non_exhaustive()
    }
}
