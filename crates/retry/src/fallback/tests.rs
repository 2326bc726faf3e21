use super::*;

use std::sync::atomic::{AtomicU32, Ordering};

use clock::VirtualClock;
use layer0::Timestamp;
use layer0::failure::{CircuitOpen, Effect, Retry};
use tower::{Layer, service_fn};

use crate::{Breaker, BreakerConfig};

/// A failure of a kind that this crate does not know.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("it failed")]
struct Odd {
    elsewhere: bool,
    counts_against: bool,
}

impl Failure for Odd {
    fn code(&self) -> &'static str {
        "test.odd"
    }
    fn retry(&self) -> Retry {
        Retry::Never
    }
    fn effect(&self) -> Effect {
        Effect::None
    }
    fn elsewhere(&self) -> bool {
        self.elsewhere
    }
    fn counts_against(&self) -> bool {
        self.counts_against
    }
}

impl From<CircuitOpen> for Odd {
    fn from(_: CircuitOpen) -> Self {
        Self { elsewhere: true, counts_against: false }
    }
}

#[derive(Clone)]
struct Call;

impl FallbackRequest<Odd> for Call {
    fn next(&self, _: &Odd) -> BoxFuture<Option<Self>> {
        Box::pin(std::future::ready(Some(Self)))
    }
}

/// Returns how many services were asked.
async fn asked(error: Odd) -> u32 {
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let service = service_fn(move |_: Call| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err::<(), _>(error))
    });
    let fallback = Fallback::new(vec![service.clone()], service);
    fallback.oneshot(Call).await.unwrap_err();
    asked.load(Ordering::Relaxed)
}

/// Spec: E14, R7
#[tokio::test]
async fn any_failure_says_whether_another_may_do_better() {
    assert_eq!(asked(Odd { elsewhere: true, counts_against: false }).await, 2);
    assert_eq!(asked(Odd { elsewhere: false, counts_against: true }).await, 1);
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
            std::future::ready(Err::<(), _>(Odd { elsewhere: false, counts_against }))
        }));
        for _ in 0..6 {
            service.clone().oneshot(Call).await.unwrap_err();
        }
        assert_eq!(calls.load(Ordering::Relaxed), reached);
    }
}
