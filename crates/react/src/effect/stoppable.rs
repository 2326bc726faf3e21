//! Application code that ends when its step is stopped.

use crate::effect::guarded::drop_guarded;
use crate::effect::stop::StopFlag;

/// Awaits the application's code; drops it and returns `None` once the step is stopped.
pub(super) async fn unless_stopped<T>(
    stop: &StopFlag,
    work: impl Future<Output = T> + Send,
) -> Option<T> {
    let mut work = Box::pin(work);
    tokio::select! {
        biased;
        () = stop.wait() => {}
        end = &mut work => return Some(end),
    }
    drop_guarded(work);
    None
}
