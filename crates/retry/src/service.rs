//! A service that is asked again, and others behind it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Either, select};
use layer0::failure::{ErrorText, Exhausted, Failure};
use tower::{Layer, Service, ServiceExt};

use crate::policy::{Decision, RetryPolicy, Tried};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What retry and fallback ask of a request; its clones are its attempts.
pub trait RetryRequest<E>: Clone {
    /// May the request be repeated even if an attempt acted?
    fn is_idempotent(&self) -> bool;

    /// Limits the attempts at all endpoints together further than the configuration does.
    fn max_attempts(&self) -> Option<u32> {
        None
    }

    /// Returns how long it may take until the next attempt begins; a longer wait is not begun.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Hears of a failed attempt that will be followed by another. The wait begins when the
    /// returned future is done. Where that fails there is no other attempt, and its failure is the
    /// request's.
    fn attempted(&self, attempt: FailedAttempt<'_, E>) -> Option<BoxFuture<Result<(), E>>> {
        let _ = attempt;
        None
    }

    /// Completes when no other attempt is wanted: a wait ends with it, and the last failure is the
    /// request's.
    fn given_up(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// Hears what an endpoint failed with after another one had failed with `earlier`. Where `error`
    /// says that the endpoint was not even asked, `earlier` belongs into its chain.
    fn keep_earlier(&self, error: &mut E, earlier: &ErrorText) {
        let _ = (error, earlier);
    }
}

/// An attempt that failed and will be followed by another.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a, E> {
    /// Which attempt, those at other endpoints included: 1, 2, ….
    pub number: u32,
    /// What it failed with.
    pub error: &'a E,
    /// The wait that follows; none where the next endpoint is asked.
    pub delay: Duration,
}

impl RetryPolicy {
    /// Makes the layer.
    #[must_use]
    pub const fn layer(self) -> RetryLayer {
        RetryLayer::new(self)
    }
}

/// Wraps a service so that its failures are retried as a [`RetryPolicy`] decides.
#[derive(Debug, Clone)]
pub struct RetryLayer(RetryPolicy);

impl RetryLayer {
    pub(crate) const fn new(policy: RetryPolicy) -> Self {
        Self(policy)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { policy: self.0.clone(), inner }
    }
}

/// The service [`RetryLayer`] makes: one endpoint and its policy.
#[derive(Debug, Clone)]
pub struct Retry<S> {
    policy: RetryPolicy,
    inner: S,
}

impl<S, Req> Service<Req> for Retry<S>
where
    S: Service<Req> + Clone + Send + Sync + 'static,
    S::Error: Failure + From<Exhausted<S::Error>> + Send + Sync + 'static,
    S::Response: Send,
    S::Future: Send,
    Req: RetryRequest<S::Error> + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The service is waited for before each attempt.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { ask(&endpoint, &[], request).await })
    }
}

/// Asks endpoints in turn, each as often as its policy says.
pub(crate) async fn ask<S, Req>(
    first: &Retry<S>,
    others: &[Retry<S>],
    request: Req,
) -> Result<S::Response, S::Error>
where
    S: Service<Req> + Clone,
    S::Error: Failure + From<Exhausted<S::Error>> + 'static,
    Req: RetryRequest<S::Error>,
{
    let (mut endpoint, mut others) = (first, others.iter());
    let (mut made, mut made_before) = (0_u32, 0);
    let mut earlier: Option<ErrorText> = None;
    let mut began = endpoint.begin();
    loop {
        let result = endpoint.inner.clone().oneshot(request.clone()).await;
        let mut error = match result {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        made = made.saturating_add(1);
        let elapsed = endpoint.policy.clock().monotonic().saturating_sub(began);
        let mut tried =
            Tried::new(made.saturating_sub(made_before), elapsed, request.is_idempotent());
        tried.max_attempts = request.max_attempts().map(|max| max.saturating_sub(made_before));
        tried.has_next = others.len() > 0;
        tried.time_left = request.time_left();
        let decision = endpoint.policy.decide(&error, tried);
        error = decision.settle(error, tried);
        let delay = match decision {
            Decision::Again(delay) => delay,
            // Which endpoint that is, the service knows.
            Decision::Beside => Duration::ZERO,
            // What a service is asked for is waited for: it cannot be put aside.
            Decision::Next { .. } | Decision::Park(_) | Decision::Stop { .. } => {
                if let Some(earlier) = &earlier {
                    request.keep_earlier(&mut error, earlier);
                }
                match others.next() {
                    Some(next) if matches!(decision, Decision::Next { .. }) => endpoint = next,
                    _ => return Err(error),
                }
                Duration::ZERO
            }
        };
        tracing::debug!(attempt = made, code = error.code(), ?delay, "another attempt follows");
        if let Some(recorded) =
            request.attempted(FailedAttempt { number: made, error: &error, delay })
        {
            recorded.await?;
        }
        if let Decision::Next { .. } = decision {
            earlier = Some(ErrorText::of(&error));
            made_before = made;
            began = endpoint.begin();
        } else {
            let wait = endpoint.policy.clock().sleep(delay);
            if let Either::Right(_) = select(wait, request.given_up()).await {
                return Err(Exhausted::new(tried.attempts, tried.elapsed, error).into());
            }
        }
    }
}

impl<S> Retry<S> {
    /// Counts the beginning of a request; returns when that was, in monotonic time.
    fn begin(&self) -> Duration {
        self.policy.begin();
        self.policy.clock().monotonic()
    }
}
