//! The way out of a separate network: HTTP to the allowed hosts.

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

pub(crate) use gate::HostGate;
pub(crate) use notes::{Intervention, Interventions};

/// Maximum number of concurrent connections of one program; further ones wait.
const MOST_CONNECTIONS: usize = 256;
/// Maximum number of descriptors of one connection: its own, and the one to a host.
const DESCRIPTORS: usize = 2;
/// Divisor for the share of this process's descriptors that all connections may use, and the number of programs that can
/// use their maximum at once.
const PART: usize = 4;
const PROGRAMS: usize = 4;
/// Pause after a failed accept, because there may be too many open files.
const PAUSE: Duration = Duration::from_millis(500);

/// The limit for connections of all programs within walls.
static ROOM: LazyLock<Room> = LazyLock::new(|| Room::in_limit(descriptor_limit()));

/// Limits for concurrent connections.
struct Room {
    of_all: Arc<Semaphore>,
    of_one: usize,
}

impl Room {
    /// Returns the limits for a process with this limit of open files.
    fn in_limit(descriptors: usize) -> Self {
        let of_all = (descriptors / PART / DESCRIPTORS).clamp(PROGRAMS, Semaphore::MAX_PERMITS);
        let of_one = (of_all / PROGRAMS).min(MOST_CONNECTIONS);
        Self { of_all: Arc::new(Semaphore::new(of_all)), of_one }
    }
}

/// Returns the limit of open files of this process.
fn descriptor_limit() -> usize {
    /// The usual limit of a system.
    const USUAL: usize = 1024;
    #[cfg(target_os = "linux")]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(target_os = "linux"))]
    let limit: Option<u64> = None;
    limit.map_or(USUAL, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Serves the connections of a program until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, gate: HostGate, notes: Arc<Interventions>) {
    serve_in(&ROOM, listener, gate, notes).await;
}

async fn serve_in(room: &Room, listener: TcpListener, gate: HostGate, notes: Arc<Interventions>) {
    let free = Arc::new(Semaphore::new(room.of_one));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => {
                let Some((stream, _)) = accept_or_pause(accepted, &SystemClock).await else { continue };
                // An idle program takes no room, so that the number of programs is not limited by it.
                let Ok(place) = Arc::clone(&room.of_all).acquire_owned().await else { return };
                let (gate, notes) = (gate.clone(), Arc::clone(&notes));
                connections.spawn(async move {
                    connection::serve(stream, gate, notes).await;
                    drop((permit, place));
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Returns an accepted connection; after a failure, waits before the next attempt.
async fn accept_or_pause<S>(accepted: io::Result<S>, clock: &dyn Clock) -> Option<S> {
    if accepted.is_err() {
        clock.sleep(PAUSE).await;
    }
    accepted.ok()
}

#[cfg(test)]
mod tests {
    use backstop_clock::VirtualClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::Network;

    /// Spec: N3
    #[test]
    fn connections_take_a_part_of_the_descriptors() {
        for (limit, of_all, of_one) in [(48, 6, 1), (1024, 128, 32), (1 << 20, 1 << 17, 256)] {
            let room = Room::in_limit(limit);
            assert_eq!((room.of_all.available_permits(), room.of_one), (of_all, of_one), "{limit}");
        }
    }

    /// Spec: N2. However many programs run.
    #[tokio::test]
    async fn idle_programs_take_no_room() {
        let room: &'static Room = Box::leak(Box::new(Room::in_limit(48)));
        let gate = HostGate::new(Network::None, Vec::new(), false);
        let mut programs = JoinSet::new();
        let mut last = None;
        for _ in 0..20 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            last = Some(listener.local_addr().unwrap());
            programs.spawn(serve_in(room, listener, gate.clone(), Arc::default()));
        }
        tokio::task::yield_now().await;
        let mut asking = TcpStream::connect(last.unwrap()).await.unwrap();
        asking.write_all(b"GET http://a.example/ HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = [0; 12];
        let answered = asking.read_exact(&mut answer);
        tokio::select! {
            answered = answered => assert_eq!(answered.unwrap(), 12),
            () = SystemClock.sleep(Duration::from_secs(10)) => panic!("no answer"),
        }
        assert_eq!(&answer, b"HTTP/1.1 403");
    }

    /// Spec: N3
    #[tokio::test]
    async fn failed_accept_is_not_tried_at_once() {
        let clock = VirtualClock::starting_at(layer0::Timestamp::default());
        let waiting = clock.clone();
        let tried = async move {
            assert_eq!(accept_or_pause(Ok("stream"), &waiting).await, Some("stream"));
            assert!(waiting.monotonic().is_zero());
            let failed = io::Error::other("too many open files");
            assert_eq!(accept_or_pause(Err::<&str, _>(failed), &waiting).await, None);
        };
        clock.track(Box::pin(tried)).await;
        assert_eq!(clock.monotonic(), PAUSE);
    }
}
