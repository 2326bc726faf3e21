use std::net::IpAddr;

/// Error of obtaining a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The server requests an address that is not public and that no grant allows.
    #[error("`{host}` is at {address}, which is not public")]
    AddressDenied { host: String, address: IpAddr },
    /// An authorization server did not issue a token.
    #[error("{0}")]
    Failed(String),
}
