//! The refusal for which an endpoint is not used for a while.

use std::sync::{Arc, Mutex, PoisonError};

use backstop_provider::ProviderError;
use backstop_provider::recorded::RecordedFailure;
use backstop_retry::RateLimit;
use layer0::failure::{Elsewhere, Facts, Failure, Retry};

/// The last refusal of an endpoint, after which its pool stopped using it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct LastRefusal(Arc<Mutex<Option<Box<RecordedFailure>>>>);

impl LastRefusal {
    pub(super) fn record(&self, error: &ProviderError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(error.into()));
    }

    /// Returns the refusal for which the endpoint is paused, with the rest of the pause as its hint, if a call asks
    /// another provider instead of waiting for the end of the pause.
    pub(super) fn left_for(&self, rate: &RateLimit) -> Option<ProviderError> {
        let pause = Some(rate.pause_left()).filter(|pause| !pause.is_zero())?;
        let error = self.error()?;
        match error.facts() {
            Facts { retry: Retry::Never, .. } => Some(error),
            Facts { retry: Retry::After(_), elsewhere: Elsewhere::AtOnce, .. } => {
                Some(error.with_retry_after(Some(pause)))
            }
            _ => None,
        }
    }

    fn error(&self) -> Option<ProviderError> {
        let refusal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refusal.as_deref().map(ProviderError::from)
    }
}
