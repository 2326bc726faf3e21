use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_provider::Provider;
use backstop_react_machine::Price;
use backstop_retry::{Breaker, BreakerConfig, RateLimit, RetryBudget};
use tokio::sync::Semaphore;

/// A provider, and what the agents that ask it share: its retry budget, its breaker, how many
/// calls may be in flight, and how many a minute takes. Agents that are built on clones of one are one client to its endpoint.
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
}

impl Upstream {
    /// Makes the upstream of a provider: a full retry budget, a closed breaker, any number of calls.
    pub fn new(provider: impl Provider + 'static) -> Self {
        Self::shared(Arc::new(provider))
    }

    /// As [`Upstream::new`], for a provider that is shared.
    #[must_use]
    pub fn shared(provider: Arc<dyn Provider>) -> Self {
        Self::on_clock(provider, Arc::new(SystemClock))
    }

    /// As [`Upstream::shared`], on a clock of one's own: that of the agents that use it.
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
        }
    }

    /// Asks this provider instead. Retry budget, breaker and limits stay those of the endpoint, shared with
    /// what it is a copy of.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = provider;
        self
    }

    /// Breaks the circuit as this breaker does; after 5 failures in a row for 30 seconds otherwise.
    #[must_use]
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = breaker;
        self
    }

    /// Limits one attempt; as the agent does otherwise.
    #[must_use]
    pub const fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets what the provider's tokens cost, in place of the agent's own price. Costs are counted where
    /// each provider of an agent has a price.
    #[must_use]
    pub const fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Sends at most so many requests in a minute, at least 1, spread evenly once they are used up. What
    /// the endpoint itself says is left, in the headers of its answers, is minded with or without this.
    ///
    /// A call that has to wait longer than [`RetryConfig`](backstop_retry::RetryConfig)'s
    /// `max_retry_after_ms` fails with `provider.rate_limited` and says how long.
    #[must_use]
    pub fn requests_per_minute(mut self, requests: u32) -> Self {
        self.rate = self.rate.requests_per_minute(requests);
        self
    }

    /// Sends requests while the answers of a minute used fewer tokens than this, at least 1. What an answer
    /// used is known when it is there, so that requests side by side may use more at first; the next ones
    /// wait for that.
    #[must_use]
    pub fn tokens_per_minute(mut self, tokens: u64) -> Self {
        self.rate = self.rate.tokens_per_minute(tokens);
        self
    }

    /// Sets how long an endpoint with others beside it ([`AgentBuilder::endpoint`]) is left alone when it
    /// refused and did not say how long; 30 seconds otherwise.
    ///
    /// [`AgentBuilder::endpoint`]: crate::AgentBuilder::endpoint
    #[must_use]
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.rate = self.rate.cooldown(cooldown);
        self
    }

    /// Lets at most so many calls be in flight at once, at least 1; the others wait their turn. The
    /// wait belongs to no attempt: its timeout begins when it is sent.
    #[must_use]
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.places = Some(Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS))));
        self
    }
}

/// Returns how `model.attempted` says which of an agent's providers was asked, in their order: by the
/// provider's name; with others beside it by its model's too, and a number where both are the same.
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

/// Whom an agent asks.
#[derive(Clone)]
pub(crate) enum Asked {
    /// A provider whose budget and breaker are this agent's own.
    Alone(Arc<dyn Provider>),
    Shared(Upstream),
}

impl Asked {
    pub(crate) fn provider(&self) -> &dyn Provider {
        match self {
            Self::Alone(provider) => &**provider,
            Self::Shared(upstream) => &*upstream.provider,
        }
    }

    /// Returns the limit of its attempts, if it has one of its own.
    pub(crate) fn attempt_timeout(&self) -> Option<Duration> {
        match self {
            Self::Alone(_) => None,
            Self::Shared(upstream) => upstream.attempt_timeout,
        }
    }

    /// Returns what its tokens cost, if it has a price of its own.
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
