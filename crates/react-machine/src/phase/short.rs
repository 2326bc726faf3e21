//! A run that its caller has to give more of its budget.

use crate::budget::Exhausted;
use crate::phase::turn::Ask;

/// A model call that what the caller gave does not allow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Short {
    /// The seq of what led to the call.
    pub(crate) cause: u64,
    pub(crate) ask: Ask,
    /// What the run ends with if there is no more.
    pub(crate) exhausted: Exhausted,
}
