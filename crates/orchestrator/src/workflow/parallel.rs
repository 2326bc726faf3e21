use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};

use super::fan_out::{OnFailure, fan_out};

/// Concurrent operators that all get the same input. The answer is the list of their answers, in the order in which
/// they were named.
///
/// With [`OnFailure::Collect`] the list holds an object for each: `operator`, and `output`, or `error` with `reason`
/// and `message`; an operator that was stopped also has `stopped`, the code, in addition to its `output`. Its steps are
/// `1`, `2`, ….
///
/// ```
/// use backstop_orchestrator::{OnFailure, Parallel};
/// use layer0::Operator;
///
/// let opinions = Parallel::new("opinions", ["lawyer", "doctor", "engineer"])
///     .limit(2)
///     .on_failure(OnFailure::Collect);
/// assert_eq!(opinions.name(), "opinions");
/// ```
#[derive(Debug, Clone)]
pub struct Parallel {
    name: String,
    operators: Vec<String>,
    limit: Option<usize>,
    on_failure: OnFailure,
}

impl Parallel {
    /// Builds a workflow of these operators.
    pub fn new(
        name: impl Into<String>,
        operators: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let operators = operators.into_iter().map(Into::into).collect();
        Self { name: name.into(), operators, limit: None, on_failure: OnFailure::default() }
    }

    /// Limits the number of operators that run at once, at least 1; unlimited by default.
    #[must_use]
    pub const fn limit(mut self, at_once: usize) -> Self {
        self.limit = Some(at_once);
        self
    }

    /// Sets whether a failure stops the other operators, as it does by default.
    #[must_use]
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}

#[async_trait]
impl Operator for Parallel {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> Vec<&str> {
        self.operators.iter().map(String::as_str).collect()
    }

    async fn run(&self, mut task: Task, context: &Context) -> Result<Answer, OperatorError> {
        // The schema is for the list.
        task.output_schema = None;
        let tasks = self.operators.iter().map(|operator| (operator.clone(), task.clone()));
        fan_out(context, tasks.collect(), (self.limit, self.on_failure)).await
    }
}
