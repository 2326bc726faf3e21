//! A run: begun, copied, taken up again, ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::payload;
use crate::code::Code;
use crate::id::{ApprovalId, CallId, RunId, SessionId};
use crate::json_text::JsonText;
use crate::message::Image;
use crate::stop::Outcome;
use crate::usage::Usage;

/// The resolved agent a run was started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The agent's name.
    pub name: Arc<str>,
    /// SHA-256 of the definition, in hex.
    pub digest: Arc<str>,
    /// Everything the run needs to be rebuilt, without secrets.
    pub definition: JsonText,
}

payload! {
    /// A run began.
    RunStarted {
        /// What the caller asked.
        input: Arc<str>,
        /// The pictures it was asked about.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The conversation it belongs to.
        session: SessionId,
        /// Who answers.
        agent: AgentRecord,
        /// The run that started this one.
        parent: Option<RunId>,
        /// The run whose conversation this one goes on with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        follows: Option<RunId>,
    }
}

payload! {
    /// A run was copied from another one up to an event.
    RunForked {
        /// The run it was copied from.
        parent: RunId,
        /// The last event that was copied.
        at: u64,
    }
}

payload! {
    /// A run was taken up again.
    RunResumed {
        /// Who did it.
        by: Arc<str>,
    }
}

payload! {
    /// What was open when the process died was sorted out.
    RunRecovered {
        /// Calls that are run again.
        rerun: Vec<CallId>,
        /// Calls answered as interrupted.
        interrupted: Vec<CallId>,
        /// Model attempts that were lost.
        models: u32,
    }
}

payload! {
    /// The run waits for people.
    RunWaiting {
        /// What they have to decide.
        approvals: Vec<ApprovalId>,
    }
}

payload! {
    /// The run ended without failing.
    RunFinished {
        /// How.
        outcome: Outcome,
        /// The code of the stop; null exactly when completed.
        reason: Option<Code>,
        /// The stop for people.
        message: Option<Arc<str>>,
        /// What the model said.
        output: Arc<str>,
        /// What it used.
        usage: Usage,
    }
}

payload! {
    /// The run failed.
    RunFailed {
        /// The code of the failure.
        reason: Code,
        /// The failure for people.
        message: Arc<str>,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// What it used.
        usage: Usage,
    }
}
