//! Behaviours: what was delivered to them, how it ended, and what they caused.

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
    /// The subscription that the event was delivered to.
    pub subscription: Arc<str>,
    /// The run whose event it was.
    pub run: RunId,
    /// The event.
    pub seq: u64,
    /// The number of deliveries that led to it, one after the other; 1 if that event had no cause itself.
    pub length: u32,
}

impl Cause {
    /// Names the subscription, the run and its event, and states how long the chain of causes is.
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
    /// A segment of a subscription's record began.
    SubscriptionOpened {
        /// The name of the subscription.
        name: Arc<str>,
        /// The pattern it has from here on; several are separated by ` or `.
        pattern: Arc<str>,
        /// The segment before; null in the first one.
        follows: Option<RunId>,
        /// The hash of the last event of the segment before; null in the first one.
        head: Option<Hash>,
        /// The id of the key that the segment is sealed with, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_id: Option<Arc<str>>,
        /// Whether the row of the segment, and each erasure of one of its events, are sealed with the key too.
        #[serde(default, skip_serializing_if = "is_false")]
        row_sealed: bool,
    }
}

impl SubscriptionOpened {
    /// Begins the first segment of a subscription's record.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, pattern: impl Into<Arc<str>>) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, follows: None, head: None, key_id: None, row_sealed: false }
    }
}

payload! {
    /// A behaviour was given an event.
    BehaviorDelivered {
        /// Its name.
        behavior: Arc<str>,
        /// The run whose event it is.
        run: RunId,
        /// The event.
        seq: u64,
        /// The event's type.
        event: Arc<str>,
        /// The number of deliveries that led to this, one after the other, itself included.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        length: u32,
        /// The number of processes that died while this delivery was in progress; absent if none did.
        #[serde(default, skip_serializing_if = "is_zero")]
        deaths: u32,
    }
}

impl BehaviorDelivered {
    /// Names the behaviour and the event it was given.
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
    /// A behaviour finished its work on an event.
    BehaviorCompleted {
        /// Its name.
        behavior: Arc<str>,
        /// The run whose event it was given.
        run: RunId,
        /// The event.
        seq: u64,
        /// The number of attempts it took: 1, 2, ….
        attempts: u32,
    }
}

impl BehaviorCompleted {
    /// Names the behaviour and the event, and states how many attempts it took.
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
    /// A behaviour failed at an event, which is set aside; the others still fire.
    BehaviorFailed {
        /// Its name.
        behavior: Arc<str>,
        /// The run whose event it was given.
        run: RunId,
        /// The event.
        seq: u64,
        /// The number of attempts; 0 if it was not asked.
        attempts: u32,
        /// The type of the error.
        exception_type: Arc<str>,
        /// The code.
        reason: Code,
        /// The description of the failure.
        message: Arc<str>,
        /// The number of deliveries that led to this, one after the other, itself included.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        length: u32,
    }
}

impl BehaviorFailed {
    /// States what was delivered, how many attempts were made, and why the last one failed.
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
