//! What walls have held.

use std::sync::{Mutex, PoisonError};

/// The most denials that are noted.
const MOST_NOTES: usize = 64;

/// What walls have held of a program, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Vec<Note>>);

/// Something that walls have held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A host, empty where there was none, and why it was denied.
    Denied {
        host: String,
        what: String,
    },
    Limit(String),
}

impl Note {
    /// Is this a host that stands in a text?
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        matches!(self, Self::Denied { host, .. } if !host.is_empty() && text.contains(host))
    }
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
