//! The behaviour interface.

use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::Patterns;

use crate::context::BehaviorContext;
use crate::delivery::Delivery;
use crate::error::BehaviorError;

/// Position in the log from which a new subscription reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// The current end of the log: only events appended later are delivered.
    #[default]
    Now,
    /// The first event of the log.
    Start,
}

/// Code that reacts to events of the record.
///
/// Each event that its patterns match is delivered once, in the order of its run; a delivery that was open when the
/// process died is repeated with the same [id](Delivery::id). Deliveries for different runs are concurrent.
#[async_trait]
pub trait Behavior: Send + Sync {
    /// Returns the name under which the log keeps the position of the subscription; see
    /// [`check_behavior_name`](layer0::name::check_behavior_name).
    fn name(&self) -> &str;

    /// Returns the patterns of the events to deliver. A changed pattern applies from the current position on.
    fn patterns(&self) -> &Patterns;

    /// Returns the position from which a new subscription reads.
    fn start(&self) -> Start {
        Start::Now
    }

    /// Returns the time limit of one attempt.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Returns the maximum number of attempts of a delivery. Another attempt is made only if it can help, according to
    /// the facts of the failure.
    fn attempts(&self) -> u32 {
        3
    }

    /// Reacts to one event.
    ///
    /// # Errors
    ///
    /// Any failure: its facts decide whether the delivery is retried. After the last attempt the failure is recorded,
    /// and the behaviour continues with the next event.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at the timeout and when the host stops; after a stop the delivery is repeated later.
    async fn on(&self, delivery: &Delivery, context: &BehaviorContext)
    -> Result<(), BehaviorError>;
}
