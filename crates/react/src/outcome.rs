use std::sync::Arc;

use backstop_react_machine::Approval;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use layer0::message::Transcript;
use layer0::stop::Stop;
use layer0::usage::Usage;

/// A run that did not fail.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The run; its record stays readable under this id.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionId,
    /// How it ended: completed, or stopped with a reason.
    pub stop: Stop,
    /// What the model said.
    pub output: Arc<str>,
    /// What it used.
    pub usage: Usage,
    /// The whole transcript.
    pub transcript: Transcript,
    /// What people have to decide before it goes on, where it waits for them.
    pub approvals: Vec<Approval>,
    /// When it is to be resumed, where it waits for a time: an endpoint asked to be left alone until then.
    /// Its stop is [`Stop::WaitingApproval`] meanwhile.
    pub parked_until: Option<Timestamp>,
}

impl RunOutcome {
    /// Returns what the model said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.output
    }
}
