use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_provider::Provider;
use backstop_react_machine::Price;
use backstop_retry::{Breaker, BreakerConfig, RateLimit, RetryBudget};
use tokio::sync::Semaphore;

use crate::pool::LastRefusal;

/// A provider with the state that its agents share: its retry budget, its breaker, its limit of calls in flight and its
/// limits per minute. Agents that are built on clones of one upstream act as one client of its endpoint.
///
/// ```
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::{AgentBuilder, Upstream};
///
/// let model = Upstream::new(ScriptedProvider::saying(["42"])).max_concurrent_calls(20);
/// let triage = AgentBuilder::on(model.clone()).name("triage").build()?;
/// let repair = AgentBuilder::on(model).name("repair").build()?;
/// # Ok::<(), backstop_react::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Upstream {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) budget: RetryBudget,
    pub(crate) breaker: Breaker,
    pub(crate) places: Option<Arc<Semaphore>>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) price: Option<Price>,
    pub(crate) rate: RateLimit,
    pub(crate) refusal: LastRefusal,
}

impl Upstream {
    /// Returns the upstream of a provider: a full retry budget, a closed breaker, any number of calls.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self::from_shared(Arc::new(provider))
    }

    /// As [`Upstream::new`], for a shared provider.
    #[must_use]
    pub fn from_shared(provider: Arc<dyn Provider>) -> Self {
        Self::on_clock(provider, Arc::new(SystemClock))
    }

    /// As [`Upstream::from_shared`], with another clock: that of the agents that use it.
    #[must_use]
    pub fn on_clock(provider: Arc<dyn Provider>, clock: Arc<dyn Clock>) -> Self {
        Self {
            provider,
            budget: RetryBudget::new(Arc::clone(&clock)),
            breaker: Breaker::new(BreakerConfig::default(), Arc::clone(&clock)),
            places: None,
            attempt_timeout: None,
            price: None,
            rate: RateLimit::new(clock),
            refusal: LastRefusal::default(),
        }
    }

    /// Replaces the provider. Retry budget, breaker and limits stay those of the endpoint, shared with its other
    /// clones.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = provider;
        self
    }

    /// Sets the circuit breaker; the default opens after 5 failures in a row for 30 seconds.
    #[must_use]
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets the timeout of one attempt; the default is the agent's.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets the price of the provider's tokens, instead of the agent's own price. Costs are counted if each provider of
    /// an agent has a price.
    #[must_use]
    pub const fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Limits the number of requests in a minute, at least 1, spread evenly once they are used up. The limits that the
    /// endpoint reports in the headers of its answers are obeyed in any case.
    ///
    /// A call that has to wait longer than [`RetryConfig`](backstop_retry::RetryConfig)'s `max_retry_after_ms` fails
    /// with `provider.rate_limited` and the remaining wait.
    #[must_use]
    pub fn requests_per_minute(mut self, requests: u32) -> Self {
        self.rate = self.rate.requests_per_minute(requests);
        self
    }

    /// Limits the number of tokens of a minute's answers, at least 1, after which requests wait. The tokens of an
    /// answer are known when it arrives, so concurrent requests may exceed the limit at first; the next ones wait for
    /// that.
    #[must_use]
    pub fn tokens_per_minute(mut self, tokens: u64) -> Self {
        self.rate = self.rate.tokens_per_minute(tokens);
        self
    }

    /// Sets the time for which an endpoint in a pool ([`AgentBuilder::endpoint`]) is not used after a refusal without a
    /// time; the default is 30 seconds.
    ///
    /// [`AgentBuilder::endpoint`]: crate::AgentBuilder::endpoint
    #[must_use]
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.rate = self.rate.cooldown(cooldown);
        self
    }

    /// Limits the number of calls in flight, at least 1; further calls wait. The wait is not part of an attempt: its
    /// timeout begins when it is sent.
    #[must_use]
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.places = Some(Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))));
        self
    }
}

/// Returns the names of an agent's providers in `model.attempted`, in order: the provider's name; with several
/// providers, also the model's name, and a number if both are the same.
#[must_use]
pub fn attempt_labels(providers: &[&dyn Provider]) -> Vec<Arc<str>> {
    if let [alone] = providers {
        return vec![alone.name().into()];
    }
    let name = |provider: &&dyn Provider| format!("{}/{}", provider.name(), provider.model());
    let names: Vec<String> = providers.iter().map(name).collect();
    let numbered = |(place, name): (usize, &String)| match names[..place]
        .iter()
        .filter(|before| *before == name)
        .count()
    {
        0 => name.as_str().into(),
        before => format!("{name}#{}", before + 1).into(),
    };
    names.iter().enumerate().map(numbered).collect()
}

/// A provider of an agent.
#[derive(Clone)]
pub(crate) enum AgentProvider {
    /// A provider whose budget and breaker are this agent's own.
    Alone(Arc<dyn Provider>),
    Shared(Upstream),
}

impl AgentProvider {
    pub(crate) fn provider(&self) -> &dyn Provider {
        match self {
            Self::Alone(provider) => &**provider,
            Self::Shared(upstream) => &*upstream.provider,
        }
    }

    /// Returns the timeout of its attempts, if it has its own.
    pub(crate) fn attempt_timeout(&self) -> Option<Duration> {
        match self {
            Self::Alone(_) => None,
            Self::Shared(upstream) => upstream.attempt_timeout,
        }
    }

    /// Returns the price of its tokens, if it has its own.
    pub(crate) fn price(&self) -> Option<Price> {
        match self {
            Self::Alone(_) => None,
            Self::Shared(upstream) => upstream.price,
        }
    }

    pub(crate) fn open(self, clock: &Arc<dyn Clock>) -> Upstream {
        match self {
            Self::Alone(provider) => Upstream::on_clock(provider, Arc::clone(clock)),
            Self::Shared(upstream) => upstream,
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("provider", &self.provider.name())
            .field("model", &self.provider.model())
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}
