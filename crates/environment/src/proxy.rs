//! The way out of a network of its own: HTTP to the hosts that are allowed.

mod connection;
mod gate;
mod notes;
mod request;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(crate) use gate::Gate;
pub(crate) use notes::{Note, Notes};

/// The most connections at a time; more wait.
const MOST_CONNECTIONS: usize = 256;

/// Serves the connections of a program until it is dropped.
pub(crate) async fn serve(listener: TcpListener, gate: Gate, notes: Arc<Notes>) {
    let free = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        tokio::select! {
            accepted = listener.accept() => {
                // A connection that is gone already is none.
                let Ok((stream, _)) = accepted else { continue };
                let (gate, notes) = (gate.clone(), Arc::clone(&notes));
                connections.spawn(async move {
                    connection::serve(stream, gate, notes).await;
                    drop(permit);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
