//! One error enum per protocol.
//!
//! An enum belongs to the protocol of the same name, and a caller matches only on its own level: an
//! orchestrator sees [`OrchError`], never what is inside. What is inside stays reachable through
//! [`std::error::Error::source`].

mod environment;
mod operator;
mod orchestrator;
mod state;

pub use environment::EnvError;
pub use operator::OperatorError;
pub use orchestrator::OrchError;
pub use state::StateError;

/// Any error that can cross threads: what the `Other` variants hold.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Gives an error enum its inherent `is_retryable`, so that callers need no trait import.
macro_rules! inherent_is_retryable {
    ($error:ty) => {
        impl $error {
            /// Can trying again help?
            #[must_use]
            pub fn is_retryable(&self) -> bool {
                $crate::failure::Failure::retry(self).is_retryable()
            }
        }
    };
}
pub(crate) use inherent_is_retryable;
