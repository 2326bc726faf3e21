//! A circuit breaker: an endpoint that fails again and again is left alone for a while.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use clock::Clock;
use layer0::failure::{CircuitOpen, Failure};
use layer0::{Timestamp, code};
use tower::util::Oneshot;
use tower::{Layer, Service, ServiceExt};

/// How patient a [`Breaker`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// How many failures in a row open it; at least 1.
    pub failures: u32,
    /// How long it stays open before it lets a probe through.
    pub open_for: Duration,
}

impl Default for BreakerConfig {
    /// 5 failures, 30 s.
    fn default() -> Self {
        Self { failures: 5, open_for: Duration::from_secs(30) }
    }
}

/// Counts the failures of one endpoint; clones share the count.
///
/// It opens after several transient failures in a row, and then refuses calls without making them.
/// After a while one call is let through as a probe: it closes the breaker, or opens it again. What
/// is the caller's mistake, or asks to slow down, shows that the endpoint is alive and closes it too;
/// a call that was dropped says nothing.
#[derive(Clone)]
pub struct Breaker {
    config: BreakerConfig,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many failed in a row.
    Closed {
        failures: u32,
    },
    Open {
        until: Timestamp,
    },
    /// A probe is on its way.
    HalfOpen,
}

impl Breaker {
    /// Makes a closed breaker.
    #[must_use]
    pub fn new(config: BreakerConfig, clock: Arc<dyn Clock>) -> Self {
        let config = BreakerConfig { failures: config.failures.max(1), ..config };
        Self { config, clock, state: Arc::new(Mutex::new(State::Closed { failures: 0 })) }
    }

    /// Makes the layer.
    #[must_use]
    pub fn layer(self) -> BreakerLayer {
        BreakerLayer(self)
    }

    /// Lets a call through, or says how long to wait.
    fn admit(&self) -> Result<Ticket, CircuitOpen> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let probe = match *state {
            State::Closed { .. } => false,
            State::Open { until } if now < until => {
                return Err(CircuitOpen { retry_after: until.since(now) });
            }
            State::Open { .. } => {
                *state = State::HalfOpen;
                true
            }
            State::HalfOpen => return Err(CircuitOpen { retry_after: self.config.open_for }),
        };
        Ok(Ticket { breaker: self.clone(), probe, told: false })
    }

    fn closes(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Closed { failures: 0 };
    }

    fn failed(&self, probe: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = match *state {
            State::Closed { failures } => failures + 1,
            State::HalfOpen if probe => self.config.failures,
            // A call that began before it opened.
            State::Open { .. } | State::HalfOpen => return,
        };
        *state = if failures >= self.config.failures {
            let until = self.clock.now().after(self.config.open_for);
            tracing::warn!(failures, ?until, "circuit opens");
            State::Open { until }
        } else {
            State::Closed { failures }
        };
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A call that was let through.
#[derive(Debug)]
struct Ticket {
    breaker: Breaker,
    probe: bool,
    told: bool,
}

impl Ticket {
    fn tell<T, E: Failure>(mut self, result: &Result<T, E>) {
        self.told = true;
        match result {
            Err(error) if is_transient(error) => self.breaker.failed(self.probe),
            _ => self.breaker.closes(),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.probe && !self.told {
            // Whoever comes next is the probe.
            let mut state = self.breaker.state.lock().unwrap_or_else(PoisonError::into_inner);
            *state = State::Open { until: self.breaker.clock.now() };
        }
    }
}

/// Is the endpoint in trouble?
fn is_transient(error: &impl Failure) -> bool {
    error.retry().is_retryable() && error.code() != code::PROVIDER_RATE_LIMITED
}

/// Wraps a service with a [`Breaker`]. Stands inside retry, around one attempt.
#[derive(Debug, Clone)]
pub struct BreakerLayer(Breaker);

impl<S> Layer<S> for BreakerLayer {
    type Service = CircuitBreaker<S>;

    fn layer(&self, inner: S) -> CircuitBreaker<S> {
        CircuitBreaker { inner, breaker: self.0.clone() }
    }
}

/// The service [`BreakerLayer`] makes.
#[derive(Debug, Clone)]
pub struct CircuitBreaker<S> {
    inner: S,
    breaker: Breaker,
}

impl<S, Req> Service<Req> for CircuitBreaker<S>
where
    S: Service<Req> + Clone,
    S::Error: Failure + From<CircuitOpen>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Guarded<Oneshot<S, Req>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // What stands inside is waited for once a call is admitted: one that is refused takes no
        // place from others.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        Guarded(match self.breaker.admit() {
            Ok(ticket) => Ok((self.inner.clone().oneshot(request), Some(ticket))),
            Err(open) => Err(open),
        })
    }
}

/// The future of a [`CircuitBreaker`].
pub struct Guarded<F>(Result<(F, Option<Ticket>), CircuitOpen>);

impl<F, T, E> Future for Guarded<F>
where
    F: Future<Output = Result<T, E>> + Unpin,
    E: Failure + From<CircuitOpen>,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Err(open) => Poll::Ready(Err((*open).into())),
            Ok((attempt, ticket)) => {
                let result = std::task::ready!(Pin::new(attempt).poll(cx));
                if let Some(ticket) = ticket.take() {
                    ticket.tell(&result);
                }
                Poll::Ready(result)
            }
        }
    }
}

impl<F> fmt::Debug for Guarded<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("admitted", &self.0.is_ok()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use clock::VirtualClock;
    use layer0::error::{OperatorError, OrchError};

    fn breaker() -> (Breaker, VirtualClock) {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let config = BreakerConfig { failures: 3, open_for: Duration::from_secs(10) };
        (Breaker::new(config, Arc::new(clock.clone())), clock)
    }

    fn tell(breaker: &Breaker, result: Result<(), OrchError>) -> Result<(), CircuitOpen> {
        breaker.admit().map(|ticket| ticket.tell(&result))
    }

    fn transient() -> Result<(), OrchError> {
        Err(OperatorError::Retryable("busy".into()).into())
    }

    fn mistake() -> Result<(), OrchError> {
        Err(OrchError::OperatorNotFound("x".into()))
    }

    async fn pass(clock: &VirtualClock, seconds: u64) {
        let (waiter, (done, waited)) = (clock.clone(), tokio::sync::oneshot::channel());
        tokio::spawn(clock.track(Box::pin(async move {
            waiter.sleep(Duration::from_secs(seconds)).await;
            let _ = done.send(());
        })));
        waited.await.unwrap();
    }

    /// Spec: R7
    #[tokio::test]
    async fn it_opens_after_failures_in_a_row_and_probes_once() {
        let (breaker, clock) = breaker();
        for result in [transient(), transient(), Ok(()), transient(), transient()] {
            tell(&breaker, result).unwrap();
        }
        tell(&breaker, transient()).unwrap();
        let wait = Duration::from_secs(10);
        assert_eq!(tell(&breaker, Ok(())), Err(CircuitOpen { retry_after: wait }));
        pass(&clock, 4).await;
        let wait = Duration::from_secs(6);
        assert_eq!(tell(&breaker, Ok(())), Err(CircuitOpen { retry_after: wait }));
        pass(&clock, 6).await;
        let probe = breaker.admit().unwrap();
        assert!(breaker.admit().is_err(), "one probe at a time");
        probe.tell(&transient());
        assert!(breaker.admit().is_err(), "it is open again");
        pass(&clock, 10).await;
        tell(&breaker, Ok(())).unwrap();
        for _ in 0..3 {
            tell(&breaker, transient()).expect("it was closed");
        }
        assert!(breaker.admit().is_err());
    }

    /// Spec: R7
    #[tokio::test]
    async fn the_callers_mistakes_do_not_open_it() {
        let (breaker, _) = breaker();
        for _ in 0..5 {
            tell(&breaker, transient()).unwrap();
            tell(&breaker, transient()).unwrap();
            tell(&breaker, mistake()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_probe_that_is_dropped_leaves_its_place() {
        let (breaker, clock) = breaker();
        (0..3).for_each(|_| tell(&breaker, transient()).unwrap());
        pass(&clock, 10).await;
        drop(breaker.admit().unwrap());
        tell(&breaker, Ok(())).unwrap();
        tell(&breaker, Ok(())).unwrap();
    }
}
