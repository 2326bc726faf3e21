//! Checks of work that is dropped before its end.

use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;

/// Turns of the runtime after which a task that was aborted is gone.
const TURNS: usize = 64;

/// Polls a future this often, and drops it.
pub(super) async fn drop_after(polls: usize, work: impl Future) {
    let mut work = pin!(work);
    for _ in 0..polls {
        let is_over = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready()));
        if is_over.await {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Lets the other tasks of the runtime run.
pub(super) async fn let_others_run() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Asserts that dropped work leaves no task in the runtime, wherever it is dropped. `work` must not be the first of its
/// kind: connections and caches may outlive it.
pub(super) async fn assert_leaves_no_task<W: Future>(mut work: impl FnMut() -> W) {
    let_others_run().await;
    let before = Handle::current().metrics().num_alive_tasks();
    for polls in 1..4 {
        drop_after(polls, work()).await;
        let_others_run().await;
        let after = Handle::current().metrics().num_alive_tasks();
        assert!(after <= before, "{} tasks outlive the dropped future", after - before);
    }
}
