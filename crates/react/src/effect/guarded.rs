//! Running one tool: in its own task, with a time limit and a panic guard.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_tool::{Admitted, PartialOutput, ToolContext, ToolError};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::failure::Chain;
use layer0::{JsonText, text};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::DropGuard;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::dispatch::Dispatcher;

/// Runs an admitted call. `late` is called if the tool answers after the call was given up.
///
/// The tool runs in its own task, so that a tool that blocks its thread delays neither its siblings nor its own
/// timeout. Its time is measured in the task and here, so that neither a tool that blocks its thread nor a busy driver
/// makes the limit longer. Its time does not pass while all its dispatches wait.
///
/// # Cancel safety
///
/// Dropping the future aborts the task.
pub(crate) async fn execute(
    admitted: Admitted,
    context: ToolContext,
    limit: Duration,
    dispatcher: &Arc<Dispatcher>,
    clock: &Arc<dyn Clock>,
    late: impl FnOnce() + Send + 'static,
) -> Result<JsonText, ToolError> {
    let (mut answer, answered) = oneshot::channel();
    let token = context.cancellation.clone();
    let written = context.written.clone();
    let cancel = token.clone().drop_guard();
    let timer = Arc::clone(dispatcher);
    let written_inside = written.clone();
    let call = async move {
        let tool = Arc::clone(admitted.tool());
        let call = AssertUnwindSafe(async { tool.call(&admitted.arguments, &context).await });
        let mut call = pin!(Some(call.catch_unwind()));
        // Begins when the tool first waits: a tool that is ready at once needs no timer.
        let mut passed = pin!(timer.limit().wait_for_end());
        let answered =
            poll_fn(|context| match call.as_mut().as_pin_mut().map(|it| it.poll(context)) {
                Some(Poll::Ready(answered)) => Poll::Ready(Some(answered)),
                _ => passed.as_mut().poll(context).map(|()| None),
            });
        match answered.await {
            // Code that blocks its thread delays its own timer.
            Some(answered) if timer.limit().is_past() => {
                drop_guarded(answered);
                (Err(timed_out(limit, &written_inside)), true)
            }
            Some(Ok(Ok(output))) => (check_new_output(&admitted, &context, output), false),
            Some(Ok(Err(error))) => (Err(printable(error)), false),
            Some(Err(panic)) => (Err(ToolError::Panicked(text::panic_message(panic))), false),
            None => {
                token.cancel();
                catch_drop_panic(|| call.set(None));
                (Err(timed_out(limit, &written_inside)), false)
            }
        }
    };
    let task = async move {
        // The task is woken when it is given up, so that the clock knows it is about to end.
        let ended = match select(pin!(call), pin!(answer.closed())).await {
            Either::Left((ended, _)) => ended,
            Either::Right(_) => return,
        };
        let (result, took_too_long) = ended;
        // A result from after the call was given up is discarded.
        if answer.send(result).is_err() || took_too_long {
            late();
        }
    };
    let task = if clock.tracks() || tracing::dispatcher::has_been_set() {
        // Spans of a tool belong to its call, in any task.
        let task = task.instrument(tracing::Span::current()).with_current_subscriber();
        tokio::spawn(clock.track(Box::pin(task)))
    } else {
        tokio::spawn(task)
    };
    let task = task.abort_handle();
    let _guard = StopOnDrop { task, cancel: Some(cancel) };
    match select(answered, pin!(dispatcher.limit().wait_for_end())).await {
        Either::Left((Ok(result), _)) => result,
        Either::Left((Err(_), _)) => Err(ToolError::Other("the tool's task was lost".into())),
        // It may have answered in time without having been polled until now.
        Either::Right(((), answered)) => match answered.now_or_never() {
            Some(Ok(result)) => result,
            _ => Err(timed_out(limit, &written)),
        },
    }
}

/// Asks a tool a question, within its limit; its code may panic.
pub(crate) async fn ask<T>(
    asked: AssertUnwindSafe<impl Future<Output = Result<T, ToolError>> + Send>,
    limit: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<T, ToolError> {
    let asked = Box::pin(asked.catch_unwind());
    match select(asked, clock.sleep(limit)).await {
        Either::Left((Ok(answer), _)) => answer.map_err(printable),
        Either::Left((Err(panic), _)) => Err(ToolError::Panicked(text::panic_message(panic))),
        Either::Right(((), asked)) => {
            drop_guarded(asked);
            Err(ToolError::timeout(limit))
        }
    }
}

/// Runs a call that only dispatches. Its child runs have their own limits and tasks.
pub(crate) async fn forward(
    admitted: Admitted,
    context: ToolContext,
) -> Result<JsonText, ToolError> {
    let tool = Arc::clone(admitted.tool());
    let call = AssertUnwindSafe(async { tool.call(&admitted.arguments, &context).await });
    match call.catch_unwind().await {
        Ok(Ok(output)) => check_new_output(&admitted, &context, output),
        Ok(Err(error)) => Err(printable(error)),
        Err(panic) => Err(ToolError::Panicked(text::panic_message(panic))),
    }
}

/// Returns the output of a tool, if it fits the schema; the recorded output of an earlier call was checked then.
fn check_new_output(
    admitted: &Admitted,
    context: &ToolContext,
    output: JsonText,
) -> Result<JsonText, ToolError> {
    match Dispatcher::from_context(context).and_then(Dispatcher::prior) {
        Some(_) => Ok(output),
        None => admitted.check_output(&output).map(|()| output),
    }
}

/// Returns the error of a call that took too long, with the tool's output so far.
fn timed_out(limit: Duration, written: &PartialOutput) -> ToolError {
    let error = ToolError::timeout(limit);
    match so_far(written) {
        Some(output) => error.with_output(output),
        None => error,
    }
}

/// Returns the tool's output so far, as read by its own code.
pub(super) fn so_far(written: &PartialOutput) -> Option<String> {
    let read = std::panic::catch_unwind(AssertUnwindSafe(|| written.so_far()));
    read.unwrap_or_else(|panic| {
        tracing::warn!("what a tool wrote cannot be read: {}", text::panic_message(panic));
        None
    })
}

/// Guard that stops the task when the driver no longer waits for it: the task ends at its next await even if the tool
/// ignores its cancellation token.
struct StopOnDrop {
    task: AbortHandle,
    /// Cancellation for code that blocks its thread.
    cancel: Option<DropGuard>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Before the abort, so that values dropped with the task can see the cancellation.
        drop(self.cancel.take());
        self.task.abort();
    }
}

/// Drops the application's code; a panic in its destructor has no further effect.
pub(crate) fn drop_guarded<T>(others: T) {
    catch_drop_panic(|| drop(others));
}

fn catch_drop_panic(drop: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(drop)) {
        // Computed outside the macro, which evaluates it only if there is a subscriber.
        let why = text::panic_message(panic);
        tracing::warn!("a future panicked when it was dropped: {why}");
    }
}

/// Returns the error if it can be printed; an error that cannot counts as a panic.
fn printable(error: ToolError) -> ToolError {
    let print = AssertUnwindSafe(|| drop(Chain(error.kind()).to_string()));
    match std::panic::catch_unwind(print) {
        Ok(()) => error,
        Err(panic) => {
            let why = format!("its error cannot be printed: {}", text::panic_message(panic));
            std::mem::forget(error);
            ToolError::Panicked(why)
        }
    }
}
