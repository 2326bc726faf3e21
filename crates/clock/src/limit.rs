use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{BoxFuture, Clock};

/// A time limit for work, without the waits that count for no timeout.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use backstop_clock::{Limit, SystemClock};
///
/// let limit = Limit::new(Arc::new(SystemClock), Some(Duration::from_secs(5)));
/// limit.pause();
/// assert!(limit.time_left() <= Some(Duration::from_secs(5)));
/// limit.go_on();
/// ```
pub struct Limit {
    clock: Arc<dyn Clock>,
    state: Mutex<LimitState>,
}

struct LimitState {
    /// The end of the time, in monotonic time; `None` without a limit.
    until: Option<Duration>,
    paused_since: Option<Duration>,
    /// The tasks that wait for the end.
    waiters: Vec<Waker>,
}

impl Limit {
    /// Starts the time now; `None` means without a limit.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, limit: Option<Duration>) -> Self {
        let until = limit.map(|limit| clock.monotonic().saturating_add(limit));
        let state = LimitState { until, paused_since: None, waiters: Vec::new() };
        Self { clock, state: Mutex::new(state) }
    }

    /// Pauses the limit until [`Limit::go_on`] is called.
    pub fn pause(&self) {
        let now = self.clock.monotonic();
        self.state().paused_since.get_or_insert(now);
    }

    /// Resumes the time after a pause.
    pub fn go_on(&self) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        let Some(since) = state.paused_since.take() else { return };
        state.until = state.until.map(|until| until.saturating_add(now.saturating_sub(since)));
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Returns the time left if a pause ended now; `None` without a limit.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let state = self.state();
        let now = state.paused_since.unwrap_or_else(|| self.clock.monotonic());
        state.until.map(|until| until.saturating_sub(now))
    }

    /// Returns whether the end of the time has passed.
    #[must_use]
    pub fn is_past(&self) -> bool {
        let state = self.state();
        let now = state.paused_since.unwrap_or_else(|| self.clock.monotonic());
        state.until.is_some_and(|until| now > until)
    }

    /// Completes when the time has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_for_end(&self) {
        let mut sleep: Option<BoxFuture> = None;
        poll_fn(|context| self.poll_passed(&mut sleep, context)).await;
    }

    fn poll_passed(&self, sleep: &mut Option<BoxFuture>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            {
                let mut state = self.state();
                let until = state.until.filter(|_| state.paused_since.is_none());
                let Some(until) = until else {
                    *sleep = None;
                    if !state.waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                        state.waiters.push(context.waker().clone());
                    }
                    return Poll::Pending;
                };
                let rest = until.saturating_sub(self.clock.monotonic());
                if rest.is_zero() {
                    return Poll::Ready(());
                }
                sleep.get_or_insert_with(|| self.clock.sleep(rest));
            }
            // After the sleep, the loop accounts for pauses made meanwhile.
            match sleep.as_mut().map(|sleep| sleep.as_mut().poll(context)) {
                Some(Poll::Ready(())) => *sleep = None,
                Some(Poll::Pending) | None => return Poll::Pending,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("left", &self.time_left()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use layer0::Timestamp;

    use super::*;
    use crate::VirtualClock;

    /// Spec: O2
    #[tokio::test]
    async fn a_pause_moves_the_end() {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let limit = Arc::new(Limit::new(Arc::clone(&shared), Some(Duration::from_secs(5))));
        let (done, ended) = tokio::sync::oneshot::channel();
        let (timer, waits) = (Arc::clone(&limit), Arc::clone(&shared));
        tokio::spawn(clock.track(Box::pin(async move {
            waits.sleep(Duration::from_secs(3)).await;
            timer.pause();
            timer.pause();
            waits.sleep(Duration::from_secs(60)).await;
            assert_eq!(timer.time_left(), Some(Duration::from_secs(2)));
            timer.go_on();
        })));
        tokio::spawn(clock.track(Box::pin(async move {
            limit.wait_for_end().await;
            assert_eq!(limit.time_left(), Some(Duration::ZERO));
            let _ = done.send(());
        })));
        ended.await.unwrap();
        assert_eq!(clock.monotonic(), Duration::from_secs(65));
    }

    #[test]
    fn what_has_no_end_keeps_none() {
        let limit = Limit::new(Arc::new(crate::SystemClock), None);
        limit.pause();
        limit.go_on();
        assert_eq!(limit.time_left(), None);
    }
}
