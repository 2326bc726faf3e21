//! Additions to whole numbers.

use std::time::Duration;

use super::scope::Scope;

/// An amount to add to a stored whole number.
///
/// ```
/// use layer0::state::{Scope, StateAdd};
///
/// // Takes one of ten places.
/// let place = StateAdd::new(Scope::Global, "places", 1).unless_above(9);
/// assert_eq!(place.after(9), Some(10));
/// assert_eq!(place.after(10), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateAdd {
    /// The scope.
    pub scope: Scope,
    /// The key.
    pub key: String,
    /// The amount. The sum is at least 0.
    pub amount: i64,
    /// The largest stored number to which the amount is added; no bound if `None`.
    pub unless_above: Option<u64>,
    /// The time after which the number expires; never if `None`.
    pub expires_after: Option<Duration>,
}

/// The result of an addition, with the stored number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Added {
    /// The stored sum.
    Done(u64),
    /// The stored number, which is above the bound. Nothing was added.
    Refused(u64),
}

impl StateAdd {
    /// Creates an addition to the stored number, or to 0 if there is none. The sum does not expire.
    pub fn new(scope: Scope, key: impl Into<String>, amount: i64) -> Self {
        Self { scope, key: key.into(), amount, unless_above: None, expires_after: None }
    }

    /// Adds only if the stored number is at most this.
    #[must_use]
    pub const fn unless_above(mut self, bound: u64) -> Self {
        self.unless_above = Some(bound);
        self
    }

    /// Sets the time after which the number expires.
    #[must_use]
    pub const fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Returns the sum for a stored number: from 0 to `i64::MAX`; `None` above the bound.
    #[must_use]
    pub fn after(&self, stored: u64) -> Option<u64> {
        let sum = stored.saturating_add_signed(self.amount).min(i64::MAX.unsigned_abs());
        self.unless_above.is_none_or(|bound| stored <= bound).then_some(sum)
    }
}
