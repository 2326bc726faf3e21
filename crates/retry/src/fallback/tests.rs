use super::*;

use std::sync::atomic::{AtomicU32, Ordering};

use backstop_clock::VirtualClock;
use layer0::Timestamp;
use layer0::failure::{CircuitOpen, Effect, Elsewhere, Facts};
use tower::{Layer, ServiceExt, service_fn};

use crate::{Breaker, BreakerConfig, RetryConfig, RetryPolicy};

/// A failure of a kind that this crate does not know.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it failed")]
struct Odd {
    elsewhere: Elsewhere,
    counts_against: bool,
}

impl Failure for Odd {
    fn facts(&self) -> Facts {
        Facts::never("test.odd", Effect::None)
            .with_elsewhere(self.elsewhere)
            .with_counts_against(self.counts_against)
    }
}

impl From<Exhausted<Odd>> for Odd {
    fn from(exhausted: Exhausted<Odd>) -> Self {
        exhausted.last
    }
}

impl From<CircuitOpen> for Odd {
    fn from(_: CircuitOpen) -> Self {
        Self { elsewhere: Elsewhere::AtOnce, counts_against: false }
    }
}

#[derive(Clone)]
struct Call;

impl RetryRequest<Odd> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// Returns the number of services called.
async fn count_requests(error: Odd) -> u32 {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let service = service_fn(move |_: Call| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err::<(), _>(error))
    });
    let clock = VirtualClock::starting_at(Timestamp::default());
    let retry = RetryPolicy::new(RetryConfig::default(), Arc::new(clock)).layer();
    let fallback = Fallback::new(retry.layer(service.clone()), [retry.layer(service)]);
    fallback.oneshot(Call).await.unwrap_err();
    asked.load(Ordering::Relaxed)
}

/// Spec: E14, R7
#[tokio::test]
async fn any_failure_says_whether_another_may_do_better() {
    assert_eq!(
        count_requests(Odd { elsewhere: Elsewhere::AtOnce, counts_against: false }).await,
        2
    );
    assert_eq!(count_requests(Odd { elsewhere: Elsewhere::Never, counts_against: true }).await, 1);
}

/// Spec: E14, R7
#[tokio::test]
async fn any_failure_says_whether_it_opens_a_circuit() {
    for (counts_against, reached) in [(true, 2), (false, 6)] {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let config = BreakerConfig { failures: 2, ..BreakerConfig::default() };
        let breaker = Breaker::new(config, Arc::new(clock));
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let service = breaker.layer().layer(service_fn(move |_: Call| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Err::<(), _>(Odd { elsewhere: Elsewhere::Never, counts_against }))
        }));
        for _ in 0..6 {
            service.clone().oneshot(Call).await.unwrap_err();
        }
        assert_eq!(calls.load(Ordering::Relaxed), reached);
    }
}
