//! Progress of calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, Limit};
use backstop_tool::People;
use layer0::id::CallId;
use rmcp::model::{ProgressNotificationParam, ProgressToken, RequestId};
use tokio::sync::RwLock;

/// Callback for the progress of calls.
pub(crate) type OnProgress = Arc<dyn Fn(CallProgress) + Send + Sync>;

/// Progress of a call, as reported by the server.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CallProgress {
    /// The server.
    pub server: String,
    /// The tool's name for the model.
    pub tool: String,
    /// The call.
    pub call_id: CallId,
    /// The amount of work done; it grows.
    pub progress: f64,
    /// The total amount of work, if it is known.
    pub total: Option<f64>,
    /// A description of the current work.
    pub message: Option<String>,
}

/// The calls of a connection that can receive progress.
#[derive(Debug, Default)]
pub(crate) struct ProgressRegistry(RwLock<HashMap<ProgressToken, ProgressCall>>);

/// A call that waits for its answer.
#[derive(Debug)]
struct ProgressCall {
    request: RequestId,
    watched: Arc<WatchedCall>,
}

/// A call that progress extends, and during which the server may ask a person.
pub(crate) struct WatchedCall {
    pub(crate) patience: Arc<Patience>,
    pub(crate) template: CallProgress,
    pub(crate) on_progress: Option<OnProgress>,
    /// The person to ask, if the call has one.
    pub(crate) people: Option<Arc<dyn People>>,
}

impl fmt::Debug for WatchedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedCall").field("call", &self.template.call_id).finish_non_exhaustive()
    }
}

impl ProgressRegistry {
    /// Sends a request and watches it; progress that arrives meanwhile waits.
    pub(crate) async fn watch<T, E>(
        &self,
        watched: Option<Arc<WatchedCall>>,
        key: impl FnOnce(&T) -> (ProgressToken, RequestId),
        send: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some(watched) = watched else { return send.await };
        let mut calls = self.0.write().await;
        let sent = send.await?;
        let (token, request) = key(&sent);
        calls.insert(token, ProgressCall { request, watched });
        Ok(sent)
    }

    /// Returns the call that a request of the server belongs to: the call that the transport names, or the only one.
    pub(crate) async fn find_call(&self, request: Option<&RequestId>) -> Option<Arc<WatchedCall>> {
        let calls = self.0.read().await;
        let mut of = calls.values().filter(|call| request.is_none_or(|id| *id == call.request));
        match (of.next(), of.next()) {
            (Some(call), None) => Some(Arc::clone(&call.watched)),
            _ => None,
        }
    }

    /// Forgets a request, immediately or after a request that is being sent.
    pub(crate) fn forget(self: &Arc<Self>, token: ProgressToken) {
        if let Ok(mut calls) = self.0.try_write() {
            calls.remove(&token);
            return;
        }
        let all = Arc::clone(self);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { drop(all.0.write().await.remove(&token)) });
        }
    }

    /// Handles a progress notification.
    pub(crate) async fn take(&self, said: ProgressNotificationParam) {
        let calls = self.0.read().await;
        let Some(watched) = calls.get(&said.progress_token).map(|call| Arc::clone(&call.watched))
        else {
            return;
        };
        drop(calls);
        watched.patience.renew();
        if let Some(on_progress) = &watched.on_progress {
            let ProgressNotificationParam { progress, total, message, .. } = said;
            on_progress(CallProgress { progress, total, message, ..watched.template.clone() });
        }
    }
}

/// The time limits of a call: without progress, and in total. Waits for a person count for neither.
#[derive(Debug)]
pub(crate) struct Patience {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    max: Duration,
    /// The total limit, independent of progress.
    total: Limit,
    state: Mutex<PatienceState>,
}

#[derive(Debug)]
struct PatienceState {
    /// Time of the last progress, in monotonic time.
    renewed: Duration,
    /// Number of current waits for a person.
    waits: u32,
}

impl Patience {
    pub(crate) fn new(clock: Arc<dyn Clock>, timeout: Duration, max: Duration) -> Arc<Self> {
        let total = Limit::new(Arc::clone(&clock), Some(max));
        let state = Mutex::new(PatienceState { renewed: clock.monotonic(), waits: 0 });
        Arc::new(Self { clock, timeout, max, total, state })
    }

    /// Restarts the time without progress.
    pub(crate) fn renew(&self) {
        self.state().renewed = self.clock.monotonic();
    }

    /// Waits for a person, without using time of the call.
    pub(crate) async fn while_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let _wait = UncountedWait::begin(self);
        work.await
    }

    /// Completes when a limit is reached, and returns it.
    pub(crate) async fn over(&self) -> Duration {
        tokio::select! {
            biased;
            () = self.total.wait_for_end() => self.max,
            () = self.until_silent() => self.timeout,
        }
    }

    /// Completes when there was no progress for too long.
    async fn until_silent(&self) {
        loop {
            let left = {
                let state = self.state();
                let until = state.renewed.saturating_add(self.timeout);
                let left = until.saturating_sub(self.clock.monotonic());
                if left.is_zero() && state.waits == 0 {
                    return;
                }
                left
            };
            // The end of a wait restarts the limit.
            self.clock.sleep(if left.is_zero() { self.timeout } else { left }).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, PatienceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for a person, during which the time of the call stops.
struct UncountedWait<'a>(&'a Patience);

impl<'a> UncountedWait<'a> {
    fn begin(patience: &'a Patience) -> Self {
        patience.state().waits += 1;
        patience.total.pause();
        Self(patience)
    }
}

impl Drop for UncountedWait<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waits -= 1;
        state.renewed = self.0.clock.monotonic();
        if state.waits == 0 {
            self.0.total.go_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use backstop_clock::VirtualClock;
    use layer0::Timestamp;

    use super::*;

    /// Returns the limit that was reached, and the time, if progress is made at this interval in seconds.
    async fn over(progress_every: Option<u64>) -> (u64, u64) {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let patience =
            Patience::new(Arc::clone(&shared), Duration::from_secs(10), Duration::from_secs(25));
        if let Some(every) = progress_every {
            let patience = Arc::clone(&patience);
            let shared = Arc::clone(&shared);
            tokio::spawn(clock.track(Box::pin(async move {
                for _ in 0..9 {
                    shared.sleep(Duration::from_secs(every)).await;
                    patience.renew();
                }
            })));
        }
        let (done, ended) = tokio::sync::oneshot::channel();
        tokio::spawn(clock.track(Box::pin(async move {
            let reached = patience.over().await;
            let _ = done.send((reached.as_secs(), shared.monotonic().as_secs()));
        })));
        ended.await.unwrap()
    }

    /// Spec: Q3
    #[tokio::test]
    async fn progress_extends_a_wait_to_its_end() {
        assert_eq!(over(None).await, (10, 10));
        assert_eq!(over(Some(8)).await, (25, 25));
        assert_eq!(over(Some(11)).await, (10, 10));
    }

    /// Spec: Q3, Q9
    #[tokio::test]
    async fn waits_for_people_take_no_time() {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let patience =
            Patience::new(Arc::clone(&shared), Duration::from_secs(10), Duration::from_secs(25));
        let asks = |from: u64, takes: u64| {
            let (patience, shared) = (Arc::clone(&patience), Arc::clone(&shared));
            async move {
                shared.sleep(Duration::from_secs(from)).await;
                patience.while_waiting(shared.sleep(Duration::from_secs(takes))).await;
            }
        };
        for work in [asks(5, 3_600), asks(1_000, 10_000), asks(11_005, 100)] {
            tokio::spawn(clock.track(Box::pin(work)));
        }
        let (done, ended) = tokio::sync::oneshot::channel();
        tokio::spawn(clock.track(Box::pin(async move {
            let reached = patience.over().await;
            let _ = done.send((reached.as_secs(), shared.monotonic().as_secs()));
        })));
        // Five seconds before the first wait, five between the two, ten after the last.
        assert_eq!(ended.await.unwrap(), (10, 11_115));
    }
}
