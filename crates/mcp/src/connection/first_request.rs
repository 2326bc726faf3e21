//! The request with which a server is begun.

use rmcp::model::ProtocolVersion;

/// The first request to a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Opening {
    /// `server/discover`: it speaks the current revision.
    Discover,
    /// `initialize` in this revision.
    Initialize(ProtocolVersion),
    /// `server/discover`, then `initialize` where that is not known.
    #[default]
    Probe,
}
