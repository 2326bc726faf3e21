use std::sync::Arc;

use backstop_react_machine::Approval;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use layer0::message::Transcript;
use layer0::stop::Stop;
use layer0::usage::Usage;

/// The outcome of a run that did not fail.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The run; its record stays readable under this id.
    pub run_id: RunId,
    /// Its session.
    pub session: SessionId,
    /// The end of the run: completed, or stopped with a reason.
    pub stop: Stop,
    /// The last text of the model.
    pub output: Arc<str>,
    /// The usage.
    pub usage: Usage,
    /// The whole transcript.
    pub transcript: Transcript,
    /// The approvals that people have to decide before it continues, if it waits for them.
    pub approvals: Vec<Approval>,
    /// Time to resume it, if it is parked: an endpoint asked for a wait until then. Its stop is
    /// [`Stop::WaitingApproval`] meanwhile.
    pub parked_until: Option<Timestamp>,
}

impl RunOutcome {
    /// Returns the last text of the model.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.output
    }
}
