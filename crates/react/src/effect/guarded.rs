//! Running one tool: in a task of its own, with a limit and a panic guard.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_tool::{Admitted, ToolContext, ToolError, Written};
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

/// Runs an admitted call. `late` hears of an answer that came after the call was given up.
///
/// The tool runs in its own task, so that one that blocks its thread holds up neither its siblings
/// nor its own timeout; and it is timed there and here, so that neither a tool that blocks its thread
/// nor a driver that is busy with something else makes the limit longer. While all that it dispatched waits,
/// its time does not pass.
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
        // Begins when the tool first waits: one that is ready at once needs no timer.
        let mut passed = pin!(timer.limit().passed());
        let answered =
            poll_fn(|context| match call.as_mut().as_pin_mut().map(|it| it.poll(context)) {
                Some(Poll::Ready(answered)) => Poll::Ready(Some(answered)),
                _ => passed.as_mut().poll(context).map(|()| None),
            });
        match answered.await {
            // Code that blocks its thread holds up its own timer.
            Some(answered) if timer.limit().is_past() => {
                drop_guarded(answered);
                (Err(timed_out(limit, &written_inside)), true)
            }
            Some(Ok(Ok(output))) => (checked(&admitted, &context, output), false),
            Some(Ok(Err(error))) => (Err(printable(error)), false),
            Some(Err(panic)) => (Err(ToolError::Panicked(text::panicked(panic))), false),
            None => {
                token.cancel();
                guarded(|| call.set(None));
                (Err(timed_out(limit, &written_inside)), false)
            }
        }
    };
    let task = async move {
        // Given up, it is woken, so that the clock knows it is about to end.
        let ended = match select(pin!(call), pin!(answer.closed())).await {
            Either::Left((ended, _)) => ended,
            Either::Right(_) => return,
        };
        let (result, took_too_long) = ended;
        // What it returned after it was given up is discarded.
        if answer.send(result).is_err() || took_too_long {
            late();
        }
    };
    let task = if clock.tracks() || tracing::dispatcher::has_been_set() {
        // What a tool traces belongs to its call, in whichever task it runs.
        let task = task.instrument(tracing::Span::current()).with_current_subscriber();
        tokio::spawn(clock.track(Box::pin(task)))
    } else {
        tokio::spawn(task)
    };
    let task = task.abort_handle();
    let _guard = StopOnDrop { task, cancel: Some(cancel) };
    match select(answered, pin!(dispatcher.limit().passed())).await {
        Either::Left((Ok(result), _)) => result,
        Either::Left((Err(_), _)) => Err(ToolError::Other("the tool's task was lost".into())),
        // It may have answered in time, though that is only looked at now.
        Either::Right(((), answered)) => match answered.now_or_never() {
            Some(Ok(result)) => result,
            _ => Err(timed_out(limit, &written)),
        },
    }
}

/// Asks a tool something, within its limit; its code may panic.
pub(crate) async fn ask<T>(
    asked: AssertUnwindSafe<impl Future<Output = Result<T, ToolError>> + Send>,
    limit: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<T, ToolError> {
    let asked = Box::pin(asked.catch_unwind());
    match select(asked, clock.sleep(limit)).await {
        Either::Left((Ok(answer), _)) => answer.map_err(printable),
        Either::Left((Err(panic), _)) => Err(ToolError::Panicked(text::panicked(panic))),
        Either::Right(((), asked)) => {
            drop_guarded(asked);
            Err(ToolError::timeout(limit))
        }
    }
}

/// Runs a call that does nothing but dispatch. What it starts has its own time and its own task.
pub(crate) async fn forward(
    admitted: Admitted,
    context: ToolContext,
) -> Result<JsonText, ToolError> {
    let tool = Arc::clone(admitted.tool());
    let call = AssertUnwindSafe(async { tool.call(&admitted.arguments, &context).await });
    match call.catch_unwind().await {
        Ok(Ok(output)) => checked(&admitted, &context, output),
        Ok(Err(error)) => Err(printable(error)),
        Err(panic) => Err(ToolError::Panicked(text::panicked(panic))),
    }
}

/// Returns the output of a tool, if it fits; what another call answered was checked then.
fn checked(
    admitted: &Admitted,
    context: &ToolContext,
    output: JsonText,
) -> Result<JsonText, ToolError> {
    match Dispatcher::of(context).and_then(Dispatcher::prior) {
        Some(_) => Ok(output),
        None => admitted.check_output(&output).map(|()| output),
    }
}

/// Returns the error of a call that took too long, with what the tool has written so far.
fn timed_out(limit: Duration, written: &Written) -> ToolError {
    let error = ToolError::timeout(limit);
    match so_far(written) {
        Some(output) => error.with_output(output),
        None => error,
    }
}

/// Returns what a tool has written so far, as its own code reads it.
pub(super) fn so_far(written: &Written) -> Option<String> {
    let read = std::panic::catch_unwind(AssertUnwindSafe(|| written.so_far()));
    read.unwrap_or_else(|panic| {
        tracing::warn!("what a tool wrote cannot be read: {}", text::panicked(panic));
        None
    })
}

/// Stops the task when the driver no longer waits for it: aborting it ends it at its next await, even if
/// the tool never looks.
struct StopOnDrop {
    task: AbortHandle,
    /// Tells code that blocks its thread.
    cancel: Option<DropGuard>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // First, so that what is dropped with the task knows why.
        drop(self.cancel.take());
        self.task.abort();
    }
}

/// Drops the application's code; a panic there changes nothing any more.
pub(crate) fn drop_guarded<T>(others: T) {
    guarded(|| drop(others));
}

fn guarded(drop: impl FnOnce()) {
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(drop)) {
        // Not within the macro, which reads it only where there is a subscriber.
        let why = text::panicked(panic);
        tracing::warn!("a future panicked when it was dropped: {why}");
    }
}

/// Returns the error if it can be printed; one that cannot is as good as a panic.
fn printable(error: ToolError) -> ToolError {
    let print = AssertUnwindSafe(|| drop(Chain(error.kind()).to_string()));
    match std::panic::catch_unwind(print) {
        Ok(()) => error,
        Err(panic) => {
            let why = format!("its error cannot be printed: {}", text::panicked(panic));
            std::mem::forget(error);
            ToolError::Panicked(why)
        }
    }
}
