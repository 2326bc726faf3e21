use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of `127.0.0.1` that refuses connections until this is dropped.
///
/// It is bound without a listener, so that no other server gets it meanwhile. A port that was merely freed may belong
/// to another test's server a moment later, which then counts a request that was not meant for it.
///
/// ```
/// use backstop_testkit::ClosedPort;
///
/// let closed = ClosedPort::bind();
/// let refused = std::net::TcpStream::connect(closed.address()).unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
/// ```
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    /// Reserves the port.
    _socket: TcpSocket,
}

impl ClosedPort {
    /// Binds a port.
    ///
    /// # Panics
    ///
    /// If no port of the loopback interface can be bound.
    #[must_use]
    pub fn bind() -> Self {
        Self::take().expect("a port of the loopback interface can be bound")
    }

    fn take() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: socket.local_addr()?, _socket: socket })
    }

    /// Returns the address that refuses connections.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn closed_port_is_given_to_no_server() {
        let closed = ClosedPort::bind();
        assert!(TcpListener::bind(closed.address()).is_err());
        assert!(TcpStream::connect(closed.address()).is_err());
        let (address, url) = (closed.address(), closed.url());
        assert_eq!(url, format!("http://{address}"));
        drop(closed);
        assert!(TcpListener::bind(address).is_ok());
    }
}
