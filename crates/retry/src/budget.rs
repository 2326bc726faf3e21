//! The budget of retries for an endpoint.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;

/// The calls that grant one retry.
const CALLS_PER_RETRY: u32 = 5;
/// The most calls that grant retries later.
const MAX_CALLS: u32 = 100 * CALLS_PER_RETRY;
/// The time in which the reserve is refilled by one retry.
const REFILL: Duration = Duration::from_secs(1);
/// The time in which the whole reserve is refilled: ten retries are granted without earlier calls.
const RESERVE: Duration = Duration::from_secs(10);

/// A limit of the retries of all runs that call one endpoint: at most a fifth of the calls, plus a
/// reserve of ten that refills by one a second. Clones share one budget.
///
/// With it, an endpoint that is down receives little more than its normal load, instead of a multiple.
#[derive(Clone)]
pub struct RetryBudget {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<BudgetState>>,
}

#[derive(Debug)]
struct BudgetState {
    /// The calls that have not granted a retry yet.
    calls: u32,
    /// The retries in reserve, as the time that refills them.
    reserve: Duration,
    /// The time of the last refill, in monotonic time.
    refilled: Duration,
}

impl RetryBudget {
    /// Makes a budget with a full reserve.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = BudgetState { calls: 0, reserve: RESERVE, refilled: clock.monotonic() };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Records a call.
    pub(crate) fn deposit(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls = state.calls.saturating_add(1).min(MAX_CALLS);
    }

    /// Withdraws one retry; returns whether there was one.
    pub(crate) fn withdraw(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        let passed = now.saturating_sub(state.refilled);
        state.reserve = state.reserve.saturating_add(passed).min(RESERVE);
        state.refilled = now;
        if let Some(rest) = state.calls.checked_sub(CALLS_PER_RETRY) {
            state.calls = rest;
            true
        } else if let Some(rest) = state.reserve.checked_sub(REFILL) {
            state.reserve = rest;
            true
        } else {
            false
        }
    }

    /// Returns a retry that was withdrawn and not made.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls = state.calls.saturating_add(CALLS_PER_RETRY).min(MAX_CALLS);
    }
}

impl fmt::Debug for RetryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_clock::VirtualClock;
    use layer0::Timestamp;

    /// Spec: R5
    #[tokio::test]
    async fn retry_budget_is_a_fifth_plus_ten() {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let budget = RetryBudget::new(Arc::new(clock.clone()));
        let granted = |tries: usize| (0..tries).filter(|_| budget.withdraw()).count();
        assert_eq!(granted(30), 10, "the reserve");
        (0..50).for_each(|_| budget.deposit());
        assert_eq!(granted(30), 10, "a fifth of fifty calls");

        let waiter = clock.clone();
        let (done, waited) = tokio::sync::oneshot::channel();
        tokio::spawn(clock.track(Box::pin(async move {
            waiter.sleep(Duration::from_secs(3)).await;
            let _ = done.send(());
        })));
        waited.await.unwrap();
        assert_eq!(granted(30), 3, "three seconds of refill");
        for by_ms in [3_600_000, -7_200_000, 7_200_000] {
            clock.set_time_of_day(by_ms);
            assert_eq!(granted(30), 0, "no time passed");
        }
    }

    /// Spec: R5
    #[test]
    fn returned_retry_is_granted_once() {
        let budget = RetryBudget::new(Arc::new(VirtualClock::starting_at(Timestamp::default())));
        let granted = || (0..1_000).filter(|_| budget.withdraw()).count();
        assert_eq!(granted(), 10, "the reserve");
        budget.give_back();
        assert_eq!(granted(), 1);
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(granted(), 100, "calls build up so much");
        (0..200).for_each(|_| budget.give_back());
        assert_eq!(granted(), 100);
    }
}
