//! Running one tool: in a task of its own, with a limit and a panic guard.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::failure::Chain;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::DropGuard;
use tool::{Admitted, ToolContext, ToolError};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

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
        let call = AssertUnwindSafe(async { tool.call(&admitted.arguments, &context).await })
            .catch_unwind();
        let result = match call.await {
            Ok(Ok(output)) => admitted.check_output(&output).map(|()| output),
            Ok(Err(error)) => Err(printable(error)),
            Err(panic) => Err(ToolError::Panicked(panic_text(panic))),
        };
        // Code that blocks its thread goes on after it was given up; what it returns is discarded.
        if answer.send(result).is_err() {
            late();
        }
    };
    // What a tool traces belongs to its call, in whichever task it runs.
    let task = async move {
        select(pin!(call), stopped).await;
    }
    .instrument(tracing::Span::current())
    .with_current_subscriber();
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

/// Returns what a panic said. The payload is never dropped, because its drop may panic too.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned());
    std::mem::forget(panic);
    text
}

/// Drops what belongs to others; a panic there is nobody's concern any more.
pub(crate) fn drop_guarded<T>(others: T) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(others))) {
        tracing::warn!("a future panicked when it was dropped: {}", panic_text(panic));
    }
}

/// Returns the error if it can be printed; one that cannot is as good as a panic.
fn printable(error: ToolError) -> ToolError {
    let print = AssertUnwindSafe(|| drop(Chain(error.kind()).to_string()));
    match std::panic::catch_unwind(print) {
        Ok(()) => error,
        Err(panic) => {
            let why = format!("its error cannot be printed: {}", panic_text(panic));
            std::mem::forget(error);
            ToolError::Panicked(why)
        }
    }
}
