use async_trait::async_trait;
use layer0::error::OperatorError;
use layer0::failure::{Effect, Facts, Failure};
use layer0::operator::{Answer, Context, Task};
use layer0::{Operator, code};
use serde_json::Value;
use thiserror::Error;

use super::fan_out::{OnFailure, fan_out};
use super::text::parse_value;

/// One operator over many inputs: a list, or text that is a list in JSON. Its answer is the list of the answers, as for
/// [`Parallel`](crate::Parallel). Its steps are `1`, `2`, ….
///
/// ```
/// use backstop_orchestrator::Map;
/// use layer0::Operator;
///
/// let summaries = Map::new("summaries", "summarise").limit(4);
/// assert_eq!(summaries.calls(), ["summarise"]);
/// ```
#[derive(Debug, Clone)]
pub struct Map {
    name: String,
    operator: String,
    limit: Option<usize>,
    on_failure: OnFailure,
}

/// Error for the input of a map that is not a list.
///
/// Retry: never. Effect: none.
#[derive(Debug, Error)]
#[error("the input of `{0}` is no list")]
struct NoList(String);

impl Failure for NoList {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

impl Map {
    /// Builds a map over one operator.
    pub fn new(name: impl Into<String>, operator: impl Into<String>) -> Self {
        let (name, operator) = (name.into(), operator.into());
        Self { name, operator, limit: None, on_failure: OnFailure::default() }
    }

    /// Limits the number of inputs processed at once, at least 1; unlimited by default.
    #[must_use]
    pub const fn limit(mut self, at_once: usize) -> Self {
        self.limit = Some(at_once);
        self
    }

    /// Sets whether a failure stops the other inputs, as it does by default.
    #[must_use]
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}

#[async_trait]
impl Operator for Map {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> Vec<&str> {
        vec![&self.operator]
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let input = match &task.input {
            Value::String(text) => parse_value(text),
            other => other.clone(),
        };
        let Value::Array(inputs) = input else {
            return Err(OperatorError::from_failure(NoList(self.name.clone())));
        };
        let task_of = |input| {
            let mut one = Task::json(input);
            (one.idempotent, one.history) = (task.idempotent, task.history);
            (self.operator.clone(), one)
        };
        let tasks = inputs.into_iter().map(task_of).collect();
        fan_out(context, tasks, (self.limit, self.on_failure)).await
    }
}
