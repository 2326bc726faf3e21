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
