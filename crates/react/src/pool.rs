//! The endpoints of one model, and the choice among them.

mod failures;
mod refusal;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_provider::{Provider, ProviderError};
use backstop_retry::{RatePermit, RetryConfig, RetryPolicy};
use layer0::failure::{Elsewhere, Failure, Retry};

use crate::endpoint::ModelEndpoint;
use crate::upstream::{Upstream, attempt_labels};

pub(crate) use failures::{LeftProvider, PoolFailures};
pub(crate) use refusal::LastRefusal;

/// The endpoints of one model, usually only one.
pub(crate) struct EndpointPool {
    /// At least one endpoint.
    endpoints: Box<[ModelEndpoint]>,
    /// Start of the next turn.
    turn: AtomicUsize,
}

/// The providers of an agent, in the order of their use.
pub(crate) type ModelStack = Box<[EndpointPool]>;

/// Builds the service stacks of the providers. A pool is used if the one before it could not answer.
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
        ModelEndpoint::new(upstream, label, stream, retry, attempt_timeout, clock)
    };
    let pool =
        |pool: Vec<Upstream>| EndpointPool::new(pool.into_iter().map(&mut endpoint).collect());
    pools.into_iter().map(pool).collect()
}

/// An endpoint that was picked for a request.
pub(crate) struct Picked<'a> {
    pub(crate) endpoint: &'a ModelEndpoint,
    /// Its index in the pool.
    pub(crate) place: usize,
    /// The request, or the reason that none is sent.
    pub(crate) taken: Result<RatePermit, ProviderError>,
    /// Time that the call waited for it.
    pub(crate) waited: Duration,
}

/// The state of a call for picking an endpoint.
pub(crate) struct Picking<'a> {
    pub(crate) config: &'a RetryConfig,
    pub(crate) clock: &'a dyn Clock,
    /// Failures of endpoints in this call.
    pub(crate) failures: &'a PoolFailures,
    /// The time of the call, and of its first attempt at this pool.
    pub(crate) elapsed: Duration,
    pub(crate) began: Duration,
    /// Whether another provider follows the pool.
    pub(crate) has_next: bool,
}

/// Availability of the other endpoints of a pool.
#[derive(Default)]
pub(crate) struct Others {
    /// Whether an endpoint is free that the call has not asked yet.
    pub(crate) is_free: bool,
    /// Whether an endpoint that the call has not asked is unavailable for longer than the call waits. It can be asked
    /// as a probe.
    pub(crate) can_probe: bool,
    /// Whether an endpoint that the call has not asked was left before for a reason to ask another provider.
    pub(crate) leads_on: bool,
    /// Time until an endpoint is available.
    pub(crate) wait: Option<Duration>,
}

impl Picking<'_> {
    /// Returns the refusal for which an endpoint is not waited for.
    fn left_for(&self, endpoint: &ModelEndpoint) -> Option<ProviderError> {
        endpoint.refusal.left_for(&endpoint.rate).filter(|_| self.has_next)
    }

    /// Returns the time for which the call may wait: as long as for a hint, and never past the deadline.
    fn patience(&self) -> Duration {
        let deadline = Duration::from_millis(self.config.deadline_ms);
        let left = deadline.saturating_sub(self.elapsed.saturating_sub(self.began));
        self.longest_wait().min(left)
    }

    const fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.config.max_retry_after_ms)
    }
}

impl EndpointPool {
    pub(crate) fn new(endpoints: Box<[ModelEndpoint]>) -> Self {
        Self { endpoints, turn: AtomicUsize::new(0) }
    }

    /// Returns the endpoint that events name before one is picked.
    pub(crate) fn first(&self) -> Option<&ModelEndpoint> {
        self.endpoints.first()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&ModelEndpoint> {
        self.endpoints.get(place)
    }

    /// Waits for an endpoint that takes a request, as long as the call may wait. Of the endpoints that take it at once,
    /// the call picks the one that it asked least, among those the one with the fewest requests in flight, and among
    /// equals they take turns. If each is unavailable for longer than the maximum wait for a hint, one request is sent
    /// as a probe. If another provider follows the pool, an endpoint that was left for such a reason is not waited for:
    /// the refusal of an earlier call is the reason that no request is sent.
    ///
    /// # Cancel safety
    ///
    /// Nothing is taken when the future is dropped.
    pub(crate) async fn pick(&self, picking: Picking<'_>) -> Option<Picked<'_>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        loop {
            let now = picking.elapsed.saturating_add(waited);
            let (place, endpoint) = self.choose(turn, &picking, now)?;
            let wait = match picking.failures.wait(place, now) {
                Duration::ZERO => match Self::take(endpoint, &picking) {
                    Ok(taken) => return Some(Picked { endpoint, place, taken: Ok(taken), waited }),
                    Err(wait) => wait,
                },
                asked => asked,
            };
            if let Some(refusal) = picking.left_for(endpoint).filter(leads_on) {
                return Some(Picked { endpoint, place, taken: Err(refusal), waited });
            }
            if waited.saturating_add(wait) > picking.patience() {
                let wait = Some(endpoint.rate.wait().max(wait));
                let taken =
                    Err(ProviderError::rate_limited("no request is left of its limit", wait));
                return Some(Picked { endpoint, place, taken, waited });
            }
            tracing::info!(endpoint = %endpoint.label, ?wait, "waiting for the rate limit");
            waited = waited.saturating_add(wait);
            picking.clock.sleep(wait).await;
        }
    }

    /// Takes a request of an endpoint, as a probe if the wait would be too long.
    fn take(endpoint: &ModelEndpoint, picking: &Picking<'_>) -> Result<RatePermit, Duration> {
        match endpoint.rate.try_take() {
            Err(wait) if wait > picking.longest_wait() => endpoint.rate.try_probe(),
            taken => taken,
        }
    }

    fn choose(
        &self,
        turn: usize,
        picking: &Picking<'_>,
        now: Duration,
    ) -> Option<(usize, &ModelEndpoint)> {
        let count = self.endpoints.len();
        let in_turn = (0..count).map(|place| turn.wrapping_add(place) % count);
        let key = |place: &usize| {
            let (endpoint, failures) = (&self.endpoints[*place], picking.failures);
            let wait = endpoint.rate.wait().max(failures.wait(*place, now));
            let (sent, refused) = failures.counts(*place);
            let is_ruled_out = failures.is_ruled_out(*place, picking.config);
            let refusal = picking.left_for(endpoint);
            // Endpoints that are not waited for come last, those that refused their key behind the others.
            let is_left = (refusal.is_some(), refusal.is_some_and(|refusal| !leads_on(&refusal)));
            (is_ruled_out, is_left, wait, sent.saturating_add(refused), endpoint.rate.in_flight())
        };
        let place = in_turn.min_by_key(key)?;
        Some((place, self.endpoints.get(place)?))
    }

    /// Stops using an endpoint that refused for a while, if there are others.
    pub(crate) fn let_rest(&self, endpoint: &ModelEndpoint, error: &ProviderError) {
        if self.endpoints.len() > 1 {
            endpoint.refusal.record(error);
            endpoint.rate.rest(match error.facts().retry {
                Retry::After(hint) => Some(hint),
                Retry::Backoff | Retry::Never => None,
            });
        }
    }

    /// Returns the availability of the endpoints other than the one at `place`. If another provider follows the pool,
    /// an endpoint whose failure makes another provider the better choice is not waited for, whichever call met it.
    pub(crate) fn others(&self, place: usize, picking: &Picking<'_>) -> Others {
        let mut others = Others::default();
        for (other, endpoint) in self.endpoints.iter().enumerate() {
            if other == place || picking.failures.is_ruled_out(other, picking.config) {
                continue;
            }
            let asked = picking.failures.wait(other, picking.elapsed);
            let wait = endpoint.rate.wait().max(asked);
            let failure = picking.failures.find(other).map(|known| known.facts(picking.elapsed));
            let left_for = picking.left_for(endpoint).filter(|_| failure.is_none());
            if let Some(refusal) = left_for {
                others.leads_on |= leads_on(&refusal);
                continue;
            }
            others.is_free |= failure.is_none() && wait.is_zero();
            others.can_probe |= failure.is_none() && wait > picking.longest_wait();
            if picking.has_next && failure.is_some_and(|facts| facts.elsewhere == Elsewhere::AtOnce)
            {
                continue;
            }
            others.wait = Some(others.wait.map_or(wait, |known| known.min(wait)));
        }
        others
    }
}

/// Returns whether another provider is asked after a refusal.
fn leads_on(refusal: &ProviderError) -> bool {
    refusal.facts().elsewhere.is_possible()
}
