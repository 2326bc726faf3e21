//! The way out of a network of its own: HTTP to the hosts that are allowed.

mod connection;
mod gate;
mod notes;
mod request;

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(crate) use gate::Gate;
pub(crate) use notes::{Note, Notes};

/// The most connections of one program at a time; more wait.
const MOST_CONNECTIONS: usize = 256;
/// The most descriptors of one connection: its own, and that of a host.
const DESCRIPTORS: usize = 2;
/// Which part of the descriptors of this process the connections of all programs may take, and how many programs may
/// take as much as they can of it.
const PART: usize = 4;
const PROGRAMS: usize = 4;
/// The pause after a failed accept: there may be too many open files.
const PAUSE: Duration = Duration::from_millis(500);

/// The room for connections of all programs within walls.
static ROOM: LazyLock<Room> = LazyLock::new(|| Room::in_limit(descriptor_limit()));

/// The most connections at a time.
struct Room {
    of_all: Arc<Semaphore>,
    of_one: usize,
}

impl Room {
    /// Returns the room where a process may have this many open files.
    fn in_limit(descriptors: usize) -> Self {
        let of_all = (descriptors / PART / DESCRIPTORS).clamp(PROGRAMS, Semaphore::MAX_PERMITS);
        let of_one = (of_all / PROGRAMS).min(MOST_CONNECTIONS);
        Self { of_all: Arc::new(Semaphore::new(of_all)), of_one }
    }
}

/// Returns how many files this process may have open.
fn descriptor_limit() -> usize {
    /// The usual limit of a system.
    const USUAL: usize = 1024;
    #[cfg(target_os = "linux")]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(target_os = "linux"))]
    let limit: Option<u64> = None;
    limit.map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Serves the connections of a program until it is dropped.
pub(crate) async fn serve(listener: TcpListener, gate: Gate, notes: Arc<Notes>) {
    let free = Arc::new(Semaphore::new(ROOM.of_one));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let Ok(room) = Arc::clone(&ROOM.of_all).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => {
                let Some((stream, _)) = connected(accepted, &SystemClock).await else { continue };
                let (gate, notes) = (gate.clone(), Arc::clone(&notes));
                connections.spawn(async move {
                    connection::serve(stream, gate, notes).await;
                    drop((permit, room));
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Returns a connection that was accepted; where none could be, waits before the next try.
async fn connected<S>(accepted: io::Result<S>, clock: &dyn Clock) -> Option<S> {
    if accepted.is_err() {
        clock.sleep(PAUSE).await;
    }
    accepted.ok()
}

#[cfg(test)]
mod tests {
    use backstop_clock::VirtualClock;

    use super::*;

    /// Spec: N3
    #[test]
    fn connections_take_a_part_of_the_descriptors() {
        for (limit, of_all, of_one) in [(48, 6, 1), (1024, 128, 32), (1 << 20, 1 << 17, 256)] {
            let room = Room::in_limit(limit);
            assert_eq!((room.of_all.available_permits(), room.of_one), (of_all, of_one), "{limit}");
        }
    }

    /// Spec: N3
    #[tokio::test]
    async fn failed_accept_is_not_tried_at_once() {
        let clock = VirtualClock::starting_at(layer0::Timestamp::default());
        let waiting = clock.clone();
        let tried = async move {
            assert_eq!(connected(Ok("stream"), &waiting).await, Some("stream"));
            assert!(waiting.monotonic().is_zero());
            let failed = io::Error::other("too many open files");
            assert_eq!(connected(Err::<&str, _>(failed), &waiting).await, None);
        };
        clock.track(Box::pin(tried)).await;
        assert_eq!(clock.monotonic(), PAUSE);
    }
}
