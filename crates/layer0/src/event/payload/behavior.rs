//! Behaviours: deliveries, their ends, and the events that they caused.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::event::hash::Hash;
use crate::id::RunId;

/// A delivery to a behaviour that led to an event.
///
/// ```
/// use layer0::event::Cause;
///
/// let first = Cause::new("tell ops", "run_1", 7, 1);
/// assert_eq!(first.length, 1, "the run it came from was not caused by a behaviour");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cause {
    /// The subscription of the behaviour.
    pub subscription: Arc<str>,
    /// The run of the delivered event.
    pub run: RunId,
    /// The seq of the delivered event.
    pub seq: u64,
    /// The number of consecutive deliveries that led to it; 1 if the delivered event had no cause itself.
    pub length: u32,
}

impl Cause {
    /// Creates a cause from the subscription, the delivered event and the length of the chain.
    #[must_use]
    pub fn new(
        subscription: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        seq: u64,
        length: u32,
    ) -> Self {
        Self { subscription: subscription.into(), run: run.into(), seq, length }
    }
}

payload! {
    /// A segment of a subscription's record was opened.
    SubscriptionOpened {
        /// The name of the subscription.
        name: Arc<str>,
        /// The subscription's pattern from here on; several patterns are separated by ` or `.
        pattern: Arc<str>,
        /// The previous segment; null in the first one.
        follows: Option<RunId>,
        /// The hash of the previous segment's last event; null in the first segment.
        head: Option<Hash>,
        /// The id of the key that seals the segment, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_id: Option<Arc<str>>,
        /// Whether the key also seals the row of the segment and each erasure of its events.
        #[serde(default, skip_serializing_if = "is_false")]
        row_sealed: bool,
    }
}

impl SubscriptionOpened {
    /// Creates the first event of a subscription's first segment.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, pattern: impl Into<Arc<str>>) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, follows: None, head: None, key_id: None, row_sealed: false }
    }
}

payload! {
    /// An event was delivered to a behaviour.
    BehaviorDelivered {
        /// The behaviour's name.
        behavior: Arc<str>,
        /// The run of the event.
        run: RunId,
        /// The seq of the event.
        seq: u64,
        /// The event's type.
        event: Arc<str>,
        /// The number of consecutive deliveries that led to this one, including itself.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        length: u32,
        /// The number of processes that died during this delivery; absent if none did.
        #[serde(default, skip_serializing_if = "is_zero")]
        deaths: u32,
    }
}

impl BehaviorDelivered {
    /// Creates the event for a delivery to a behaviour.
    #[must_use]
    pub fn new(
        behavior: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        seq: u64,
        event: impl Into<Arc<str>>,
    ) -> Self {
        let (behavior, run, event) = (behavior.into(), run.into(), event.into());
        Self { behavior, run, seq, event, length: 1, deaths: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(length: &u32) -> bool {
    *length == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(deaths: &u32) -> bool {
    *deaths == 0
}

payload! {
    /// A behaviour completed its work on an event.
    BehaviorCompleted {
        /// The behaviour's name.
        behavior: Arc<str>,
        /// The run of the delivered event.
        run: RunId,
        /// The seq of the delivered event.
        seq: u64,
        /// The number of attempts: 1, 2, ….
        attempts: u32,
    }
}

impl BehaviorCompleted {
    /// Creates the event for a completed delivery.
    #[must_use]
    pub fn new(
        behavior: impl Into<Arc<str>>,
        run: impl Into<RunId>,
        seq: u64,
        attempts: u32,
    ) -> Self {
        Self { behavior: behavior.into(), run: run.into(), seq, attempts }
    }
}

payload! {
    /// A behaviour failed on an event, which is set aside; other behaviours still run.
    BehaviorFailed {
        /// The behaviour's name.
        behavior: Arc<str>,
        /// The run of the delivered event.
        run: RunId,
        /// The seq of the delivered event.
        seq: u64,
        /// The number of attempts; 0 if the behaviour was not run.
        attempts: u32,
        /// The type of the error.
        exception_type: Arc<str>,
        /// The code.
        reason: Code,
        /// The description of the failure.
        message: Arc<str>,
        /// The number of consecutive deliveries that led to this one, including itself.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        length: u32,
    }
}

impl BehaviorFailed {
    /// Creates the event for a failed delivery, with the last attempt's error.
    #[must_use]
    pub fn new(
        delivered: &BehaviorDelivered,
        attempts: u32,
        exception_type: impl Into<Arc<str>>,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            behavior: delivered.behavior.clone(),
            run: delivered.run.clone(),
            seq: delivered.seq,
            attempts,
            exception_type: exception_type.into(),
            reason: reason.into(),
            message: message.into(),
            length: delivered.length,
        }
    }
}
