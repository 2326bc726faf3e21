//! The way out of a network of its own: HTTP to the hosts that are allowed.

mod connection;
mod gate;
mod request;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(crate) use gate::Gate;

/// The most connections at a time; more wait.
const MOST_CONNECTIONS: usize = 256;

/// The most denials that are noted.
const MOST_NOTES: usize = 64;

/// What walls have held of a program, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<Note>>);

/// Something that walls have held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    Denied(String),
    Limit(String),
}

impl Notes {
    /// Notes something, once.
    pub(crate) fn add(&self, note: Note) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn all(&self) -> Vec<Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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
