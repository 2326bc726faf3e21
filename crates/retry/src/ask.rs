//! The loop of the layers: one request, and the endpoints that may answer it.

use std::time::Duration;

use futures_util::future::{Either, FutureExt, select};
use layer0::failure::{ErrorText, Exhausted, Facts, Failure, Retry as Answer, stated_facts};
use tower::{Service, ServiceExt};

use crate::policy::{RetryContext, RetryDecision, RetryPolicy, first_to_pass, first_to_retry};
use crate::request::{FailedAttempt, RetryRequest};

/// An endpoint that may answer a request, and how it is retried.
pub(crate) struct RetryEndpoint<'a, S> {
    pub(crate) policy: &'a RetryPolicy,
    pub(crate) inner: &'a S,
}

/// Calls endpoints in turn, each as often as its policy allows. When the last one fails too, the
/// call returns to an earlier one that has attempts left and can be retried soon.
pub(crate) async fn ask<S, Req>(
    endpoints: &[RetryEndpoint<'_, S>],
    request: Req,
) -> Result<S::Response, S::Error>
where
    S: Service<Req> + Clone,
    S::Error: Failure + From<Exhausted<S::Error>> + 'static,
    Req: RetryRequest<S::Error>,
{
    let mut in_turn = endpoints.iter().map(|endpoint| endpoint.policy).enumerate();
    let Some((place, policy)) = in_turn.next() else { return std::future::pending().await };
    let mut here = Visit::begin(place, policy);
    let mut left: Vec<Left<S::Error>> = Vec::new();
    let mut made: u32 = 0;
    loop {
        let endpoint = &endpoints[here.place];
        let result = endpoint.inner.clone().oneshot(request.clone()).await;
        let error = match result {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        made = made.saturating_add(1);
        here.count(stated_facts(&error).sent);
        let now = endpoint.policy.clock().monotonic();
        let mut tried = here.describe_tried(&request, made, now);
        tried.has_left = !left.is_empty();
        tried.has_next = in_turn.len() > 0;
        let decision = endpoint.policy.decide(&error, tried);
        let error = decision.settle(error, tried);
        let step = match decision {
            RetryDecision::Again(delay) => {
                NextAttempt { delay, payer: Some(endpoint.policy), goes_to: None }
            }
            // The service knows the other endpoint.
            RetryDecision::Beside => {
                NextAttempt { delay: Duration::ZERO, payer: None, goes_to: None }
            }
            RetryDecision::Next { .. } => {
                let Some((place, policy)) = in_turn.next() else { return Err(error) };
                let next = Visit::begin(place, policy);
                NextAttempt { delay: Duration::ZERO, payer: None, goes_to: Some(next) }
            }
            // The caller waits for a service, so its request cannot be parked.
            RetryDecision::Park(_) | RetryDecision::Stop { .. } => {
                let back = find_return(endpoints, &left, &request, made, now);
                let Some((place, delay)) = back else {
                    return Err(join_failures(&request, left, error, now));
                };
                let back = left.remove(place).visit;
                let payer = Some(endpoints[back.place].policy);
                NextAttempt { delay, payer, goes_to: Some(back) }
            }
        };
        let NextAttempt { delay, payer, goes_to } = step;
        tracing::debug!(attempt = made, code = error.code(), ?delay, "another attempt follows");
        if let Some(recorded) =
            request.record_failed_attempt(FailedAttempt { number: made, error: &error, delay })
        {
            recorded.await?;
        }
        let is_given_up = if delay.is_zero() {
            request.given_up().now_or_never().is_some()
        } else {
            let wait = endpoint.policy.clock().sleep(delay);
            matches!(select(request.given_up(), wait).await, Either::Left(_))
        };
        if is_given_up {
            if let Some(policy) = payer {
                policy.give_back();
            }
            let error = match goes_to {
                Some(_) => error,
                None => Exhausted::new(tried.total, tried.elapsed, error).into(),
            };
            return Err(join_failures(&request, left, error, now));
        }
        if let Some(next) = goes_to {
            left.push(Left { visit: here, error, at: now });
            here = next;
        }
    }
}

/// The next attempt.
struct NextAttempt<'a> {
    delay: Duration,
    /// The policy whose budget paid for it.
    payer: Option<&'a RetryPolicy>,
    /// The endpoint of the next attempt, if it is another one.
    goes_to: Option<Visit>,
}

/// The attempts at one endpoint.
struct Visit {
    place: usize,
    /// The number of all requests, and of those refused before they were sent.
    total: u32,
    refused: u32,
    /// The start of the first attempt, in monotonic time.
    began: Duration,
}

/// An endpoint that failed before another one was called.
struct Left<E> {
    visit: Visit,
    error: E,
    /// The time of the failure, in monotonic time.
    at: Duration,
}

impl Visit {
    fn begin(place: usize, policy: &RetryPolicy) -> Self {
        policy.begin();
        Self { place, total: 0, refused: 0, began: policy.clock().monotonic() }
    }

    fn count(&mut self, sent: bool) {
        self.total = self.total.saturating_add(1);
        self.refused = self.refused.saturating_add(u32::from(!sent));
    }

    /// Describes the attempts; `made` counts those at all endpoints.
    fn describe_tried<E>(
        &self,
        request: &impl RetryRequest<E>,
        made: u32,
        now: Duration,
    ) -> RetryContext {
        let sent = self.total.saturating_sub(self.refused);
        let elapsed = now.saturating_sub(self.began);
        let mut tried = RetryContext::new(sent, elapsed, request.is_idempotent());
        (tried.total, tried.refused) = (self.total, self.refused);
        let elsewhere = made.saturating_sub(self.total);
        tried.max_attempts = request.max_attempts().map(|max| max.saturating_sub(elsewhere));
        tried.time_left = request.time_left();
        tried
    }
}

impl<E: Failure> Left<E> {
    /// Returns the facts of the failure, with the rest of its retry delay.
    fn facts(&self, now: Duration) -> Facts {
        stated_facts(&self.error).after(now.saturating_sub(self.at))
    }
}

/// Returns the endpoint to return to and the delay before: the first that can be retried, if it has
/// attempts left.
fn find_return<S, E: Failure>(
    endpoints: &[RetryEndpoint<'_, S>],
    left: &[Left<E>],
    request: &impl RetryRequest<E>,
    made: u32,
    now: Duration,
) -> Option<(usize, Duration)> {
    let open = left.iter().map(|left| {
        let sent = left.visit.total.saturating_sub(left.visit.refused);
        let config = endpoints[left.visit.place].policy.config();
        match config.is_spent(sent, left.visit.refused) {
            true => left.facts(now).with_retry(Answer::Never),
            false => left.facts(now),
        }
    });
    let place = first_to_retry(open)?;
    let lead = left.get(place)?;
    let policy = endpoints[lead.visit.place].policy;
    match policy.decide_by(lead.facts(now), lead.visit.describe_tried(request, made, now)) {
        RetryDecision::Again(delay) => Some((place, delay)),
        _ => None,
    }
}

/// Joins the failures of several endpoints: the failure that passes first, with the others in its chain.
fn join_failures<E: Failure + 'static>(
    request: &impl RetryRequest<E>,
    left: Vec<Left<E>>,
    last: E,
    now: Duration,
) -> E {
    let facts = left.iter().map(|left| left.facts(now)).chain([stated_facts(&last)]);
    let lead = first_to_pass(facts).unwrap_or_default();
    let mut failures: Vec<E> = left.into_iter().map(|left| left.error).chain([last]).collect();
    let mut error = failures.remove(lead);
    for other in failures.iter().rev() {
        request.keep_earlier(&mut error, &ErrorText::from_error(other));
    }
    error
}

#[cfg(test)]
mod tests;
