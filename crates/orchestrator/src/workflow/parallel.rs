use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};

use super::fan_out::{OnFailure, fan_out};

/// Operators at once, each with the same input. Its answer is the list of theirs, in the order they were
/// named.
///
/// With [`OnFailure::Collect`] the list holds an object for each: `operator`, and `output`, or `error` with
/// `reason` and `message`; one that was stopped has `stopped`, the code, beside its `output`. Its steps are
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
    /// Names the operators.
    pub fn new(
        name: impl Into<String>,
        operators: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let operators = operators.into_iter().map(Into::into).collect();
        Self { name: name.into(), operators, limit: None, on_failure: OnFailure::default() }
    }

    /// Runs at most so many at once, at least 1; all of them otherwise.
    #[must_use]
    pub const fn limit(mut self, at_once: usize) -> Self {
        self.limit = Some(at_once);
        self
    }

    /// Sets what becomes of the others when one fails; they are stopped otherwise.
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
        // It is for the list.
        task.output_schema = None;
        let tasks = self.operators.iter().map(|operator| (operator.clone(), task.clone()));
        fan_out(context, tasks.collect(), (self.limit, self.on_failure)).await
    }
}
