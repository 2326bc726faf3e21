//! One error enum per protocol.
//!
//! An enum belongs to the protocol of the same name, and a caller matches only on its own level: an orchestrator sees
//! [`OrchError`], never the inner error, which stays reachable through [`std::error::Error::source`].

// The macro has to precede the modules that use it.
/// Adds inherent `is_retryable` and `may_pass_later` to an error enum, so that callers need no trait import.
macro_rules! inherent_is_retryable {
    ($error:ty) => {
        impl $error {
            /// Returns whether another attempt now, with backoff, can help; false once the retries gave up.
            #[must_use]
            pub fn is_retryable(&self) -> bool {
                $crate::failure::Failure::retry(self).is_retryable()
            }

            /// Returns whether the failure may have passed when the work is begun anew later, also after the retries
            /// gave up. A job queue asks this.
            #[must_use]
            pub fn may_pass_later(&self) -> bool {
                $crate::failure::Failure::may_pass_later(self)
            }
        }
    };
}

mod boxed;
mod environment;
mod operator;
mod orchestrator;
mod state;

pub use boxed::BoxError;
pub use environment::EnvError;
pub use operator::{ErrorDetails, OperatorError, StepDone};
pub use orchestrator::OrchError;
pub use state::StateError;
