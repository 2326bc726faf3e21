//! The service stack of one attempt: breaker → limit of calls in flight → attempt timeout → provider.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use backstop_react_machine::Price;
use backstop_redact::Redactor;
use backstop_retry::{AttemptTimeout, AttemptTimeoutLayer, CircuitBreaker, RateLimit, RetryPolicy};
use futures_util::FutureExt;
use layer0::Code;
use layer0::event::ModelAttempted;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::text;
use layer0::usage::{RateLevel, TokenUsage};
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::util::Either;
use tower::{Service, ServiceBuilder};

use crate::feed::StreamFeed;
use crate::form;
use crate::live::{Hub, Live};
use crate::pool::LastRefusal;
use crate::shown::{PieceRedactor, Pieces};
use crate::upstream::Upstream;
use crate::wire_names::{map_request, map_response};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One provider with its service stack.
pub(crate) struct ModelEndpoint {
    pub(crate) retry: RetryPolicy,
    /// Its name in `model.attempted`.
    pub(crate) label: Arc<str>,
    /// The name of its model; `None` if the provider has no name for it.
    pub(crate) model: Option<Arc<str>>,
    /// The price of its tokens.
    pub(crate) price: Option<Price>,
    pub(crate) rate: RateLimit,
    pub(crate) refusal: LastRefusal,
    /// Whether a count of zero tokens is a fact; it is estimated otherwise.
    pub(crate) reports_all_usage: bool,
    pub(crate) service: AttemptService,
}

pub(crate) type AttemptService = CircuitBreaker<Limited<AttemptTimeout<Transport>>>;
/// A service with or without a limit of calls in flight.
type Limited<S> = Either<ConcurrencyLimit<S>, S>;

impl ModelEndpoint {
    /// Builds the stack around a provider.
    pub(crate) fn new(
        upstream: Upstream,
        label: Arc<str>,
        stream: bool,
        retry: &RetryPolicy,
        attempt_timeout: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let Upstream { provider, budget, breaker, places, price, rate, refusal, .. } = upstream;
        let own = upstream.attempt_timeout;
        let timeout = own.unwrap_or(attempt_timeout);
        let reports_all_usage = provider.reports_all_usage();
        let model = Some(provider.model()).filter(|model| !model.is_empty()).map(Arc::from);
        let service = ServiceBuilder::new()
            .layer(breaker.layer())
            .option_layer(places.map(GlobalConcurrencyLimitLayer::with_semaphore))
            .layer(AttemptTimeoutLayer::new(timeout, Arc::clone(clock)))
            .service(Transport { provider, stream });
        let retry = retry.clone().budget(budget);
        Self { retry, label, model, price, rate, refusal, reports_all_usage, service }
    }
}

/// The request of one attempt to its provider.
pub(crate) struct AttemptRequest {
    pub(crate) request: ModelRequest,
    pub(crate) record: Arc<AttemptRecord>,
}

/// Tokens of an attempt, and whether a count among them is an estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CountedUsage {
    pub(crate) usage: TokenUsage,
    pub(crate) is_estimated: bool,
}

/// Usage as the provider reported it.
impl From<TokenUsage> for CountedUsage {
    fn from(usage: TokenUsage) -> Self {
        Self { usage, is_estimated: false }
    }
}

/// The state of an attempt before it ends, with the pieces that listeners get.
pub(crate) struct AttemptRecord {
    pub(crate) call: u32,
    pub(crate) number: u32,
    label: Arc<str>,
    model: Option<Arc<str>>,
    price: Option<Price>,
    rate: RateLimit,
    /// Whether the endpoint was asked; without a request there is no status.
    pub(crate) is_sent: bool,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    began: Duration,
    /// Time until the first piece arrived.
    first_piece: OnceLock<Duration>,
    request_id: OnceLock<Arc<str>>,
    billed: Mutex<Option<TokenUsage>>,
    /// Number of bytes of text and thinking that arrived.
    piece_bytes: AtomicUsize,
    /// The HTTP status; 0 while there is none.
    status: AtomicU16,
    listeners: Listeners,
    /// Text that is held back from listeners.
    shown: Mutex<PieceRedactor>,
    /// Whether the attempt is over; set under the lock of `shown`. A provider that reads in its own task may send
    /// pieces of an attempt that was given up.
    is_over: AtomicBool,
}

/// The listeners to an answer while it arrives.
pub(crate) struct Listeners {
    pub(crate) run: RunId,
    pub(crate) hub: Arc<Hub>,
    /// The stream of the run.
    pub(crate) feed: Option<Arc<StreamFeed>>,
    /// Whether pieces are shown. An answer that was requested whole is shown whole.
    pub(crate) is_streamed: bool,
    /// Whether there are secrets to hold back.
    pub(crate) holds_secrets: bool,
}

impl AttemptRecord {
    pub(crate) fn new(
        call: u32,
        number: u32,
        endpoint: &ModelEndpoint,
        listeners: Listeners,
        shown: PieceRedactor,
        clock: &Arc<dyn Clock>,
        redactor: &Redactor,
    ) -> Self {
        Self {
            call,
            number,
            label: Arc::clone(&endpoint.label),
            model: endpoint.model.clone(),
            price: endpoint.price,
            rate: endpoint.rate.clone(),
            is_sent: true,
            clock: Arc::clone(clock),
            redactor: redactor.clone(),
            began: clock.monotonic(),
            first_piece: OnceLock::new(),
            request_id: OnceLock::new(),
            billed: Mutex::new(None),
            piece_bytes: AtomicUsize::new(0),
            status: AtomicU16::new(0),
            listeners,
            shown: Mutex::new(shown),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the time of the attempt so far.
    pub(crate) fn elapsed_time(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.began)
    }

    fn piece_came(&self, piece: &str) {
        self.piece_bytes.fetch_add(piece.len(), Ordering::Relaxed);
        if self.listeners.is_streamed && self.first_piece.get().is_none() {
            let _ = self.first_piece.set(self.elapsed_time());
        }
    }

    /// Returns the usage that the provider reported.
    pub(crate) fn billed_usage(&self) -> Option<TokenUsage> {
        *self.billed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes of text and thinking that arrived.
    pub(crate) fn piece_bytes(&self) -> usize {
        self.piece_bytes.load(Ordering::Relaxed)
    }

    /// Returns the event of the attempt, which ended with `error` or with an answer.
    pub(crate) fn build_model_attempted(
        &self,
        billed: Option<CountedUsage>,
        error: Option<&ProviderError>,
        delay: Option<Duration>,
    ) -> ModelAttempted {
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0);
        let CountedUsage { usage, is_estimated } = billed.unwrap_or_default();
        let price = self.price.map(|price| price.of_attempt(&usage));
        let mut ended = ModelAttempted::new(self.call, self.number, Arc::clone(&self.label));
        ended.model.clone_from(&self.model);
        ended.code = error.map(|error| Code::new(error.code()));
        ended.status = status.or_else(|| error.filter(|_| self.is_sent)?.status());
        ended.delay_ms = delay.map(millis);
        (ended.usage, ended.cost_nanousd) = (billed.map(|billed| billed.usage), price);
        ended.usage_estimated = is_estimated;
        ended.duration_ms = millis(self.elapsed_time());
        ended.first_token_ms = self.first_piece.get().copied().map(millis);
        ended.request_id = self.request_id.get().cloned();
        ended
    }

    /// Sends listeners the pieces that a change of the held-back text releases.
    fn show(&self, change: impl FnOnce(&mut PieceRedactor) -> Pieces) {
        let Listeners { hub, feed, is_streamed, holds_secrets, .. } = &self.listeners;
        // A listener may join in the middle of a secret, so secrets are tracked even without listeners.
        if !is_streamed || !(*holds_secrets || feed.is_some() || hub.is_heard()) {
            return;
        }
        // Sent under the lock, so that pieces keep their order, and none follows the end.
        let mut shown = self.lock_shown();
        if self.is_over() {
            return;
        }
        self.send(change(&mut shown));
    }

    /// Ends the attempt: later pieces of its provider are dropped.
    pub(crate) fn end(&self) {
        let _shown = self.lock_shown();
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends the attempt as [`AttemptRecord::end`] does, and sends the held-back rest of a whole answer. The pieces of a
    /// failed answer are void, and its last may be half a secret.
    fn finish(&self, is_whole: bool) {
        let mut shown = self.lock_shown();
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        let pieces = if is_whole { shown.finish() } else { shown.discard() };
        if self.listeners.is_streamed {
            self.send(pieces);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn lock_shown(&self) -> MutexGuard<'_, PieceRedactor> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, pieces: Pieces) {
        let Listeners { run, hub, feed, .. } = &self.listeners;
        for piece in pieces.into_iter().flatten() {
            if let Some(feed) = feed {
                feed.delta(self.call, self.number, &piece);
            }
            hub.send(|| Live::Delta {
                run: run.clone(),
                call: self.call,
                attempt: self.number,
                piece,
            });
        }
    }
}

/// Passes pieces of the answer to listeners, marked with call and attempt.
impl StreamSink for AttemptRecord {
    fn text(&self, piece: &str) {
        if self.is_over() {
            return;
        }
        self.piece_came(piece);
        self.show(|shown| shown.text(piece));
    }

    fn thinking(&self, piece: &str) {
        if self.is_over() {
            return;
        }
        self.piece_came(piece);
        self.show(|shown| shown.thinking(piece));
    }

    fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    fn request_id(&self, id: &str) {
        let _ = self.request_id.set(self.redactor.redact(id).into());
    }

    fn rate(&self, requests: Option<RateLevel>, tokens: Option<RateLevel>) {
        self.rate.record_remaining(requests, tokens);
    }

    fn usage(&self, usage: TokenUsage) {
        if self.is_over() {
            return;
        }
        *self.billed.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The innermost service: asks the provider.
#[derive(Clone)]
pub(crate) struct Transport {
    provider: Arc<dyn Provider>,
    stream: bool,
}

impl Service<AttemptRequest> for Transport {
    type Response = ModelResponse;
    type Error = ProviderError;
    type Future = BoxFuture<Result<ModelResponse, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: AttemptRequest) -> Self::Future {
        let Self { provider, stream } = self.clone();
        Box::pin(async move {
            let AttemptRequest { mut request, record } = attempt;
            request.sink = Some(Arc::clone(&record) as _);
            let tools = map_request(&mut request);
            form::settle(&mut request, &*provider);
            let asked = AssertUnwindSafe(async {
                if stream {
                    provider.stream(&request).await
                } else {
                    provider.complete(&request).await
                }
            });
            let mut answered = asked.catch_unwind().await.unwrap_or_else(|panic| {
                Err(ProviderError::Other(
                    format!("the provider panicked: {}", text::panic_message(panic)).into(),
                ))
            });
            if let Ok(response) = &mut answered {
                map_response(response, &tools);
            }
            record.finish(answered.is_ok());
            answered
        })
    }
}
