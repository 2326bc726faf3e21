//! Errors that end a server.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;

use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// An error that keeps operators from being served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client did not begin with the handshake of the protocol.
    ///
    /// Retry: never. Effect: none.
    #[error("the client did not begin as the protocol says")]
    Handshake(#[source] BoxError),
    /// The address can be reached from other machines, but there is no token.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` can be reached from other machines, and no token is set")]
    NoToken(SocketAddr),
    /// Listening on the socket failed.
    ///
    /// Retry: never. Effect: unknown.
    #[error("connections cannot be accepted")]
    Socket(#[source] io::Error),
}

impl ServeError {
    /// Returns whether another attempt now, with backoff, can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }
}

impl Failure for ServeError {
    fn facts(&self) -> Facts {
        match self {
            Self::Handshake(_) | Self::NoToken(_) => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::Socket(_) => Facts::never(code::INTERNAL, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::NoToken(_) => Some("set a token, or listen on 127.0.0.1".into()),
            Self::Handshake(_) | Self::Socket(_) => None,
        }
    }
}
