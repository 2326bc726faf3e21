//! A run that waits for more of its caller's budget.

use crate::budget::Exhausted;
use crate::phase::turn::Ask;

/// A model call that the caller's allowance does not permit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Short {
    /// The seq of the cause of the call.
    pub(crate) cause: u64,
    pub(crate) ask: Ask,
    /// The end of the run if there is no more.
    pub(crate) exhausted: Exhausted,
}
