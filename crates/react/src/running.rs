//! Running one tool: in a task of its own, with a limit and a panic guard.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::DropGuard;
use tool::{Admitted, ToolContext, ToolError};

/// Runs an admitted call. `late` hears of an answer that came after the call was given up.
///
/// The tool runs in its own task, so that one that blocks its thread holds up neither its siblings
/// nor its own timeout.
///
/// # Cancel safety
///
/// Dropping the future aborts the task.
pub(crate) async fn execute(
    admitted: Arc<Admitted>,
    context: ToolContext,
    limit: Duration,
    clock: &Arc<dyn Clock>,
    late: impl FnOnce() + Send + 'static,
) -> Result<Value, ToolError> {
    let (answer, answered) = oneshot::channel();
    let cancel = context.cancellation.clone().drop_guard();
    let (stop, stopped) = oneshot::channel::<Never>();
    let call = async move {
        let tool = Arc::clone(admitted.tool());
        let arguments = admitted.arguments.clone();
        let call = AssertUnwindSafe(async { tool.call(arguments, &context).await }).catch_unwind();
        let result = match call.await {
            Ok(Ok(output)) => admitted.check_output(&output).map(|()| output),
            Ok(Err(error)) => Err(error),
            Err(panic) => Err(ToolError::Panicked(panic_text(&*panic))),
        };
        // Code that blocks its thread goes on after it was given up; what it returns is discarded.
        if answer.send(result).is_err() {
            late();
        }
    };
    let task = async move {
        select(pin!(call), stopped).await;
    };
    let task = tokio::spawn(clock.track(Box::pin(task))).abort_handle();
    let _guard = StopOnDrop { task, _stop: stop, _cancel: cancel };
    match select(answered, clock.sleep(limit)).await {
        Either::Left((Ok(result), _)) => result,
        Either::Left((Err(_), _)) => Err(ToolError::Other("the tool's task was lost".into())),
        Either::Right(((), _)) => Err(ToolError::timeout(limit)),
    }
}

enum Never {}

/// Stops the task when the driver no longer waits for it.
///
/// Dropping the sender wakes the task, so that the clock knows it is about to end; aborting it ends
/// it at its next await even if the tool never looks.
struct StopOnDrop {
    task: AbortHandle,
    _stop: oneshot::Sender<Never>,
    /// Tells code that blocks its thread.
    _cancel: DropGuard,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns what a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
