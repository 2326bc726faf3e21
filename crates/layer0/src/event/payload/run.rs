//! A run: begun, copied, taken up again, ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::event::hash::Hash;
use crate::id::{ApprovalId, CallId, RunId, SessionId};
use crate::json_text::JsonText;
use crate::message::{Image, Transcript};
use crate::stop::Outcome;
use crate::time::Timestamp;
use crate::usage::{Allowance, Usage};

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
        /// The images of its input.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The session it belongs to.
        session: SessionId,
        /// Who answers.
        agent: AgentRecord,
        /// The run that started this one.
        parent: Option<RunId>,
        /// The run of the session that this one goes on after.
        #[serde(default)]
        follows: Option<Follows>,
        /// The version of the machine that decides; 0 in records that do not say.
        #[serde(default)]
        machine: u32,
        /// How many dispatches are above the run.
        #[serde(default)]
        depth: u32,
        /// What it may use of its caller's budget; null without a caller that has one.
        #[serde(default)]
        allowance: Option<Box<Allowance>>,
        /// When it has to be done, on the clock of its events; null without a bound of its caller's.
        #[serde(default)]
        deadline: Option<Timestamp>,
        /// What was said before, where the caller brought it along.
        #[serde(default, skip_serializing_if = "Transcript::is_empty")]
        history: Transcript,
    }
}

/// Where the transcript of a session stood when a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedFollows")]
pub struct Follows {
    /// The run before.
    pub run: RunId,
    /// Its last event.
    pub seq: u64,
    /// The hash of that event, which stands for everything said until then.
    pub digest: Hash,
    /// How many messages the transcript had.
    pub messages: u64,
}

/// What stands in records: the first layout named the run alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedFollows {
    Run(RunId),
    Place { run: RunId, seq: u64, digest: Hash, messages: u64 },
}

impl From<RecordedFollows> for Follows {
    fn from(recorded: RecordedFollows) -> Self {
        match recorded {
            RecordedFollows::Run(run) => Self { run, seq: 0, digest: Hash::default(), messages: 0 },
            RecordedFollows::Place { run, seq, digest, messages } => {
                Self { run, seq, digest, messages }
            }
        }
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
