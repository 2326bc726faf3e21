//! Endpoints of one model: whose turn it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_provider::Provider;
use backstop_retry::{RetryPolicy, Taken};
use layer0::failure::Retry;

use crate::endpoint::Endpoint;
use crate::upstream::{Upstream, attempt_labels};

/// The endpoints of one model; mostly there is one.
pub(crate) struct Pool {
    /// At least one.
    endpoints: Box<[Endpoint]>,
    /// Where the next turn begins.
    turn: AtomicUsize,
}

/// The providers of an agent, in the order they are asked.
pub(crate) type ModelStack = Box<[Pool]>;

/// Builds the stacks around providers, of which each pool is asked when the one before it could not answer.
pub(crate) fn stack(
    pools: Vec<Vec<Upstream>>,
    stream: bool,
    retry: &RetryPolicy,
    attempt_timeout: Duration,
    clock: &Arc<dyn Clock>,
) -> ModelStack {
    let providers: Vec<&dyn Provider> =
        pools.iter().flatten().map(|upstream| &*upstream.provider).collect();
    let mut labels = attempt_labels(&providers).into_iter();
    let mut endpoint = |upstream| {
        let label = labels.next().unwrap_or_default();
        Endpoint::new(upstream, label, stream, retry, attempt_timeout, clock)
    };
    let pool = |pool: Vec<Upstream>| Pool::new(pool.into_iter().map(&mut endpoint).collect());
    pools.into_iter().map(pool).collect()
}

/// The endpoint whose turn it is.
pub(crate) struct Picked<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// The request, or how long no endpoint takes one.
    pub(crate) taken: Result<Taken, Duration>,
}

impl Pool {
    pub(crate) fn new(endpoints: Box<[Endpoint]>) -> Self {
        Self { endpoints, turn: AtomicUsize::new(0) }
    }

    /// Returns the endpoint that events name before one is picked.
    pub(crate) fn first(&self) -> Option<&Endpoint> {
        self.endpoints.first()
    }

    /// Waits for an endpoint that takes a request, if that is not longer than `patience`. Of those that do
    /// at once, the one with the fewest requests in flight is picked, and among equals they take turns.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken when the future is dropped.
    pub(crate) async fn pick(
        &self,
        clock: &dyn Clock,
        mut patience: Duration,
    ) -> Option<Picked<'_>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        loop {
            let in_turn = (0..self.endpoints.len())
                .map(|place| &self.endpoints[turn.wrapping_add(place) % self.endpoints.len()]);
            let endpoint = in_turn.min_by_key(|it| (it.rate.wait(), it.rate.in_flight()))?;
            match endpoint.rate.try_take() {
                Err(wait) if wait <= patience => {
                    tracing::info!(endpoint = %endpoint.label, ?wait, "waiting for the rate limit");
                    patience = patience.saturating_sub(wait);
                    clock.sleep(wait).await;
                }
                taken => return Some(Picked { endpoint, taken }),
            }
        }
    }

    /// Leaves an endpoint alone that refused, if there are others.
    pub(crate) fn let_rest(&self, endpoint: &Endpoint, retry: Retry) {
        if self.endpoints.len() > 1 {
            endpoint.rate.rest(match retry {
                Retry::After(hint) => Some(hint),
                Retry::Backoff | Retry::Never => None,
            });
        }
    }

    /// Returns how many others there are, where one of them is free.
    pub(crate) fn beside(&self, endpoint: &Endpoint) -> u32 {
        let mut others = self.endpoints.iter().filter(|other| !std::ptr::eq(*other, endpoint));
        if others.any(|other| other.rate.wait().is_zero()) {
            u32::try_from(self.endpoints.len() - 1).unwrap_or(u32::MAX)
        } else {
            0
        }
    }
}
