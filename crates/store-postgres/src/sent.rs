//! What is sent to a run.

use backstop_event_log::InboxRequest;
use layer0::Timestamp;

/// A request, with who sends it and when.
pub(crate) struct Sent {
    pub(crate) request: InboxRequest,
    pub(crate) by: String,
    pub(crate) at: Timestamp,
}
