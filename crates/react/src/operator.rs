use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};
use serde_json::Value;

use crate::agent::Agent;
use crate::request::RunRequest;

/// An agent answers text with text; a task that is no text is given to the model as JSON.
#[async_trait]
impl Operator for Agent {
    fn name(&self) -> &str {
        Self::name(self)
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let input = match task.input {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let mut request = RunRequest::new(input).images(task.images);
        request.session.clone_from(&context.session);
        request.parent.clone_from(&context.parent);
        request.depth = context.depth;
        let outcome = Self::run(self, request).await?;
        let mut answer = Answer::completed(Value::String(outcome.output.as_ref().to_owned()));
        answer.stop = outcome.stop;
        answer.run = Some(outcome.run_id);
        answer.usage = outcome.usage;
        Ok(answer)
    }
}
