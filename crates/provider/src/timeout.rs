use std::fmt;

/// The part of a call that took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutPhase {
    /// Connecting.
    Connect,
    /// Waiting for the first byte of the answer.
    FirstByte,
    /// Waiting for the next chunk of the answer.
    Idle,
    /// The attempt as a whole.
    Attempt,
    /// The provider itself reported that it took too long.
    Upstream,
}

impl fmt::Display for TimeoutPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "while connecting",
            Self::FirstByte => "waiting for the first byte",
            Self::Idle => "waiting for the next chunk",
            Self::Attempt => "as a whole",
            Self::Upstream => "at the provider",
        })
    }
}
