//! What reacts.

use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::Patterns;

use crate::context::BehaviorContext;
use crate::delivery::Delivery;
use crate::error::BehaviorError;

/// Where a subscription begins that nothing was delivered to yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// At what is appended from now on.
    #[default]
    Now,
    /// At the first event of the log.
    Start,
}

/// Reacts to events of the record.
///
/// Each event that its patterns match is delivered once, in the order of a run; a delivery that was open
/// when the process died is made again, with the same [id](Delivery::id). Runs go side by side.
#[async_trait]
pub trait Behavior: Send + Sync {
    /// Returns the name, under which the log keeps how far it is: see
    /// [`check_behavior_name`](layer0::name::check_behavior_name).
    fn name(&self) -> &str;

    /// Returns what it is shown. Another pattern holds from where it is.
    fn patterns(&self) -> &Patterns;

    /// Returns where it begins, the first time.
    fn start(&self) -> Start {
        Start::Now
    }

    /// Returns how long one attempt may take.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Returns how many attempts a delivery has, as far as its failures say that another one can help.
    fn attempts(&self) -> u32 {
        3
    }

    /// Reacts to an event.
    ///
    /// # Errors
    ///
    /// Any failure: its facts decide whether the delivery is tried again. Then it is recorded, and the
    /// behaviour goes on with the next event.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at the timeout, and when the host stops; the delivery is made again then.
    async fn on(&self, delivery: &Delivery, context: &BehaviorContext)
    -> Result<(), BehaviorError>;
}
