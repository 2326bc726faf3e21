//! Whole numbers that many processes count in.

use std::time::Duration;

use serde_json::Value;

use super::{Expected, Scope, StateStore, StateWrite, Versioned};
use crate::error::StateError;

/// The most tries of the default of [`StateStore::add`]: each that fails was overtaken by another writer.
const MAX_TRIES: u32 = 1_000;

/// An amount that is to be added to a stored whole number.
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
    /// Under which key.
    pub key: String,
    /// The amount; what is stored becomes no less than 0.
    pub amount: i64,
    /// The most that may be stored before; no bound if `None`.
    pub unless_above: Option<u64>,
    /// The time the number stays; until it is removed if `None`.
    pub expires_after: Option<Duration>,
}

/// The result of an addition, with the number that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Added {
    /// It was added, and this is the sum.
    Done(u64),
    /// More than the bound is stored: this. Nothing was added.
    Refused(u64),
}

impl StateAdd {
    /// Adds to whatever number is there, 0 where there is none, and lets it stay.
    pub fn new(scope: Scope, key: impl Into<String>, amount: i64) -> Self {
        Self { scope, key: key.into(), amount, unless_above: None, expires_after: None }
    }

    /// Adds only if no more than this is stored.
    #[must_use]
    pub const fn unless_above(mut self, bound: u64) -> Self {
        self.unless_above = Some(bound);
        self
    }

    /// Keeps the number so long.
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

    /// Returns the write that replaces what is stored by the sum; the stored number above the bound.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`] where something other than a whole number from 0 is stored.
    pub fn over(&self, stored: Option<&Versioned>) -> Result<Result<StateWrite, u64>, StateError> {
        let found = stored.map_or(Ok(0), |stored| whole_number(&stored.value))?;
        let Some(sum) = self.after(found) else { return Ok(Err(found)) };
        let expected = stored.map_or(Expected::Absent, |stored| Expected::Version(stored.version));
        let write = StateWrite::new(self.scope.clone(), self.key.clone(), sum.into());
        let expires_after = self.expires_after;
        Ok(Ok(StateWrite { expires_after, ..write.expecting(expected) }))
    }
}

fn whole_number(value: &Value) -> Result<u64, StateError> {
    let error = || StateError::Serialization("the stored value is no whole number".to_owned());
    value.as_u64().ok_or_else(error)
}

/// Adds over what is stored, again while others write it.
pub(super) async fn add<S>(store: &S, add: StateAdd) -> Result<Added, StateError>
where
    S: StateStore + ?Sized,
{
    let mut tries_left = MAX_TRIES;
    loop {
        let stored = store.read(&add.scope, &add.key).await?;
        let write = match add.over(stored.as_ref())? {
            Ok(write) => write,
            Err(found) => return Ok(Added::Refused(found)),
        };
        let sum = write.value.as_u64().unwrap_or_default();
        match store.write(write).await {
            Err(StateError::Conflict { .. }) if tries_left > 0 => tries_left -= 1,
            written => return written.map(|_| Added::Done(sum)),
        }
    }
}
