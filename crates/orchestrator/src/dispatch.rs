//! One dispatch on its way through the retry layer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use backstop_retry::{FailedAttempt, RetryRequest};
use layer0::Operator;
use layer0::error::OrchError;
use layer0::operator::{Answer, Context, Task};
use tower::Service;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A dispatch; clones are its attempts.
#[derive(Clone)]
pub(crate) struct Dispatch {
    pub(crate) operator: Arc<dyn Operator>,
    pub(crate) task: Task,
    pub(crate) context: Context,
}

impl RetryRequest<OrchError> for Dispatch {
    fn is_idempotent(&self) -> bool {
        self.task.idempotent
    }

    fn attempted(&self, attempt: FailedAttempt<'_, OrchError>) -> Option<BoxFuture<()>> {
        tracing::info!(
            operator = self.operator.name(),
            attempt = attempt.number,
            code = layer0::Failure::code(attempt.error),
            delay = ?attempt.delay,
            "dispatch is tried again"
        );
        None
    }
}

/// Runs the operator of a dispatch.
#[derive(Clone)]
pub(crate) struct Run;

impl Service<Dispatch> for Run {
    type Response = Answer;
    type Error = OrchError;
    type Future = BoxFuture<Result<Answer, OrchError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), OrchError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, dispatch: Dispatch) -> Self::Future {
        Box::pin(async move {
            let Dispatch { operator, task, context } = dispatch;
            Ok(operator.run(task, &context).await?)
        })
    }
}
