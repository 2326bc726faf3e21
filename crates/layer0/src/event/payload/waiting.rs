//! Runs that can do nothing but wait: for people, for their callers, for a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::id::ApprovalId;
use crate::time::Timestamp;

/// The reason of a run's wait when it can do nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitFor {
    /// A person's decision.
    #[default]
    Approval,
    /// More of its caller's budget.
    Budget,
    /// The time until which it is parked.
    Parked,
}

impl WaitFor {
    /// Returns the text in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Budget => "budget",
            Self::Parked => "parked",
        }
    }
}

payload! {
    /// The run can do nothing but wait.
    RunWaiting {
        /// The reason of the wait.
        #[serde(default)]
        r#for: WaitFor,
        /// The open approvals, here and in the runs below.
        approvals: Vec<ApprovalId>,
    }
}

impl RunWaiting {
    /// States what the run waits for, and what people have to decide.
    #[must_use]
    pub const fn new(r#for: WaitFor, approvals: Vec<ApprovalId>) -> Self {
        Self { r#for, approvals }
    }
}

payload! {
    /// The run waits for a time, without a process: an endpoint wants to be left alone for that long.
    RunParked {
        /// The time at which it continues.
        until: Timestamp,
        /// The code of the reason.
        reason: Code,
        /// The reason, for people.
        message: Arc<str>,
    }
}

impl RunParked {
    /// States until when a run waits, and why.
    #[must_use]
    pub fn new(until: Timestamp, reason: impl Into<Code>, message: impl Into<Arc<str>>) -> Self {
        Self { until, reason: reason.into(), message: message.into() }
    }
}
