//! A run and the layers of `retry` go through the same histories: they ask one policy.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_provider::{
    ErrorKind, ModelRequest, ModelResponse, Provider, ProviderError, ScriptedAnswer,
    ScriptedProvider,
};
use backstop_react::{Agent, AgentBuilder, Budget, Upstream};
use backstop_retry::{
    Breaker, BreakerConfig, FailedAttempt, Fallback, Jitter, RetryBudget, RetryConfig, RetryPolicy,
    RetryRequest,
};
use layer0::event::EventKind;
use layer0::failure::{ErrorText, Failure, chain};
use layer0::message::{Message, Transcript};
use layer0::stop::Stop;
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};

use crate::bench::*;

/// Number of requests in each history: the state of breaker and budget after one request applies to the next.
const REQUESTS: usize = 3;

/// The answers of providers, and the settings of the caller.
#[derive(Debug, Clone)]
struct History {
    /// In the order in which they are asked.
    providers: Vec<Vec<ScriptedAnswer>>,
    attempts: u32,
    /// Maximum number of attempts of one request.
    limit: Option<u32>,
    seed: u64,
}

/// Number and code of an attempt, and the wait in milliseconds before the next one.
type Attempted = (u32, Option<String>, Option<u128>);

/// The result of one request.
#[derive(Debug, PartialEq)]
struct Seen {
    attempts: Vec<Attempted>,
    end: End,
}

#[derive(Debug, PartialEq)]
enum End {
    Answer(String),
    /// With the texts of the causes.
    Failure(Vec<String>),
    /// No more attempts were allowed.
    Limit,
}

fn answers() -> impl Strategy<Value = ScriptedAnswer> {
    let error = prop::sample::select(vec![
        (ErrorKind::Transient, None),
        (ErrorKind::Transient, None),
        (ErrorKind::Transient, Some(2_000)),
        (ErrorKind::RateLimited, None),
        (ErrorKind::RateLimited, Some(500)),
        (ErrorKind::RateLimited, Some(90_000)),
        (ErrorKind::InvalidResponse, None),
        (ErrorKind::StreamTruncated, None),
        (ErrorKind::ContextOverflow, None),
        (ErrorKind::QuotaExhausted, None),
        (ErrorKind::InvalidRequest, None),
    ]);
    prop_oneof![
        1 => Just(says("done")),
        5 => error.prop_map(|(kind, retry_after_ms)| {
            let mut answer = fails(kind);
            answer.error.as_mut().unwrap().retry_after_ms = retry_after_ms;
            answer
        }),
    ]
}

fn histories() -> impl Strategy<Value = History> {
    let providers = prop::collection::vec(prop::collection::vec(answers(), 1..12), 1..4);
    (providers, 1..5_u32, prop::option::of(1..6_u32), any::<u64>())
        .prop_map(|(providers, attempts, limit, seed)| History { providers, attempts, limit, seed })
}

impl History {
    fn config(&self) -> RetryConfig {
        RetryConfig::new().attempts(self.attempts)
    }

    fn providers(&self, clock: &VirtualClock) -> Vec<(Arc<dyn Provider>, Breaker)> {
        let config = BreakerConfig::new().failures(3).open_for(Duration::from_secs(5));
        let endpoint = |answers: &Vec<ScriptedAnswer>| {
            let clock = Arc::new(clock.clone());
            let provider = ScriptedProvider::new(answers.clone()).with_clock(clock.clone());
            (Arc::new(provider) as Arc<dyn Provider>, Breaker::new(config, clock))
        };
        self.providers.iter().map(endpoint).collect()
    }

    /// Returns the results in runs of an agent.
    async fn in_runs(&self) -> Vec<Seen> {
        let bench = Bench::new();
        let clock = Arc::new(bench.clock.clone());
        let mut upstreams = self.providers(&bench.clock).into_iter().map(|(provider, breaker)| {
            Upstream::on_clock(provider, clock.clone()).breaker(breaker)
        });
        let mut agent = AgentBuilder::on(upstreams.next().unwrap())
            .clock(clock.clone())
            .retry(self.config())
            .jitter(Jitter::from_seed(self.seed))
            .shared_log(bench.log.clone());
        for upstream in upstreams {
            agent = agent.fallback_on(upstream);
        }
        if let Some(limit) = self.limit {
            let budget = Budget::new().model_calls(limit);
            agent = agent.budget(budget);
        }
        let agent: Agent = agent.build().unwrap();
        let mut seen = Vec::new();
        for _ in 0..REQUESTS {
            let agent = agent.clone();
            let ended = on(&bench, async move { agent.run("hello").await }).await;
            let (run, end) = match ended {
                Ok(outcome) if matches!(outcome.stop, Stop::Completed) => {
                    (outcome.run_id.clone(), End::Answer(outcome.text().into()))
                }
                Ok(outcome) => (outcome.run_id, End::Limit),
                Err(failure) => {
                    let causes = chain(failure.error.as_cause());
                    (failure.run_id, End::Failure(causes))
                }
            };
            let events = bench.events(&run).await;
            let attempts = events.iter().filter_map(|event| match &event.kind {
                EventKind::ModelAttempted(it) => Some((
                    it.attempt,
                    it.code.as_ref().map(ToString::to_string),
                    it.delay_ms.map(u128::from),
                )),
                _ => None,
            });
            seen.push(Seen { attempts: attempts.collect(), end });
        }
        seen
    }

    /// Returns the results in the layers, as a service would use them.
    async fn in_layers(&self) -> Vec<Seen> {
        let bench = Bench::new();
        let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
        let policy = RetryPolicy::new(self.config(), Arc::clone(&clock));
        let policy = policy.jitter(Jitter::from_seed(self.seed));
        let endpoint = |(provider, breaker): (Arc<dyn Provider>, Breaker)| {
            let policy = policy.clone().budget(RetryBudget::new(Arc::clone(&clock)));
            policy.layer().layer(breaker.layer().layer(transport(provider)))
        };
        let mut endpoints: Vec<_> =
            self.providers(&bench.clock).into_iter().map(endpoint).collect();
        let first = endpoints.remove(0);
        let fallback = Fallback::new(first, endpoints);
        let mut seen = Vec::new();
        for _ in 0..REQUESTS {
            let call = Call { limit: self.limit, attempts: Arc::default() };
            let attempts = Arc::clone(&call.attempts);
            let service = fallback.clone();
            let result = on(&bench, async move { service.oneshot(call).await }).await;
            let mut attempts = std::mem::take(&mut *attempts.lock().unwrap());
            let number = u32::try_from(attempts.len()).unwrap() + 1;
            let code = result.as_ref().err().map(|error| error.code().to_owned());
            attempts.push((number, code, None));
            let end = match result {
                Ok(response) => End::Answer(response.text.to_string()),
                Err(error) => End::Failure(chain(&error)),
            };
            seen.push(Seen { attempts, end });
        }
        seen
    }
}

type Transport = tower::util::BoxCloneSyncService<Call, ModelResponse, ProviderError>;

fn transport(provider: Arc<dyn Provider>) -> Transport {
    Transport::new(service_fn(move |_: Call| {
        let provider = Arc::clone(&provider);
        async move {
            let mut messages = Transcript::default();
            messages.push(Message::user("hello"));
            provider.complete(&ModelRequest::new(messages)).await
        }
    }))
}

/// A request that notes its attempts.
#[derive(Clone)]
struct Call {
    limit: Option<u32>,
    attempts: Arc<Mutex<Vec<Attempted>>>,
}

impl RetryRequest<ProviderError> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }

    fn max_attempts(&self) -> Option<u32> {
        self.limit
    }

    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, ProviderError>,
    ) -> Option<Pin<Box<dyn Future<Output = Result<(), ProviderError>> + Send>>> {
        let code = Some(attempt.error.code().to_owned());
        let attempted = (attempt.number, code, Some(attempt.delay.as_millis()));
        self.attempts.lock().unwrap().push(attempted);
        None
    }

    fn keep_earlier(&self, error: &mut ProviderError, earlier: &ErrorText) {
        error.keep_earlier(earlier);
    }
}

proptest! {
    /// Spec: R1, R4, R7, R11
    #[test]
    fn a_run_and_the_layers_decide_alike(history in histories()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (in_runs, mut in_layers) =
            runtime.block_on(async { (history.in_runs().await, history.in_layers().await) });
        for (run, layers) in in_runs.iter().zip(&mut in_layers) {
            // The end of a run by its budget is the last failure of the layers.
            let is_full = Some(layers.attempts.len()) == history.limit.map(|limit| limit as usize);
            if is_full && run.end == End::Limit {
                layers.end = End::Limit;
            }
        }
        prop_assert_eq!(in_runs, in_layers);
    }
}
