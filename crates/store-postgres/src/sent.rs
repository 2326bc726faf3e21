//! Requests to runs.

use backstop_event_log::InboxRequest;
use layer0::Timestamp;

/// A request with its sender and time.
pub(crate) struct SubmittedRequest {
    pub(crate) request: InboxRequest,
    pub(crate) by: String,
    pub(crate) at: Timestamp,
}
