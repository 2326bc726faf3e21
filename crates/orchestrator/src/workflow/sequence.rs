use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;

use super::fan_out::{done_by, propagate_stop};

/// Operators in sequence: the first gets the input, each further one the answer of the one before.
///
/// The sequence ends with the first answer that did not complete. If an operator fails, [`OperatorError::SubDispatch`]
/// has the answers of the operators before. Its steps are `1`, `2`, ….
///
/// ```
/// use backstop_orchestrator::Sequence;
/// use layer0::Operator;
///
/// let review = Sequence::new("review", ["draft", "check"]);
/// assert_eq!(review.calls(), ["draft", "check"]);
/// ```
#[derive(Debug, Clone)]
pub struct Sequence {
    name: String,
    operators: Vec<String>,
}

impl Sequence {
    /// Builds a sequence of these operators. Without any, the input is the answer.
    pub fn new(
        name: impl Into<String>,
        operators: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let operators = operators.into_iter().map(Into::into).collect();
        Self { name: name.into(), operators }
    }
}

#[async_trait]
impl Operator for Sequence {
    fn name(&self) -> &str {
        &self.name
    }

    fn calls(&self) -> Vec<&str> {
        self.operators.iter().map(String::as_str).collect()
    }

    async fn run(&self, mut task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let (count, expected, idempotent) =
            (self.operators.len(), task.output_schema.take(), task.idempotent);
        let mut done = Vec::with_capacity(count);
        for (place, operator) in self.operators.iter().enumerate() {
            if place + 1 == count {
                task.output_schema.clone_from(&expected);
            }
            let step = (place + 1).to_string();
            let context = context.step(&*step).sharing(count - place);
            let answer = match context.dispatch(operator, task).await {
                Ok(answer) if answer.stop == Stop::Completed => answer,
                Ok(answer) => return Ok(propagate_stop(answer)),
                Err(error) => return Err(error.after(done)),
            };
            done.push(done_by(step, operator, &answer));
            task = Task::json(answer.output);
            task.idempotent = idempotent;
        }
        Ok(Answer::from_output(task.input))
    }
}
