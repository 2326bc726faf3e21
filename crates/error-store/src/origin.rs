use std::sync::Arc;

use layer0::Timestamp;
use layer0::id::{CallId, RunId, SessionId};

/// The tool call that an error or a result comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// Time of the failure or result.
    pub at: Timestamp,
    /// The session; only it can read the text again through a tool.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
}

impl Origin {
    /// Creates the origin of a text from a call of a run.
    pub fn new(
        at: Timestamp,
        session: impl Into<SessionId>,
        run: impl Into<RunId>,
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            at,
            session: session.into(),
            run: run.into(),
            call_id: call_id.into(),
            tool: tool.into(),
        }
    }
}
