//! The model stack: providers in turn, retry around attempts, a record of each, a limit for each.
//!
//! Outer to inner: fallback → retry → per-attempt record → breaker → concurrency limit → attempt
//! timeout → provider. The record of the call as a whole, `model.requested` and what answers it, is
//! the run's own, around all of this: one question may go to several providers.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use clock::Clock;
use futures_util::FutureExt;
use layer0::Code;
use layer0::event::ModelAttempted;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::usage::TokenUsage;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use react_machine::{EffectId, Input, ModelCall};
use retry::{
    AttemptTimeout, AttemptTimeoutLayer, CircuitBreaker, FailedAttempt, Fallback, FallbackRequest,
    RetryPolicy, RetryRequest,
};
use tokio::sync::{mpsc, oneshot};
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::retry::Retry;
use tower::util::Either;
use tower::{Service, ServiceBuilder};

use crate::agent::Inner;
use crate::building::shared;
use crate::live::{Live, Piece};
use crate::running::panic_text;
use crate::tool_run::Note;
use crate::upstream::{Upstream, attempt_labels};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The stack as the driver sees it.
pub(crate) type ModelStack = Fallback<OneStack>;
/// The stack around one provider.
type OneStack = Retry<RetryPolicy, Labelled<CircuitBreaker<Limited<AttemptTimeout<Transport>>>>>;
/// With a limit of calls in flight, or without.
type Limited<S> = Either<ConcurrencyLimit<S>, S>;

/// Builds the stack around providers, of which each is asked when the one before it could not answer.
pub(crate) fn stack(
    upstreams: Vec<Upstream>,
    last: Upstream,
    stream: bool,
    retry: &RetryPolicy,
    attempt_timeout: Duration,
    clock: &Arc<dyn Clock>,
) -> ModelStack {
    let providers: Vec<&dyn Provider> =
        upstreams.iter().chain([&last]).map(|upstream| &*upstream.provider).collect();
    let mut labels = attempt_labels(&providers).into_iter();
    let mut one = |upstream: Upstream, yields: bool| {
        let Upstream { provider, budget, breaker, places, attempt_timeout: own } = upstream;
        let label = labels.next().unwrap_or_default();
        ServiceBuilder::new()
            .layer(retry.clone().budget(budget).yields(yields).layer())
            .layer_fn(move |inner| Labelled { inner, label: Arc::clone(&label) })
            .layer(breaker.layer())
            .option_layer(places.map(GlobalConcurrencyLimitLayer::with_semaphore))
            .layer(AttemptTimeoutLayer::new(own.unwrap_or(attempt_timeout), Arc::clone(clock)))
            .service(Transport { provider, stream })
    };
    let before: Vec<OneStack> = upstreams.into_iter().map(|upstream| one(upstream, true)).collect();
    Fallback::new(shared(before), one(last, false))
}

/// A model call on its way through the stack. Clones are the attempts of one call.
#[derive(Clone)]
pub(crate) struct AttemptedCall {
    pub(crate) request: ModelRequest,
    pub(crate) record: Arc<CallRecord>,
    /// How many attempts the run's budget leaves to the call.
    pub(crate) max_attempts: Option<u32>,
    /// How many of them were made at the providers before this one.
    pub(crate) made_before: u32,
}

/// What the attempts of one call share: their number, what the current one was billed, and the way
/// to the run's log.
pub(crate) struct CallRecord {
    pub(crate) run: RunId,
    pub(crate) call: u32,
    id: EffectId,
    agent: Arc<Inner>,
    log: mpsc::Sender<Note>,
    before: u32,
    attempt: AtomicU32,
    /// Who is asked.
    provider: Mutex<Arc<str>>,
    billed: Mutex<Option<TokenUsage>>,
    /// The HTTP status of the current attempt; 0 while there is none.
    status: AtomicU16,
    /// Was there no further attempt only because the run's budget allowed none?
    limited: AtomicBool,
}

impl CallRecord {
    pub(crate) fn new(
        agent: &Arc<Inner>,
        run: RunId,
        call: &ModelCall,
        log: mpsc::Sender<Note>,
    ) -> Self {
        Self {
            id: call.id,
            run,
            call: call.call,
            agent: Arc::clone(agent),
            log,
            before: call.attempts_before,
            attempt: AtomicU32::new(call.attempts_before),
            provider: Mutex::default(),
            billed: Mutex::new(None),
            status: AtomicU16::new(0),
            limited: AtomicBool::new(false),
        }
    }

    fn send(&self, piece: impl FnOnce() -> Piece) {
        // An answer that was asked for whole is shown whole.
        if self.agent.stream {
            self.agent.hub.send(|| Live::Delta {
                run: self.run.clone(),
                call: self.call,
                attempt: self.attempt(),
                piece: piece(),
            });
        }
    }

    /// Returns the number of the current attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Relaxed)
    }

    /// Returns how many attempts this call has made.
    pub(crate) fn made(&self) -> u32 {
        self.attempt().saturating_sub(self.before)
    }

    /// Was there no further attempt only because the run's budget allowed none?
    pub(crate) fn was_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    fn provider(&self) -> Arc<str> {
        Arc::clone(&self.provider.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin_attempt(&self, provider: &Arc<str>) {
        self.attempt.fetch_add(1, Ordering::Relaxed);
        *self.provider.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(provider);
        *self.billed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.status.store(0, Ordering::Relaxed);
    }

    fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Describes the current attempt, which was cut short.
    pub(crate) fn cut(&self, code: Code) -> ModelAttempted {
        ModelAttempted {
            call: self.call,
            attempt: self.attempt(),
            provider: self.provider(),
            code: Some(code),
            status: self.status(),
            delay_ms: None,
            usage: *self.billed.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Describes the current attempt, which ended with `result`.
    pub(crate) fn attempted(
        &self,
        result: Result<&ModelResponse, &ProviderError>,
        delay: Option<Duration>,
    ) -> ModelAttempted {
        let billed = *self.billed.lock().unwrap_or_else(PoisonError::into_inner);
        ModelAttempted {
            call: self.call,
            attempt: self.attempt(),
            provider: self.provider(),
            code: result.err().map(|error| Code::new(error.code())),
            status: self.status().or_else(|| result.err().and_then(ProviderError::status)),
            delay_ms: delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            usage: result.map_or(billed, |response| Some(response.usage)),
        }
    }
}

impl RetryRequest<ProviderError> for AttemptedCall {
    /// Asking a model again does nothing to the world.
    fn is_idempotent(&self) -> bool {
        true
    }

    fn max_attempts(&self) -> Option<u32> {
        self.max_attempts.map(|max| max.saturating_sub(self.made_before))
    }

    fn limited(&self) {
        self.record.limited.store(true, Ordering::Relaxed);
    }

    /// Waits until the attempt is in the log; the driver drops the call if it cannot be.
    fn attempted(&self, attempt: FailedAttempt<'_, ProviderError>) -> Option<BoxFuture<()>> {
        let attempted = self.record.attempted(Err(attempt.error), Some(attempt.delay));
        let note = Input::answer(self.record.agent.clock.now(), self.record.id, attempted);
        let log = self.record.log.clone();
        Some(Box::pin(async move {
            let (logged, done) = oneshot::channel();
            if log.send(Box::new((note, logged))).await.is_ok() {
                let _ = done.await;
            }
        }))
    }
}

impl FallbackRequest<ProviderError> for AttemptedCall {
    /// Records the last attempt; there is no wait before the next provider is asked.
    fn next(&self, error: &ProviderError) -> BoxFuture<Option<Self>> {
        let next = Self { made_before: self.record.made(), ..self.clone() };
        if RetryRequest::<ProviderError>::max_attempts(&next) == Some(0) {
            RetryRequest::<ProviderError>::limited(self);
            return Box::pin(std::future::ready(None));
        }
        let failed = FailedAttempt { number: self.record.made(), error, delay: Duration::ZERO };
        let recorded = RetryRequest::attempted(self, failed);
        Box::pin(async move {
            if let Some(recorded) = recorded {
                recorded.await;
            }
            Some(next)
        })
    }
}

/// The record of each attempt: numbers it, and says who is asked.
#[derive(Clone)]
pub(crate) struct Labelled<S> {
    inner: S,
    label: Arc<str>,
}

impl<S: Service<AttemptedCall>> Service<AttemptedCall> for Labelled<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: AttemptedCall) -> S::Future {
        call.record.begin_attempt(&self.label);
        self.inner.call(call)
    }
}

/// Passes pieces of the answer to whoever listens, marked with call and attempt.
impl StreamSink for CallRecord {
    fn text(&self, piece: &str) {
        self.send(|| Piece::Text(self.agent.redactor.redact_held(piece).into()));
    }

    fn thinking(&self, piece: &str) {
        self.send(|| Piece::Thinking(self.agent.redactor.redact_held(piece).into()));
    }

    fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn usage(&self, usage: TokenUsage) {
        *self.billed.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }
}

/// The innermost service: asks the provider.
#[derive(Clone)]
pub(crate) struct Transport {
    provider: Arc<dyn Provider>,
    stream: bool,
}

impl Service<AttemptedCall> for Transport {
    type Response = ModelResponse;
    type Error = ProviderError;
    type Future = BoxFuture<Result<ModelResponse, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: AttemptedCall) -> Self::Future {
        let Self { provider, stream } = self.clone();
        Box::pin(async move {
            let mut request = call.request;
            request.sink = Some(call.record);
            let asked = AssertUnwindSafe(async {
                if stream {
                    provider.stream(&request).await
                } else {
                    provider.complete(&request).await
                }
            });
            asked.catch_unwind().await.unwrap_or_else(|panic| {
                Err(ProviderError::Other(
                    format!("the provider panicked: {}", panic_text(panic)).into(),
                ))
            })
        })
    }
}
