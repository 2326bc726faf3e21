//! A provider that fails at random, the same way for the same seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSupport, Provider, ProviderError,
    TimeoutPhase, UnsupportedSetting,
};
use layer0::failure::Failure;

/// Provider that passes calls to another one, or fails with one of the codes of [`ProviderError`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
/// use layer0::Failure;
/// use layer0::message::Transcript;
/// use backstop_provider::{ModelRequest, Provider, ScriptedProvider};
/// use backstop_testkit::Chaos;
///
/// let real = Arc::new(ScriptedProvider::saying(["42"]));
/// let chaos = Chaos::new(real, 7, 1_000);
/// let error = chaos.complete(&ModelRequest::new(Transcript::default())).await.unwrap_err();
/// assert!(chaos.injected().contains_key(error.code()));
/// # }
/// ```
pub struct Chaos {
    inner: Arc<dyn Provider>,
    /// Number of calls out of 1,000 that fail.
    per_mille: u64,
    state: Mutex<State>,
}

struct State {
    seed: u64,
    injected: BTreeMap<&'static str, usize>,
}

/// The failures, one for each code that an attempt can end with.
const FAILURES: [fn() -> ProviderError; 14] = [
    || ProviderError::transient("chaos", Some(503)),
    || ProviderError::rate_limited("chaos", Some(Duration::from_millis(1))),
    || ProviderError::rate_limited("chaos", None),
    || ProviderError::invalid_request("chaos", Some(400)),
    || ProviderError::content_blocked("chaos"),
    || ProviderError::AuthFailed("chaos".into()),
    || ProviderError::InvalidResponse("chaos".into()),
    || ProviderError::context_overflow("chaos"),
    || ProviderError::quota_exhausted("chaos"),
    || ProviderError::timeout(TimeoutPhase::Upstream, None),
    || ProviderError::stream_truncated("chaos"),
    || ProviderError::stream_interrupted("chaos"),
    || ProviderError::not_found("chaos"),
    || ProviderError::Other("chaos".into()),
];

impl Chaos {
    /// Wraps a provider; `per_mille` of 1,000 calls fail. The seed determines which ones, and their failures.
    pub fn new(inner: Arc<dyn Provider>, seed: u64, per_mille: u32) -> Self {
        let state = State { seed, injected: BTreeMap::new() };
        Self { inner, per_mille: per_mille.into(), state: Mutex::new(state) }
    }

    /// Returns how often each code was injected.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<&'static str, usize> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).injected.clone()
    }

    fn fail(&self) -> Result<(), ProviderError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.draw() % 1_000 >= self.per_mille {
            return Ok(());
        }
        let failures = u64::try_from(FAILURES.len()).unwrap_or(u64::MAX);
        let place = usize::try_from(state.draw() % failures).unwrap_or(0);
        let error = FAILURES[place]();
        *state.injected.entry(error.code()).or_default() += 1;
        Err(error)
    }
}

impl State {
    /// SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[async_trait]
impl Provider for Chaos {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn model(&self) -> &str {
        self.inner.model()
    }

    fn output_support(&self, request: &ModelRequest) -> OutputSupport {
        self.inner.output_support(request)
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        self.inner.check_settings(settings)
    }

    fn reports_all_usage(&self) -> bool {
        self.inner.reports_all_usage()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.fail()?;
        self.inner.complete(request).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.fail()?;
        self.inner.stream(request).await
    }
}
