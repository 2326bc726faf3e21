//! A run that waits for more of its caller's budget.

use crate::budget::ExhaustedBudget;
use crate::phase::turn::PlannedModelCall;

/// A model call that the caller's allowance does not permit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Short {
    /// The seq of the cause of the call.
    pub(crate) cause: u64,
    pub(crate) ask: PlannedModelCall,
    /// The end of the run if there is no more.
    pub(crate) exhausted: ExhaustedBudget,
}
