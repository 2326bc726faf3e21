//! Interventions of walls.

use std::sync::{Mutex, PoisonError};

/// Maximum number of recorded interventions.
const MOST_NOTES: usize = 64;

/// The interventions of walls for a program, in order.
#[derive(Debug, Default)]
pub(crate) struct Interventions(Mutex<Vec<Intervention>>);

/// An intervention of walls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intervention {
    /// A denied host, empty if there was none, and the reason.
    Denied {
        host: String,
        what: String,
    },
    /// A system call for which the kernel ended the program.
    Call(String),
    Limit(String),
    /// Attempts to reach hosts without the proxy, which the kernel counted.
    Unrouted(String),
}

impl Intervention {
    /// Returns whether this is a denied host that occurs in the text.
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        matches!(self, Self::Denied { host, .. } if !host.is_empty() && text.contains(host))
    }
}

impl Interventions {
    /// Records an intervention, unless it is already recorded.
    pub(crate) fn add(&self, note: Intervention) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn all(&self) -> Vec<Intervention> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
