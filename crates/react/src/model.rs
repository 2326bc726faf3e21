//! The model stack: retry around attempts, a record of each, a limit for each.
//!
//! Outer to inner: retry → per-attempt record → attempt timeout → provider.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
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
use redact::Redactor;
use retry::{AttemptTimeout, AttemptTimeoutLayer, FailedAttempt, RetryPolicy, RetryRequest};
use tokio::sync::{mpsc, oneshot};
use tower::retry::Retry;
use tower::{Service, ServiceBuilder};

use crate::live::{Hub, Live, Piece};
use crate::running::panic_text;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The stack as the driver sees it.
pub(crate) type ModelStack = Retry<RetryPolicy, AttemptTimeout<Transport>>;

/// Builds the stack around a provider.
pub(crate) fn stack(
    provider: Arc<dyn Provider>,
    stream: bool,
    retry: RetryPolicy,
    attempt_timeout: Duration,
    clock: Arc<dyn Clock>,
) -> ModelStack {
    ServiceBuilder::new()
        .layer(retry.layer())
        .layer(AttemptTimeoutLayer::new(attempt_timeout, clock))
        .service(Transport { provider, stream })
}

/// A failed attempt that another will follow, and who waits until it is in the log.
pub(crate) type Attempted = (ModelAttempted, oneshot::Sender<()>);

/// A model call on its way through the stack. Clones are the attempts of one call.
#[derive(Clone)]
pub(crate) struct AttemptedCall {
    pub(crate) request: ModelRequest,
    pub(crate) record: Arc<CallRecord>,
    /// How many attempts are left of the run's budget.
    pub(crate) max_attempts: Option<u32>,
}

/// What the attempts of one call share: their number, what the current one was billed, and the way
/// to the run's log.
pub(crate) struct CallRecord {
    pub(crate) run: RunId,
    pub(crate) call: u32,
    pub(crate) provider: Arc<str>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) redactor: Redactor,
    pub(crate) log: mpsc::Sender<Attempted>,
    attempt: AtomicU32,
    billed: Mutex<Option<TokenUsage>>,
    /// The HTTP status of the current attempt; 0 while there is none.
    status: AtomicU16,
}

impl CallRecord {
    pub(crate) fn new(
        run: RunId,
        call: u32,
        attempts_before: u32,
        provider: Arc<str>,
        hub: Arc<Hub>,
        redactor: Redactor,
        log: mpsc::Sender<Attempted>,
    ) -> Self {
        let attempt = AtomicU32::new(attempts_before);
        Self {
            run,
            call,
            provider,
            hub,
            redactor,
            log,
            attempt,
            billed: Mutex::new(None),
            status: AtomicU16::new(0),
        }
    }

    /// Returns the number of the current attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt.load(Ordering::Relaxed)
    }

    fn begin_attempt(&self) {
        self.attempt.fetch_add(1, Ordering::Relaxed);
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
            provider: Arc::clone(&self.provider),
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
            provider: Arc::clone(&self.provider),
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
        self.max_attempts
    }

    /// Waits until the attempt is in the log; the driver drops the call if it cannot be.
    fn attempted(&self, attempt: FailedAttempt<'_, ProviderError>) -> Option<BoxFuture<()>> {
        let attempted = self.record.attempted(Err(attempt.error), Some(attempt.delay));
        let log = self.record.log.clone();
        Some(Box::pin(async move {
            let (logged, done) = oneshot::channel();
            if log.send((attempted, logged)).await.is_ok() {
                let _ = done.await;
            }
        }))
    }
}

/// Passes pieces of the answer to whoever listens, marked with call and attempt.
struct Deltas {
    record: Arc<CallRecord>,
    /// An answer that was asked for whole is shown whole.
    stream: bool,
}

impl Deltas {
    fn send(&self, piece: impl FnOnce() -> Piece) {
        let record = &self.record;
        if !self.stream {
            return;
        }
        record.hub.send(|| Live::Delta {
            run: record.run.clone(),
            call: record.call,
            attempt: record.attempt(),
            piece: piece(),
        });
    }
}

impl StreamSink for Deltas {
    fn text(&self, piece: &str) {
        self.send(|| Piece::Text(self.record.redactor.redact_held(piece).into()));
    }

    fn thinking(&self, piece: &str) {
        self.send(|| Piece::Thinking(self.record.redactor.redact_held(piece).into()));
    }

    fn status(&self, status: u16) {
        self.record.status.store(status, Ordering::Relaxed);
    }

    fn usage(&self, usage: TokenUsage) {
        *self.record.billed.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }
}

/// The innermost service: numbers the attempt and asks the provider.
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
            call.record.begin_attempt();
            let mut request = call.request;
            request.sink = Some(Arc::new(Deltas { record: call.record, stream }));
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
