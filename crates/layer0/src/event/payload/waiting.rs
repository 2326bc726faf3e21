//! Runs that can only wait: for people, for their callers, or until a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::id::ApprovalId;
use crate::time::Timestamp;

/// The reason of a wait, if a run can do nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitFor {
    /// The decision of a person.
    #[default]
    Approval,
    /// More budget from the caller.
    Budget,
    /// The time until which it is parked.
    Parked,
}

impl WaitFor {
    /// Returns the reason's text in events.
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
    /// The run can only wait.
    RunWaiting {
        /// The reason of the wait.
        #[serde(default)]
        r#for: WaitFor,
        /// The open approvals of the run and of child runs.
        approvals: Vec<ApprovalId>,
    }
}

impl RunWaiting {
    /// Creates the event for a wait, with the open approvals.
    #[must_use]
    pub const fn new(r#for: WaitFor, approvals: Vec<ApprovalId>) -> Self {
        Self { r#for, approvals }
    }
}

payload! {
    /// The run waits until a time, without a process, because an endpoint asked for that wait.
    RunParked {
        /// The time at which it continues.
        until: Timestamp,
        /// The code of the reason.
        reason: Code,
        /// The description of the reason for people.
        message: Arc<str>,
    }
}

impl RunParked {
    /// Creates the event for a parked run.
    #[must_use]
    pub fn new(until: Timestamp, reason: impl Into<Code>, message: impl Into<Arc<str>>) -> Self {
        Self { until, reason: reason.into(), message: message.into() }
    }
}
