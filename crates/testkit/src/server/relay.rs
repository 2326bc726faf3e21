use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A relay to a server on loopback that can be cut.
///
/// ```no_run
/// use backstop_testkit::Relay;
///
/// let relay = Relay::start("127.0.0.1:5432");
/// let url = format!("postgres://tester@{}/test", relay.address());
/// relay.cut(); // Open connections are closed, and new ones are refused.
/// relay.mend();
/// ```
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Debug, Default)]
struct Connections {
    is_cut: bool,
    is_over: bool,
    open: Vec<TcpStream>,
}

impl Relay {
    /// Starts a relay to this address, a host and a port.
    ///
    /// # Panics
    ///
    /// If no port of the loopback interface is available.
    #[must_use]
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let connections = Arc::<Mutex<Connections>>::default();
        let (to, shared) = (to.to_owned(), Arc::clone(&connections));
        thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if lock(&shared).is_over {
                    break;
                }
                // A server that does not answer only closes this connection.
                let _ = connect(&shared, inner, &to);
            }
        });
        Self { address, connections }
    }

    /// Returns the address that clients connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and refuses new ones until [`mend`](Relay::mend).
    pub fn cut(&self) {
        let mut connections = lock(&self.connections);
        connections.is_cut = true;
        connections.close();
    }

    /// Accepts connections again.
    pub fn mend(&self) {
        lock(&self.connections).is_cut = false;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut connections = lock(&self.connections);
        connections.is_over = true;
        connections.close();
        drop(connections);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Connections {
    fn close(&mut self) {
        for stream in self.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Copies both directions of a connection on two threads, unless the relay is cut.
fn connect(shared: &Arc<Mutex<Connections>>, inner: TcpStream, to: &str) -> io::Result<()> {
    let outer = TcpStream::connect(to)?;
    let mut connections = lock(shared);
    if connections.is_cut {
        return Ok(());
    }
    connections.open.extend([inner.try_clone()?, outer.try_clone()?]);
    drop(connections);
    copy(inner.try_clone()?, outer.try_clone()?);
    copy(outer, inner);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
