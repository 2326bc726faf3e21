use std::net::IpAddr;

/// Error of obtaining a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The server has an address asked that is not public and that nothing grants.
    #[error("`{host}` is at {address}, which is not public")]
    AddressDenied { host: String, address: IpAddr },
    /// An authorization server did not give one.
    #[error("{0}")]
    Failed(String),
}
