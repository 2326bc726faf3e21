//! The decision after a failed attempt: another attempt, another provider, or the end of the call.

use std::sync::Arc;
use std::time::Duration;

use backstop_provider::ProviderError;
use backstop_retry::{RetryContext, RetryDecision, RetryPolicy, first_to_pass, first_to_retry};
use layer0::Code;
use layer0::failure::{Chain, ErrorText, Failure};
use layer0::usage::{Usage, nanousd};

use super::given_up::given_up;
use crate::effect::effects::Effects;
use crate::endpoint::{AttemptRecord, CountedUsage, ModelEndpoint};
use crate::journal::{AttemptEnd, ModelAttempt, Parking};
use crate::pool::{EndpointPool, LeftProvider, ModelStack, Picking};

/// The endpoint of an attempt, and the attempt's usage.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) pool: &'a EndpointPool,
    pub(super) endpoint: &'a ModelEndpoint,
    pub(super) place: usize,
    pub(super) record: &'a AttemptRecord,
    /// Tokens of the attempt, if known.
    pub(super) billed: Option<CountedUsage>,
}

/// The decision on the failure that represents all endpoints of a pool.
struct AttemptVerdict {
    error: ProviderError,
    decision: RetryDecision,
    /// The endpoint with the failure.
    place: usize,
}

/// The decision whether a call returns to a provider that it left.
#[derive(Clone, Copy)]
struct Return {
    /// Its index in the list of providers that were left.
    left: usize,
    /// The endpoint to ask first.
    place: usize,
    decision: RetryDecision,
}

/// Decides what follows a failed attempt.
pub(super) fn handle_failure(
    effects: &Effects,
    at: &At<'_>,
    mut attempt: Box<ModelAttempt>,
    error: ProviderError,
    took: Duration,
) -> AttemptEnd {
    let At { pool, endpoint, record, billed, .. } = *at;
    attempt.count(endpoint, billed, took);
    let facts = error.facts();
    let is_sent = record.is_sent && facts.sent;
    attempt.endpoints.note(at.place, &error, is_sent, attempt.elapsed);
    if facts.beside && record.is_sent {
        pool.let_rest(endpoint, &error);
    }
    let AttemptVerdict { error, decision, place } = decide(effects, at, &attempt, error);
    let attempted = |error: &ProviderError, delay| {
        Box::new(record.build_model_attempted(billed, Some(error), Some(delay)))
    };
    match decision {
        RetryDecision::Again(delay) => {
            tracing::debug!(attempt = attempt.made_here, code = error.code(), ?delay, "retrying");
            let attempted = attempted(&error, delay);
            attempt.elapsed = attempt.elapsed.saturating_add(delay);
            attempt.paid_by = Some((attempt.provider, place));
            AttemptEnd::Again(attempted, delay, attempt)
        }
        RetryDecision::Beside => {
            tracing::debug!(code = error.code(), "asking another endpoint of the model");
            AttemptEnd::Again(attempted(&error, Duration::ZERO), Duration::ZERO, attempt)
        }
        RetryDecision::Next { .. } => {
            tracing::warn!(code = error.code(), "asking another provider");
            let mut attempted = attempted(&error, Duration::ZERO);
            let next = attempt.next_provider();
            attempt.leave(place, &error);
            attempt.begin(next);
            attempted.next_provider = label(effects, next);
            AttemptEnd::Again(attempted, Duration::ZERO, attempt)
        }
        _ => end_call(effects, at, attempt, AttemptVerdict { error, decision, place }),
    }
}

/// Decides by the failure of the endpoint that was asked. If no other endpoint of the pool is left to ask, decides by
/// the failure that represents all of them.
fn decide(
    effects: &Effects,
    at: &At<'_>,
    attempt: &ModelAttempt,
    error: ProviderError,
) -> AttemptVerdict {
    let At { pool, endpoint, place, .. } = *at;
    let facts = error.facts();
    let mut tried = attempt.count_tries(effects, place);
    let others = pool.others(place, &attempt.picking(effects));
    (tried.is_another_free, tried.another_in) = (others.is_free, others.wait);
    let is_going_on =
        |decision| matches!(decision, RetryDecision::Again(_) | RetryDecision::Beside);
    let mut decision = endpoint.retry.decide(&error, tried);
    let leads_on = others.leads_on && !matches!(decision, RetryDecision::Next { .. });
    if !is_going_on(decision) && (others.can_probe || leads_on) {
        tried.is_another_free = true;
        decision = endpoint.retry.decide(&error, tried);
    }
    if is_going_on(decision) {
        return AttemptVerdict { error, decision, place };
    }
    // A failure that applies to the whole model takes precedence over failures of the other endpoints.
    let may_differ = facts.beside || facts.retry.is_retryable();
    let lead =
        attempt.endpoints.lead(attempt.elapsed).filter(|lead| may_differ && lead.place != place);
    let lead = lead.and_then(|lead| Some((lead, pool.get(lead.place)?)));
    let (mut error, decision, place) = match lead {
        None => (decision.settle(error, tried), decision, place),
        Some((lead, endpoint)) => {
            let tried = attempt.count_tries(effects, lead.place);
            let error = lead.error(attempt.elapsed);
            let decision = endpoint.retry.decide(&error, tried);
            (decision.settle(error, tried), decision, lead.place)
        }
    };
    attempt.endpoints.keep_others(place, &mut error);
    AttemptVerdict { error, decision, place }
}

/// Ends the call, or returns to a provider that was left with attempts to spare and is available again soon.
fn end_call(
    effects: &Effects,
    At { record, billed, .. }: &At<'_>,
    mut attempt: Box<ModelAttempt>,
    AttemptVerdict { mut error, decision, place }: AttemptVerdict,
) -> AttemptEnd {
    let now = attempt.elapsed;
    let returned = attempt.find_return(effects);
    if let Some(Return { left, place: returns_to, decision: RetryDecision::Again(delay) }) =
        returned
    {
        tracing::warn!(code = error.code(), ?delay, "asking a provider again that was left");
        let mut attempted =
            Box::new(record.build_model_attempted(*billed, Some(&error), Some(delay)));
        let back = attempt.left.remove(left);
        attempted.next_provider = label(effects, back.provider);
        attempt.leave(place, &error);
        attempt.elapsed = attempt.elapsed.saturating_add(delay);
        attempt.return_to(back, returns_to);
        return AttemptEnd::Again(attempted, delay, attempt);
    }
    let of_left = match returned {
        Some(Return { left, decision: RetryDecision::Park(wait), .. }) => Some((left, wait)),
        _ => None,
    };
    let parked = match (decision, of_left) {
        (RetryDecision::Park(wait), Some((left, sooner))) if sooner < wait => {
            Some((Some(left), sooner))
        }
        (RetryDecision::Park(wait), _) => Some((None, wait)),
        (_, Some((left, wait))) => Some((Some(left), wait)),
        _ => None,
    };
    let lead = match parked {
        Some((lead, _)) => lead,
        None => {
            let facts = attempt.left.iter().map(|left| left.facts(now)).chain([error.facts()]);
            first_to_pass(facts).filter(|place| *place < attempt.left.len())
        }
    };
    error = join_failures(&attempt.left, lead, error);
    if let Some((_, wait)) = parked {
        tracing::warn!(code = error.code(), ?wait, "the run is parked");
        return put_aside(effects, record, *billed, &error, wait);
    }
    let is_limited = matches!(decision, RetryDecision::Stop { is_limited: true, .. });
    given_up(effects, record, *billed, error, is_limited)
}

/// Returns the failure that represents all providers, with the others in its chain.
fn join_failures(left: &[LeftProvider], lead: Option<usize>, last: ProviderError) -> ProviderError {
    let mut failures: Vec<ProviderError> =
        left.iter().map(|left| ProviderError::from(&left.failure)).chain([last]).collect();
    let mut error = failures.remove(lead.unwrap_or(left.len()));
    for other in failures.iter().rev() {
        error.keep_earlier(&ErrorText::from_error(other));
    }
    error
}

/// Parks the run.
fn put_aside(
    effects: &Effects,
    record: &AttemptRecord,
    billed: Option<CountedUsage>,
    error: &ProviderError,
    wait: Duration,
) -> AttemptEnd {
    let text = Chain(error).to_string();
    let message = layer0::text::cut_message(&effects.agent.redactor.redact(&text)).into_owned();
    let parked = Parking { wait, reason: Code::new(error.code()), message };
    let attempted = record.build_model_attempted(billed, Some(error), Some(wait));
    AttemptEnd::Parked(Box::new((attempted, parked)))
}

/// Returns the name of a provider in events.
fn label(effects: &Effects, provider: usize) -> Option<Arc<str>> {
    let first = effects.agent.models.get(provider).and_then(EndpointPool::first);
    first.map(|first| Arc::clone(&first.label))
}

impl ModelAttempt {
    /// Counts this attempt.
    fn count(&mut self, endpoint: &ModelEndpoint, billed: Option<CountedUsage>, took: Duration) {
        self.made = self.made.saturating_add(1);
        self.made_here = self.made_here.saturating_add(1);
        self.elapsed = self.elapsed.saturating_add(took);
        self.paid_by = None;
        let billed = billed.unwrap_or_default().usage;
        self.spent.add_tokens(billed);
        if let Some(price) = endpoint.price {
            self.spent.add_cost(price.of_attempt(&billed));
        }
    }

    /// Returns the attempts so far at an endpoint of this provider. Repeating a model call has no effect on the world.
    fn count_tries(&self, effects: &Effects, place: usize) -> RetryContext {
        let (sent, refused) = self.endpoints.counts(place);
        let elapsed = self.elapsed.saturating_sub(self.began);
        let mut tried = RetryContext::new(sent, elapsed, true);
        (tried.total, tried.refused) = (self.made_here, refused);
        tried.max_attempts = self.max_attempts(self.made_here);
        tried.has_next = self.has_next(effects);
        tried.has_left = !self.left.is_empty();
        tried.max_park = effects.place.max_park.unwrap_or_default();
        tried
    }

    /// Returns the number of attempts that the run's budget allows at a provider with `made_there` attempts. Tokens and
    /// cost are checked before every attempt, including retries and other providers.
    fn max_attempts(&self, made_there: u32) -> Option<u32> {
        let made_elsewhere = self.made.saturating_sub(made_there);
        match self.is_used_up() {
            true => Some(0),
            false => self.call.left.model_calls.map(|max| max.saturating_sub(made_elsewhere)),
        }
    }

    /// Finds the provider that was left and is available again first, and decides whether the call returns to it. It is
    /// the last provider to be asked then.
    fn find_return(&self, effects: &Effects) -> Option<Return> {
        let (now, config) = (self.elapsed, &effects.agent.retry);
        let returns_to = |(place, left): (usize, &LeftProvider)| {
            let (endpoint, facts) = left.returns_to(now, config)?;
            Some((place, endpoint, facts))
        };
        let open: Vec<_> = self.left.iter().enumerate().filter_map(returns_to).collect();
        let (left, place, facts) =
            *open.get(first_to_retry(open.iter().map(|(_, _, facts)| *facts))?)?;
        let provider = self.left.get(left)?;
        let policy = policy(&effects.agent.models, provider.provider, place)?;
        let (sent, refused) = provider.endpoints.counts(place);
        let mut tried = RetryContext::new(sent, now.saturating_sub(provider.began), true);
        (tried.total, tried.refused) = (provider.made, refused);
        tried.max_attempts = self.max_attempts(provider.made);
        tried.max_park = effects.place.max_park.unwrap_or_default();
        Some(Return { left, place, decision: policy.decide_by(facts, tried) })
    }

    /// Returns the state of the call for picking an endpoint.
    pub(super) fn picking<'a>(&'a self, effects: &'a Effects) -> Picking<'a> {
        Picking {
            config: &effects.agent.retry,
            clock: &*effects.agent.clock,
            failures: &self.endpoints,
            elapsed: self.elapsed,
            began: self.began,
            has_next: self.has_next(effects),
        }
    }

    /// Returns whether a provider follows that was not asked yet.
    fn has_next(&self, effects: &Effects) -> bool {
        self.next_provider() < effects.agent.models.len()
    }

    /// Returns the first provider that was not asked yet.
    fn next_provider(&self) -> usize {
        let asked = self.left.iter().map(|left| left.provider).chain([self.provider]);
        asked.max().unwrap_or_default() + 1
    }

    /// Registers that the call leaves this provider for another, with the reason.
    fn leave(&mut self, place: usize, error: &ProviderError) {
        self.left.push(LeftProvider {
            provider: self.provider,
            made: self.made_here,
            began: self.began,
            endpoints: std::mem::take(&mut self.endpoints),
            place,
            failure: error.into(),
            at: self.elapsed,
        });
    }

    const fn begin(&mut self, provider: usize) {
        (self.provider, self.made_here, self.began) = (provider, 0, self.elapsed);
    }

    fn return_to(&mut self, back: LeftProvider, place: usize) {
        self.paid_by = Some((back.provider, place));
        (self.provider, self.made_here, self.began) = (back.provider, back.made, back.began);
        self.endpoints = back.endpoints;
    }

    /// Returns the retry that was taken from a retry budget for this attempt, if the attempt is not made.
    pub(crate) fn give_back(&mut self, models: &ModelStack) {
        let paid_by = self.paid_by.take();
        if let Some(policy) = paid_by.and_then(|(provider, place)| policy(models, provider, place))
        {
            policy.give_back();
        }
    }

    /// Returns whether the limits on tokens or cost leave no room for another attempt.
    fn is_used_up(&self) -> bool {
        let (left, spent) = (&self.call.left, &self.spent);
        let reached = |left: Option<u64>, spent: u64| left.is_some_and(|left| spent >= left);
        reached(left.input_tokens, spent.input_tokens)
            || reached(left.output_tokens, spent.output_tokens)
            || reached(left.total_tokens, spent.total_tokens)
            || reached(left.cost_nanousd, nanousd(spent.cost_usd.unwrap_or_default()))
    }

    /// Returns the maximum number of output tokens of the answer.
    pub(in crate::effect) fn output_left(&self) -> Option<u64> {
        let (left, spent): (_, &Usage) = (&self.call.left, &self.spent);
        let output = left.output_tokens.map(|left| left.saturating_sub(spent.output_tokens));
        let total = left.total_tokens.map(|left| left.saturating_sub(spent.total_tokens));
        output.into_iter().chain(total).min()
    }
}

fn policy(models: &ModelStack, provider: usize, place: usize) -> Option<&RetryPolicy> {
    Some(&models.get(provider)?.get(place)?.retry)
}
