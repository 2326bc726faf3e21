//! Failures of endpoints in one model call.

use std::time::Duration;

use backstop_provider::ProviderError;
use backstop_provider::recorded::RecordedFailure;
use backstop_retry::{RetryConfig, first_to_pass, first_to_retry};
use layer0::failure::{ErrorText, Facts, Failure, Retry};
use serde::{Deserialize, Serialize};

/// The attempts of one call at each endpoint of a pool that was asked.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct PoolFailures(Vec<EndpointFailure>);

/// The attempts at one endpoint, and the failure of the last one.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct EndpointFailure {
    pub(crate) place: usize,
    /// Number of requests that were sent, and of requests that were refused before.
    sent: u32,
    refused: u32,
    /// The time of the call at which it failed.
    at: Duration,
    failure: RecordedFailure,
}

/// A provider that failed, and was left for another.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LeftProvider {
    pub(crate) provider: usize,
    /// Number of attempts there, and the time of the call at which the first began.
    pub(crate) made: u32,
    pub(crate) began: Duration,
    pub(crate) endpoints: PoolFailures,
    /// The endpoint whose failure represents the pool, and that failure as the retry policy returned it.
    pub(crate) place: usize,
    pub(crate) failure: RecordedFailure,
    /// The time of the call at which it failed.
    pub(crate) at: Duration,
}

impl PoolFailures {
    /// Records the failure of an attempt at this time of the call, as the last of the list.
    pub(crate) fn note(
        &mut self,
        place: usize,
        error: &ProviderError,
        is_sent: bool,
        at: Duration,
    ) {
        let (sent, refused) = self.counts(place);
        self.0.retain(|known| known.place != place);
        self.0.push(EndpointFailure {
            place,
            sent: sent.saturating_add(u32::from(is_sent)),
            refused: refused.saturating_add(u32::from(!is_sent)),
            at,
            failure: error.into(),
        });
    }

    /// Returns the number of requests sent to an endpoint, and of requests refused before.
    pub(crate) fn counts(&self, place: usize) -> (u32, u32) {
        self.find(place).map_or((0, 0), |known| (known.sent, known.refused))
    }

    /// Returns the failure of an endpoint, if it was asked.
    pub(crate) fn find(&self, place: usize) -> Option<&EndpointFailure> {
        self.0.iter().find(|known| known.place == place)
    }

    /// Returns whether an endpoint is not asked again in this call: it failed for good, or has no attempt left.
    pub(crate) fn is_ruled_out(&self, place: usize, config: &RetryConfig) -> bool {
        self.find(place).is_some_and(|known| {
            config.is_spent(known.sent, known.refused)
                || known.facts(known.at).retry == Retry::Never
        })
    }

    /// Returns the rest of the wait that an endpoint asked for, at this time of the call.
    pub(crate) fn wait(&self, place: usize, now: Duration) -> Duration {
        match self.find(place).map(|known| known.facts(now).retry) {
            Some(Retry::After(hint)) => hint,
            _ => Duration::ZERO,
        }
    }

    /// Returns the failure that represents all: the one that passes first, else the last one after which another
    /// provider may do better, else the last one.
    pub(crate) fn lead(&self, now: Duration) -> Option<&EndpointFailure> {
        let facts: Vec<Facts> = self.0.iter().map(|known| known.facts(now)).collect();
        let passes = |facts: &Facts| facts.later != Retry::Never;
        let place = match facts.iter().any(passes) {
            true => first_to_pass(facts),
            false => facts.iter().rposition(|facts| facts.elsewhere.is_possible()),
        };
        place.map_or(self.0.last(), |place| self.0.get(place))
    }

    /// Adds the failures of the other endpoints to the chain of the one at `place`, each text once.
    pub(crate) fn keep_others(&self, place: usize, error: &mut ProviderError) {
        let mut kept = vec![ErrorText::from_error(error)];
        kept.extend(self.find(place).map(|known| ErrorText::from_error(&known.error(known.at))));
        for other in self.0.iter().rev().filter(|other| other.place != place) {
            let text = ErrorText::from_error(&other.error(other.at));
            if !kept.contains(&text) {
                error.keep_beside(&text);
                kept.push(text);
            }
        }
    }
}

impl EndpointFailure {
    /// Returns the facts of the failure at this time of the call.
    pub(crate) fn facts(&self, now: Duration) -> Facts {
        ProviderError::from(&self.failure).facts().after(now.saturating_sub(self.at))
    }

    /// Returns the failure, with the rest of its hint at this time of the call.
    pub(crate) fn error(&self, now: Duration) -> ProviderError {
        let error = ProviderError::from(&self.failure);
        match self.facts(now).retry {
            Retry::After(hint) => error.with_retry_after(Some(hint)),
            Retry::Backoff | Retry::Never => error,
        }
    }
}

impl LeftProvider {
    /// Returns the facts of the failure at this time of the call.
    pub(crate) fn facts(&self, now: Duration) -> Facts {
        ProviderError::from(&self.failure).facts().after(now.saturating_sub(self.at))
    }

    /// Returns the endpoint that is available again first, and the facts of its failure at this time of the call;
    /// `None` if none has an attempt left that may help.
    pub(crate) fn returns_to(&self, now: Duration, config: &RetryConfig) -> Option<(usize, Facts)> {
        // Attempts, time or budget of the endpoint that represents the pool may be used up.
        let is_given_up = self.facts(now).retry == Retry::Never;
        let can_return = |known: &&EndpointFailure| {
            let is_lead = known.place == self.place;
            !(is_lead && is_given_up || self.endpoints.is_ruled_out(known.place, config))
        };
        let open: Vec<(usize, Facts)> = self
            .endpoints
            .0
            .iter()
            .filter(can_return)
            .map(|known| (known.place, known.facts(now)))
            .collect();
        open.get(first_to_retry(open.iter().map(|(_, facts)| *facts))?).copied()
    }
}
