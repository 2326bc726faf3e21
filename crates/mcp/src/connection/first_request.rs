//! The first request to a server.

use rmcp::model::ProtocolVersion;

/// The first request to a server, which depends on its revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum FirstRequest {
    /// `server/discover`, for a server of the current revision.
    Discover,
    /// `initialize` with this revision.
    Initialize(ProtocolVersion),
    /// `server/discover`, then `initialize` if the server does not know the former.
    #[default]
    Probe,
}
