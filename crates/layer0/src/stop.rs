//! The end of a run.

use serde::{Deserialize, Serialize};

use crate::code::{self, Code};

/// The end of a run that did not fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Stop {
    /// The model gave its final answer.
    Completed,
    /// The final answer was cut off, refused or filtered; its text is kept.
    Incomplete {
        /// `model.max_tokens`, `model.refusal`, `model.content_filter`, `model.pause` or
        /// `model.unknown_stop`.
        reason: Code,
    },
    /// A budget was used up.
    BudgetExhausted {
        /// The budget's code, such as `budget.wall_time`.
        reason: Code,
    },
    /// The run was cancelled.
    Cancelled,
    /// The run waits for a person.
    WaitingApproval,
}

impl Stop {
    /// Returns the code of the stop; `None` exactly for [`Stop::Completed`].
    #[must_use]
    pub fn reason(&self) -> Option<Code> {
        match self {
            Self::Completed => None,
            Self::Incomplete { reason } | Self::BudgetExhausted { reason } => Some(reason.clone()),
            Self::Cancelled => Some(Code::new(code::RUN_CANCELLED)),
            Self::WaitingApproval => Some(Code::new(code::RUN_WAITING_APPROVAL)),
        }
    }

    /// Returns the outcome for events and JSON.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Completed => Outcome::Completed,
            Self::Incomplete { .. } => Outcome::Incomplete,
            Self::BudgetExhausted { .. } => Outcome::BudgetExhausted,
            Self::Cancelled => Outcome::Cancelled,
            Self::WaitingApproval => Outcome::WaitingApproval,
        }
    }
}

/// The outcome of a run, including failures, in events and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The model gave its final answer.
    Completed,
    /// The final answer was cut off, refused or filtered.
    Incomplete,
    /// The run failed.
    Failed,
    /// A budget was used up.
    BudgetExhausted,
    /// The run was cancelled.
    Cancelled,
    /// The run waits for a person.
    WaitingApproval,
}

impl Outcome {
    /// Returns the text for events and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Cancelled => "cancelled",
            Self::WaitingApproval => "waiting_approval",
        }
    }
}
